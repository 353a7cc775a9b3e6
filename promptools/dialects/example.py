"""Build the example calls of a prompt: of offered tools, with placeholders for strings.

Small models copy what they see: they follow an example of an offered tool, but repeat one of `tool_name` literally
(docs/reference/real-models.md has the figures). A literal copy is no call: `modes.gate` recognizes it by its
placeholders, so a tool whose example would have none is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.settle import dump
from promptools.dialects.signature import resolve
from promptools.schema.graph import is_array, is_object
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.schema import Tools
    from promptools.types import Schema, Tool

DEEPEST = 3
"""Levels of nesting that an example shows."""
MOST = 8
"""Parameters of an object that an example shows."""
NAME: Final = "<function name>"
"""The placeholder for the tool's name in a template of a call: a copy of it is no call."""
GENERIC: Final = Call("", NAME, {"parameter": "<value>"}, '{"parameter": <value>}')
"""The example if no tool takes a string: neither its name nor its arguments can be parsed."""


def example_calls(tools: Tools) -> tuple[Call, Call]:
    """Return example calls of the first and of the last tool that can be shown."""
    offered = list(tools)
    return _first(offered), _first(reversed(offered))


def _first(tools: Iterable[Tool]) -> Call:
    examples = (_drawn(tool, tool.parameters, enums=enums) for tool in tools for enums in (True, False))
    return next(filter(_has_placeholder, examples), GENERIC)


def _drawn(tool: Tool, root: Schema, *, enums: bool) -> Call:
    """Return an example call; without `enums` an enum of strings gets a placeholder too."""
    arguments = _object(root, root, 0, enums=enums)
    return Call("", tool.name, arguments, dump(arguments))


def _object(schema: Schema, root: Schema, depth: int, *, enums: bool) -> dict[str, Any]:
    """Return example arguments for the required parameters only: optional ones would be copied."""
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return {}
    names = [name for name in required if name in properties][:MOST]
    return {name: _value(properties[name], root, name, depth + 1, enums=enums) for name in names}


def _value(schema: Any, root: Schema, name: str, depth: int, *, enums: bool) -> Any:
    node = resolve(schema, root)
    if "const" in node:
        return node["const"]
    allowed = node.get("enum")
    if is_array(allowed) and allowed and (enums or not isinstance(allowed[0], str)):
        return allowed[0]
    kind = node.get("type")
    if is_array(kind):
        kind = kind[0] if kind else None
    if kind == "object":
        return _object(node, root, depth, enums=enums) if depth < DEEPEST else {}
    if kind == "array":
        return [_value(node.get("items"), root, name, depth + 1, enums=enums)] if depth < DEEPEST else []
    return _SIMPLE.get(kind, f"<{name}>") if isinstance(kind, str) else f"<{name}>"


_SIMPLE: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def _has_placeholder(call: Call) -> bool:
    return any(map(_is_placeholder, call.arguments.values()))


def _is_placeholder(value: Any) -> bool:
    if is_object(value):
        return any(map(_is_placeholder, value.values()))
    if is_array(value):
        return any(map(_is_placeholder, value))
    return isinstance(value, str) and value[:1] == "<" and value[-1:] == ">"
