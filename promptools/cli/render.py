"""Write a request as the Harmony text it becomes, or tools, calls and results as a dialect puts them into a prompt."""

from __future__ import annotations

import argparse
import json
from typing import Any

from promptools import dialects
from promptools.cli import render_request
from promptools.cli.arguments import add_json, add_tools, read_json, read_tools
from promptools.cli.screen import print_json
from promptools.errors import UsageError
from promptools.schema import Tools
from promptools.types import Call, Result
from promptools.wire.shapes import as_object, is_list

NAME = "render"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", nargs="?", help="JSON: the body of a chat completion (-: stdin)")
    render_request.add(parser)
    parser.add_argument("--dialect", choices=dialects.names(), help="default: json")
    add_tools(parser)
    parser.add_argument("--single", action="store_true", help="ask for one call at most")
    parser.add_argument("--required", action="store_true", help="ask for a call, not for an answer")
    parser.add_argument("--calls", metavar="FILE", help='JSON list of {"name", "arguments"}: as the model writes them')
    parser.add_argument(
        "--results", metavar="FILE", help='JSON list of {"name", "content"}: the turn that answers calls'
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Render the request, or whatever else was given, in the order of a conversation."""
    pieces = (arguments.tools, arguments.calls, arguments.results)
    if arguments.file is not None:
        if any(each is not None for each in pieces):
            raise UsageError("a request holds its own tools, calls and results: give FILE alone, or leave it out")
        return render_request.run(arguments)
    return _render_pieces(arguments)


def _render_pieces(arguments: argparse.Namespace) -> int:
    dialect = dialects.get(arguments.dialect or "json")
    parts: dict[str, str] = {}
    given = read_tools(arguments.tools)
    if given is not None:
        parts["tools"] = dialect.render_tools(Tools(given), parallel=not arguments.single, required=arguments.required)
    if arguments.calls:
        parts["calls"] = dialect.render_calls([_call(each) for each in _objects(arguments.calls)])
    if arguments.results:
        parts["results"] = dialect.render_results([_result(each) for each in _objects(arguments.results)])
    if not parts:
        raise UsageError("nothing to render: give a request, or --tools, --calls or --results")
    if arguments.json:
        print_json({"dialect": dialect.name, "stop": list(dialect.stop), **parts})
    else:
        print("\n\n".join(parts.values()))
    return 0


def _objects(name: str) -> list[dict[str, Any]]:
    """Read a list of objects that each have a name."""
    found = read_json(name)
    if not is_list(found):
        raise UsageError(f"{name!r} must hold a list")
    for each in found:
        if not isinstance(as_object(each).get("name"), str):
            raise UsageError(f"{name!r}: each entry must be an object with a 'name', not {each!r}")
    return [as_object(each) for each in found]


def _call(data: dict[str, Any]) -> Call:
    arguments = data.get("arguments", {})
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return Call(str(data.get("id", "")), data["name"], arguments, json.dumps(arguments, ensure_ascii=False))


def _result(data: dict[str, Any]) -> Result:
    content = data.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return Result(str(data.get("id", "")), data["name"], text, is_error=data.get("is_error") is True)
