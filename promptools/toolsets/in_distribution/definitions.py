"""The tools as they are declared: names, parameters and their order, as gpt-oss knows them.

Parameters that models use without their being declared (`timeout` of `container.exec`, `line_numbers` of `open_file`)
are accepted, so no schema forbids others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promptools.toolsets.patch.patch_application import EMPTY_PATCH
from promptools.types import Schema, Tool

CONTAINER = "container"
REPO_BROWSER = "repo_browser"
PYTHON = "python"

NAMESPACES = {
    CONTAINER: "Shell commands in the container that holds the code.",
    REPO_BROWSER: "Reading, searching and changing the files of the repository.",
}

_STRING: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_BOOLEAN: Schema = {"type": "boolean"}
_PATH_ALIASES = {"file_path": "path", "filename": "path", "file": "path"}
_FOLDER_ALIASES = {"directory": "path", "dir": "path", "folder": "path"}
_QUERY_ALIASES = {"pattern": "query", "regex": "query"}
_LINE_ALIASES = {"start_line": "line_start", "end_line": "line_end", "start": "line_start", "end": "line_end"}


def container_exec_definition() -> Tool:
    """Return `container.exec`."""
    return _tool(
        "container.exec",
        "Runs a command in the container and returns its output.\n"
        '- `command` is a program and its arguments. For a shell line pass ["bash", "-lc", "..."].\n'
        "- It starts in the root of the repository; `workdir` is another folder to start in.",
        {"command": {"type": "array", "items": _STRING, "description": "The command to run."}},
        required=("command",),
        aliases={"cmd": "command", "commands": "command"},
        dangerous=True,
    )


def print_tree_definition(names: Sequence[str] = ()) -> Tool:
    """Return `repo_browser.print_tree`; `names` are others that are no tools of their own."""
    return _tool(
        "repo_browser.print_tree",
        "Prints the tree of files below a folder.",
        {"path": _STRING, "depth": _NUMBER},
        required=("path", "depth"),
        aliases=_FOLDER_ALIASES,
        names=names,
    )


def search_definition() -> Tool:
    """Return `repo_browser.search`."""
    return _tool(
        "repo_browser.search",
        "Searches the files below a path for a regular expression.",
        {"path": _STRING, "query": _STRING, "max_results": _NUMBER},
        required=("path", "query"),
        aliases=_QUERY_ALIASES,
        names=("repo_browser.find", "repo_browser.grep"),
    )


def open_file_definition(*, line_numbers: bool) -> Tool:
    """Return `repo_browser.open_file`, with or without the parameter `line_numbers`."""
    return _tool(
        "repo_browser.open_file",
        "Shows a file, or some lines of it.",
        {
            "path": _STRING,
            "line_start": _NUMBER,
            "line_end": _NUMBER,
            **({"line_numbers": _BOOLEAN} if line_numbers else {}),
        },
        required=("path",),
        aliases={**_PATH_ALIASES, **_LINE_ALIASES},
        names=("repo_browser.read_file",),
    )


def list_dir_definition() -> Tool:
    """Return `repo_browser.list_dir`."""
    return _tool(
        "repo_browser.list_dir",
        "Lists the files of a folder.",
        {"path": _STRING, "depth": _NUMBER},
        required=("path",),
        aliases=_FOLDER_ALIASES,
        names=("repo_browser.list_files", "repo_browser.list_directory"),
    )


def apply_patch_definition() -> Tool:
    """Return `repo_browser.apply_patch`."""
    return _tool(
        "repo_browser.apply_patch",
        "Changes files by a patch.",
        {"patch": {"type": "string", "default": EMPTY_PATCH}},
        names=("apply_patch",),
        aliases={"input": "patch", "diff": "patch"},
        free_text="patch",
        dangerous=True,
    )


def python_definition(description: str) -> Tool:
    """Return `python`."""
    return _tool(
        PYTHON,
        description,
        {"code": {"type": "string", "description": "The code to run."}},
        required=("code",),
        aliases={"script": "code", "source": "code"},
        free_text="code",
        dangerous=True,
    )


def _tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    *,
    required: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    free_text: str | None = None,
    dangerous: bool = False,
) -> Tool:
    schema: Schema = {"type": "object", "properties": dict(parameters)}
    if required:
        schema["required"] = list(required)
    return Tool(
        name,
        description,
        schema,
        dangerous=dangerous,
        aliases=dict(aliases or {}),
        names=tuple(names),
        free_text=free_text,
    )
