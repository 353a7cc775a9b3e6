"""The tools together, bound to a workspace and a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from promptools.errors import UsageError
from promptools.harness.sandbox import Sandbox
from promptools.toolsets.agent_tool import AgentTool, Toolset
from promptools.toolsets.in_distribution.container_tool import container_exec
from promptools.toolsets.in_distribution.definitions import (
    NAMESPACES,
    apply_patch_definition,
    container_exec_definition,
    list_dir_definition,
    open_file_definition,
    print_tree_definition,
    python_definition,
    search_definition,
)
from promptools.toolsets.in_distribution.observations import Observation, plain_observation
from promptools.toolsets.in_distribution.python_tool import PythonSession, python_description
from promptools.toolsets.in_distribution.repo_browser import FileReader, FileSearch, FolderLister, WorkspaceFiles
from promptools.toolsets.patch import patch_tool

Variant: TypeAlias = Literal["paper", "code"]
"""Which set is declared: that of the paper, where `list_dir` is another name of `print_tree`, or that of its code,
where it is a tool of its own and `open_file` has `line_numbers`."""
PythonKind: TypeAlias = Literal["stateless", "stateful"]

DEFAULT_TIMEOUT = 300.0
DEFAULT_OUTPUT = 10_000
_LIST_DIR_NAMES = ("repo_browser.list_dir", "repo_browser.list_files", "repo_browser.list_directory")


def gpt_oss_tools(
    root: Path | str,
    sandbox: Sandbox,
    *,
    variant: Variant = "paper",
    python: PythonKind | None = None,
    observation: Observation = plain_observation,
    timeout: float = DEFAULT_TIMEOUT,
    max_output: int = DEFAULT_OUTPUT,
) -> Toolset:
    """Return the in-distribution tools of gpt-oss on the workspace `root`, whose commands run in `sandbox`.

    `root` is the sandbox's own. `python` adds the tool `python`: "stateless" starts a new interpreter for each call,
    "stateful" keeps one. `timeout`, in seconds, is that of each command, and `max_output`, in bytes, bounds what the
    tools for files return.
    """
    if variant not in ("paper", "code"):
        raise UsageError(f"the variant is {variant!r}; there are 'paper' and 'code'")
    if Path(root).resolve() != sandbox.root:
        raise UsageError(f"the tools' root {str(root)!r} is not the sandbox's, {str(sandbox.root)!r}")
    files = WorkspaceFiles(sandbox.root, sandbox.workspace)
    lister = FolderLister(files, max_output)
    paper = variant == "paper"
    tools = [
        AgentTool(container_exec_definition(), container_exec(sandbox, observation, timeout)),
        AgentTool(print_tree_definition(_LIST_DIR_NAMES if paper else ()), lister.print_tree, parallel=True),
        AgentTool(search_definition(), FileSearch(files, sandbox, max_output).search, parallel=True),
        AgentTool(open_file_definition(line_numbers=not paper), FileReader(files, max_output).open_file, parallel=True),
    ]
    if not paper:
        tools.append(AgentTool(list_dir_definition(), lister.list_dir, parallel=True))
    tools.append(AgentTool(apply_patch_definition(), patch_tool(sandbox.root).run))
    if python is not None:
        session = PythonSession(sandbox, stateful=python == "stateful", timeout=timeout, observation=observation)
        tools.append(AgentTool(python_definition(python_description(python, timeout)), session.run))
    return Toolset(tuple(tools), dict(NAMESPACES))
