"""The command `promptools render`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from promptools import dialects
from promptools.cli.shared_arguments import add_json, add_tools, read_json, read_tools
from promptools.cli.terminal_output import print_json
from promptools.cli.text_commands import request_rendering
from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.modes.prompt_mode import JSON_DIALECT, render
from promptools.wire.json_body import as_object

PART_ARGUMENTS = ("tools", "calls", "results", "single", "required")
"""The arguments that are for rendering parts, not a whole request."""
PART_BY_ROLE = {"system": "tools", "assistant": "calls", "user": "results"}
"""What each role's message holds if there is no other text in it."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", nargs="?", help="JSON: the body of a chat completion (-: stdin)")
    request_rendering.add(parser)
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help="write in this dialect; `promptools dialects` lists them (default: json; of FILE, its model's)",
    )
    add_tools(parser)
    parser.add_argument("--single", action="store_true", help="ask for at most one call")
    parser.add_argument("--required", action="store_true", help="ask for a call, not for an answer")
    parser.add_argument(
        "--calls", metavar="FILE", help='JSON list of {"name", "arguments"}, or of tool_calls: as the model writes them'
    )
    parser.add_argument(
        "--results", metavar="FILE", help='JSON list of {"name", "content"}: the turn that answers calls'
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Render the request, or the parts given, in the order of a conversation."""
    if arguments.file is None:
        request_rendering.reject_arguments(arguments, request_rendering.REQUEST_ARGUMENTS, "a request: give FILE")
        return _render_parts(arguments)
    request_rendering.reject_arguments(arguments, PART_ARGUMENTS, "no FILE: a request says all this itself")
    return request_rendering.run(arguments)


def _render_parts(arguments: argparse.Namespace) -> int:
    dialect = dialects.get(arguments.dialect or JSON_DIALECT)
    calls = _read_list(arguments.calls, _to_tool_call)
    messages = [{"role": "assistant", "tool_calls": calls}] if calls else []
    sent = render(
        [*messages, *_read_list(arguments.results, _to_tool_message)],
        read_tools(arguments.tools),
        dialect=dialect.name,
        tool_choice="required" if arguments.required else None,
        parallel_tool_calls=not arguments.single,
    )
    parts = {PART_BY_ROLE[message["role"]]: message["content"] for message in sent}
    if not parts:
        raise UsageError("nothing to render: give a request, or --tools, --calls or --results")
    if arguments.json:
        print_json({"dialect": dialect.name, "stop": list(dialect.stop), **parts})
    else:
        print("\n\n".join(parts.values()))
    return 0


def _read_list(name: str | None, read: Callable[[dict[str, Any], str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Read the JSON list in a file, if one is named, and convert each entry with `read`."""
    data: Any = [] if name is None else read_json(name)
    if not is_array(data):
        raise UsageError(f"{name!r} must hold a list")
    return [read(as_object(entry), f"{name!r}, entry {at}") for at, entry in enumerate(data)]


def _to_tool_call(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert an entry to a tool call of the chat format, which it may be already."""
    function = as_object(data.get("function")) or data
    name: Any = function.get("name")
    arguments: Any = function.get("arguments")
    if not isinstance(name, str):
        raise UsageError(f"{where}: a call must be an object with a 'name', not {clip(repr(data))}")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise UsageError(f"{where}: the arguments are not valid JSON: {error}") from error
    if arguments is None:
        arguments = {}
    if not is_object(arguments):
        raise UsageError(f"{where}: the arguments must be an object, or the JSON of one, not {clip(repr(arguments))}")
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": str(data.get("id", "")), "type": "function", "function": function}


def _to_tool_message(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert an entry to a tool message of the chat format, which it may be already."""
    fields = {"tool_call_id": str(data.get("tool_call_id", data.get("id", ""))), "name": data.get("name")}
    if not isinstance(fields["name"], str) and not fields["tool_call_id"]:
        raise UsageError(f"{where}: a result must be an object with a 'name', not {clip(repr(data))}")
    content = data.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {"role": "tool", **fields, "content": text}
