"""Build the example calls of a prompt: of offered tools, with placeholders for strings.

Small models copy what they see: they follow an example of an offered tool, but repeat one of `tool_name` literally
(docs/reference/real-models.md has the figures). A literal copy is no call: `call_filter` recognizes it by its
placeholders, so a tool whose example would have none is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from promptools.dialects.rendering.signature import resolve_reference
from promptools.jsontext.value import dump
from promptools.schema.documents.json_guards import is_array, is_object
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.schema import Tools
    from promptools.types import Schema, Tool

MAX_EXAMPLE_DEPTH = 3
"""Levels of nesting that an example shows."""
MAX_EXAMPLE_PARAMETERS = 8
"""Parameters of an object that an example shows."""
NAME_SLOT: Final = "<function name>"
"""The placeholder for the tool's name in a template of a call: a copy of it is no call."""
GENERIC_CALL: Final = Call("", NAME_SLOT, {"parameter": "<value>"}, '{"parameter": <value>}')
"""The example if no tool takes a string: neither its name nor its arguments can be parsed."""


_drawn: WeakKeyDictionary[Tools, tuple[Call, Call]] = WeakKeyDictionary()


def example_calls(tools: Tools) -> tuple[Call, Call]:
    """Return example calls of the first and of the last tool that can be shown.

    They are made once for each object `tools`: the prompt shows them, and the reader of the reply recognizes them.
    """
    examples = _drawn.get(tools)
    if examples is None:
        first = _first_shown(tools)
        examples = _drawn[tools] = first, first if first is GENERIC_CALL else _first_shown(reversed(tools))
    return examples


def _first_shown(tools: Iterable[Tool]) -> Call:
    examples = (_example_of(tool, tool.parameters, enums=enums) for tool in tools for enums in (True, False))
    return next(filter(_has_placeholder, examples), GENERIC_CALL)


def _example_of(tool: Tool, root: Schema, *, enums: bool) -> Call:
    """Return an example call; without `enums` an enum of strings gets a placeholder too."""
    arguments = _object(root, root, 0, enums=enums)
    return Call("", tool.name, arguments, dump(arguments))


def _object(schema: Schema, root: Schema, depth: int, *, enums: bool) -> dict[str, Any]:
    """Return example arguments for the required parameters only: optional ones would be copied."""
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return {}
    names = [name for name in required if name in properties][:MAX_EXAMPLE_PARAMETERS]
    return {name: _value(properties[name], root, name, depth + 1, enums=enums) for name in names}


def _value(schema: Any, root: Schema, name: str, depth: int, *, enums: bool) -> Any:
    node = resolve_reference(schema, root)
    if "const" in node:
        return node["const"]
    allowed = node.get("enum")
    if is_array(allowed) and allowed and (enums or not isinstance(allowed[0], str)):
        return allowed[0]
    kind = node.get("type")
    if is_array(kind):
        kind = kind[0] if kind else None
    if kind == "object":
        return _object(node, root, depth, enums=enums) if depth < MAX_EXAMPLE_DEPTH else {}
    if kind == "array":
        return [_value(node.get("items"), root, name, depth + 1, enums=enums)] if depth < MAX_EXAMPLE_DEPTH else []
    return _EXAMPLE_VALUES.get(kind, f"<{name}>") if isinstance(kind, str) else f"<{name}>"


_EXAMPLE_VALUES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def _has_placeholder(call: Call) -> bool:
    return any(map(_is_placeholder, call.arguments.values()))


def _is_placeholder(value: Any) -> bool:
    if is_object(value):
        return any(map(_is_placeholder, value.values()))
    if is_array(value):
        return any(map(_is_placeholder, value))
    return isinstance(value, str) and value[:1] == "<" and value[-1:] == ">"
