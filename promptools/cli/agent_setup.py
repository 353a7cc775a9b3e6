"""Build the agent that the arguments of `promptools agent` describe: its tools, its instructions and its requests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import read_text
from promptools.cli.terminal_output import print_progress
from promptools.errors import UsageError, suggest
from promptools.harness.agent import Agent, Approve, RunLimits
from promptools.harness.agent.policies import find_policy
from promptools.harness.toolsets import Toolset
from promptools.harness.toolsets.in_distribution import gpt_oss_tools
from promptools.parsing.escape import markup_escaper
from promptools.profiles import all_control_tokens

if TYPE_CHECKING:
    from promptools.harness.sandbox import Sandbox
    from promptools.types import Tool


def workspace(name: str) -> Path:
    """Return the folder in which the agent works; raise `UsageError` for the user's home folder."""
    root = Path(name).resolve()
    if root == Path.home():
        raise UsageError(
            f"the folder is your home folder {str(root)!r}, which the model could read; name a project's folder"
        )
    return root


def agent_toolsets(
    arguments: argparse.Namespace, root: Path, sandbox: Sandbox, others: Sequence[Toolset]
) -> list[Toolset]:
    """Return the agent's tools: gpt-oss's tools for the folder, gpt-oss's browser tools with --search, and `others`."""
    return [gpt_oss_tools(root, sandbox, python=arguments.python), *_browser(arguments, others), *others]


def build_agent(
    arguments: argparse.Namespace,
    client: Any,
    tools: Sequence[Toolset],
    *,
    model: str,
    instructions: str,
    approve: Approve | None = None,
) -> Agent:
    """Return the agent that the arguments describe, with these tools and instructions."""
    return Agent(
        client,
        tools,
        model=model,
        discovered=arguments.discovered,
        instructions=instructions,
        approve=approve,
        **_request(arguments),
        **_policy(arguments),
    )


def is_asked(own_name: str, tool: Tool) -> bool:
    """Return whether the user is asked before each call of a tool.

    The user is asked only if the tool is dangerous, and never for patches, which change only files in the folder and
    appear in the diff. `own_name` is the tool's own name, even if the tool is declared to the model under another name.
    """
    return tool.dangerous and own_name != "repo_browser.apply_patch"


MAX_INSTRUCTIONS = 64 * 1024
"""Maximum number of bytes of AGENTS.md that are read."""


def instructions(arguments: argparse.Namespace, root: Path) -> str:
    """Return the instructions in the file that --system names, followed by those in the folder's AGENTS.md."""
    texts = [read_text(arguments.system)] if arguments.system else []
    file = root / "AGENTS.md"
    if not arguments.no_agents_file and file.is_file() and not file.is_symlink():
        text = file.read_bytes()[:MAX_INSTRUCTIONS].decode("utf-8", "replace")
        texts.append(markup_escaper(all_control_tokens()).escape(text))  # anyone may have written it
        print_progress("AGENTS.md of the folder is among the instructions (--no-agents-file leaves it out)")
    return "\n\n".join(text.strip() for text in texts)


def _browser(arguments: argparse.Namespace, others: Sequence[Toolset]) -> list[Toolset]:
    """Return gpt-oss's browser tools with the search that --search names; an empty list without --search."""
    if not arguments.search:
        return []
    from promptools.harness.toolsets.browser import browser_tools, search_by_tool, search_by_url

    if "://" in arguments.search:
        return [browser_tools(search_by_url(arguments.search))]
    offered = {entry.tool.name: entry for toolset in others for entry in toolset.tools}
    if arguments.search not in offered:
        raise UsageError(f"--search: no tool {arguments.search!r}; {suggest(arguments.search, offered)}")
    return [browser_tools(search_by_tool(offered[arguments.search]))]


def _request(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that the arguments add to each request."""
    given = {
        "reasoning_effort": arguments.effort,
        "temperature": arguments.temperature,
        "max_tokens": arguments.max_tokens,
    }
    return {**arguments.request, **{key: value for key, value in given.items() if value is not None}}


def _policy(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {"steps": arguments.steps, "tokens": arguments.tokens, "seconds": arguments.seconds}
    limits = RunLimits(**{name: value for name, value in given.items() if value is not None})
    policy = find_policy(arguments.policy)
    return {"policy": replace(policy, family=None) if arguments.any_family else policy, "limits": limits}
