"""How each MCP server is reached, and the file format that MCP clients share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast

from promptools.errors import UsageError


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a process; it gets a few harmless variables and those of `env`."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks Streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


McpServer: TypeAlias = StdioServer | HttpServer


def read_server(name: str, given: McpServer | Mapping[str, Any]) -> McpServer:
    """Return a server's settings; a dict has `command` or `url`, as in the files of MCP clients."""
    if not name.strip():
        raise UsageError("an MCP server has an empty name")
    if isinstance(given, StdioServer | HttpServer):
        return given
    keys = {"url": {"url", "headers"}, "command": {"command", "args", "env", "cwd"}}
    kind = next((key for key in keys if isinstance(given.get(key), str)), None)
    if kind is None:
        raise UsageError(f"the MCP server {name!r} has neither 'command' nor 'url'")
    settings = {key: value for key, value in given.items() if key != "type"}
    unknown = settings.keys() - keys[kind]
    if unknown:
        raise UsageError(f"the MCP server {name!r} has settings that are not known: {', '.join(sorted(unknown))}")
    for key, value in settings.items():
        if not _fits(key, value):
            raise UsageError(f"the MCP server {name!r}: {key!r} has the wrong type")
    return HttpServer(**settings) if kind == "url" else StdioServer(**settings)


def read_file(path: Path | str) -> dict[str, McpServer]:
    """Return the servers of a JSON file with `mcpServers`; raise `UsageError` if it is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the MCP servers of {str(path)!r}: {error}") from error
    servers = data.get("mcpServers") if _is_object(data) else None
    if not _is_object(servers) or not all(map(_is_object, servers.values())):
        raise UsageError(f"{str(path)!r} has no object 'mcpServers' of servers by name")
    return {name: read_server(name, settings) for name, settings in servers.items()}


def _fits(key: str, value: object) -> bool:
    if key in {"env", "headers"}:
        return _is_object(value) and all(isinstance(item, str) for item in value.values())
    if key == "args":
        return isinstance(value, list | tuple) and all(map(_is_string, cast("Sequence[object]", value)))
    return isinstance(value, str) or (key == "cwd" and value is None)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
