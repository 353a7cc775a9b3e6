"""The tools that `promptools discover` has confirmed for a model, and an app's tools declared under discovered names.

A model calls the tools that it was trained on more often, and more correctly, than others. If a tool of the app has a
discovered name, or an alias of a discovered name, it is therefore declared under the discovered name. The tool keeps
its own parameters. Discovered aliases of these parameters are accepted; aliases that do not match a parameter of the
tool are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.json_values import is_array
from promptools.modes.tool_names import rename_tool
from promptools.schema import Tools
from promptools.schema.tool_definition import marks_of

if TYPE_CHECKING:
    import os

    from promptools.types import Tool

FILE_NAME = "tools.json"
"""The file that `promptools discover` writes into its folder."""


def read_discovered_tools(path: str | os.PathLike[str]) -> tuple[Tool, ...]:
    """Return the tools that `promptools discover` wrote, with their aliases.

    `path` is the folder that the command wrote, or the file `tools.json` in it. Raises `UsageError` if the file cannot
    be read, or does not contain a list of tools.
    """
    file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
    try:
        data: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(
            f"cannot read {str(file)!r}: {error.strerror}; pass the folder that `promptools discover --output` wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(file)!r} is not valid JSON: {error}") from error
    if not is_array(data):
        raise UsageError(f"{str(file)!r} holds no list of tools; `promptools discover` writes one, {FILE_NAME}")
    return tuple(Tools(data, strict=True))


@dataclass(frozen=True, slots=True)
class KnownTools:
    """An app's tools, declared under the names that a model was trained on."""

    tools: Tools
    """The app's tools in their original order, under the names that the model knows, followed by `added`."""
    added: tuple[Tool, ...] = ()
    """Discovered tools that the app can run, although they are not among the app's tools."""
    left_out: tuple[Tool, ...] = ()
    """Discovered tools that the app cannot run."""


def with_discovered(tools: Tools, discovered: Sequence[Tool], can_run: Callable[[Tool], bool]) -> KnownTools:
    """Return an app's tools, declared under discovered names and with discovered aliases.

    A discovered tool that is not among the app's tools is added if `can_run` returns True for it.
    """
    matches: dict[str, list[Tool]] = {}
    added: list[Tool] = []
    left_out: list[Tool] = []
    for tool in discovered:
        own = next((match[0] for name in (tool.name, *tool.names) if (match := tools.find(name))), None)
        if own is not None:
            matches.setdefault(own.name, []).append(tool)
        else:
            (added if can_run(tool) else left_out).append(tool)
    sent = {own: _declared_name(own, known) for own, known in matches.items()}
    declared = Tools(
        [*(rename_tool(payload, sent) for payload in tools.to_openai()), *(replace(tool, names=()) for tool in added)]
    )
    own_marks = {sent.get(tool.name, tool.name): marks_of(tool) for tool in tools}
    matches |= {tool.name: [tool] for tool in added}
    names = _other_names(tools, matches)
    known_marks = {
        sent.get(own, own): {"names": names[own], "aliases": _aliases(known)} for own, known in matches.items()
    }
    return KnownTools(declared.with_marks(own_marks).with_marks(known_marks), tuple(added), tuple(left_out))


def _declared_name(own: str, known: Sequence[Tool]) -> str:
    """Return the name under which a tool is declared: its own name if the model knows it, else a discovered name."""
    return own if any(tool.name == own for tool in known) else known[0].name


def _other_names(tools: Tools, matches: Mapping[str, Sequence[Tool]]) -> dict[str, list[str]]:
    """Map each tool to its aliases: the app's own name for it, and discovered names that no other tool has."""
    owners = {tool.name: own for own, known in matches.items() for tool in known}
    for own, known in matches.items():
        for name in (name for tool in known for name in tool.names):
            match = tools.find(name)
            if match is None or match[0].name == own:
                owners.setdefault(name, own)
    return {own: [own, *(name for name, owner in owners.items() if owner == own)] for own in matches}


def _aliases(known: Sequence[Tool]) -> dict[str, str]:
    return {alias: name for tool in known for alias, name in tool.aliases.items()}
