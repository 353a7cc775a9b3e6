"""Build the example calls of a prompt: of offered tools, with placeholders for strings.

Small models copy what they see: they follow an example of an offered tool, but repeat one of `tool_name` literally
(docs/reference/real-models.md has the figures). A literal copy is no call: `call_filter` recognizes it by its
placeholders, so a tool whose example would have none is not shown. Nor is one that the dialect would not write in its
usual form, such as a tag in a format of tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from promptools.dialects.rendering.signature import resolve_reference
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.schema import Tools
    from promptools.types import Schema, Tool

Shows: TypeAlias = Callable[[Call], bool]

PLACEHOLDERS: Final = ("<{}>", "({})")
"""The forms of a placeholder: the first is that of all dialects whose values are not between tags."""
MAX_EXAMPLE_DEPTH = 3
"""Levels of nesting that an example shows."""
MAX_EXAMPLE_PARAMETERS = 8
"""Parameters of an object that an example shows."""
NAME_SLOT: Final = "<function name>"
"""The placeholder for the tool's name in a template of a call: a copy of it is no call."""
GENERIC_CALL: Final = Call("", NAME_SLOT, {"parameter": "<value>"}, '{"parameter": <value>}')
"""The example if no tool takes a string: neither its name nor its arguments can be parsed."""


_drawn: WeakKeyDictionary[Tools, dict[Shows, tuple[Call, Call]]] = WeakKeyDictionary()


def _shows_any(call: Call) -> bool:
    del call
    return True


def example_calls(tools: Tools, shows: Shows = _shows_any) -> tuple[Call, Call]:
    """Return example calls of the first and of the last tool that can be shown.

    `shows` returns whether the dialect writes a call in its usual form. They are made once for each object `tools`: the
    prompt shows them, and the reader of the reply recognizes them.
    """
    drawn = _drawn.setdefault(tools, {})
    examples = drawn.get(shows)
    if examples is None:
        first = _first_shown(tools, shows)
        examples = drawn[shows] = first, first if first is GENERIC_CALL else _first_shown(reversed(tools), shows)
    return examples


def _first_shown(tools: Iterable[Tool], shows: Shows) -> Call:
    examples = (
        _example_of(tool, tool.parameters, form, enums=enums)
        for tool in tools
        for form in PLACEHOLDERS
        for enums in (True, False)
    )
    return next((call for call, is_placed in examples if is_placed and shows(call)), GENERIC_CALL)


def _example_of(tool: Tool, root: Schema, form: str, *, enums: bool) -> tuple[Call, bool]:
    """Return an example call, and whether it has a placeholder; without `enums` an enum of strings gets one too."""
    arguments = _object(root, root, 0, form, enums=enums)
    is_placed = any(text[:1] == form[0] and text[-1:] == form[-1] for _, text in _texts(arguments))
    return Call("", tool.name, arguments, dump(arguments)), is_placed


def _object(schema: Schema, root: Schema, depth: int, form: str, *, enums: bool) -> dict[str, Any]:
    """Return example arguments for the required parameters only: optional ones would be copied."""
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return {}
    names = [name for name in required if name in properties][:MAX_EXAMPLE_PARAMETERS]
    return {name: _value(properties[name], root, form.format(name), depth + 1, form, enums=enums) for name in names}


def _value(schema: Any, root: Schema, placeholder: str, depth: int, form: str, *, enums: bool) -> Any:
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
        return _object(node, root, depth, form, enums=enums) if depth < MAX_EXAMPLE_DEPTH else {}
    if kind == "array":
        if depth >= MAX_EXAMPLE_DEPTH:
            return []
        return [_value(node.get("items"), root, placeholder, depth + 1, form, enums=enums)]
    return _EXAMPLE_VALUES.get(kind, placeholder) if isinstance(kind, str) else placeholder


_EXAMPLE_VALUES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def placeholder_in(arguments: Mapping[str, Any]) -> str:
    """Return an argument that is a placeholder as examples have them, such as `<city>` for `city`; empty if none is."""
    texts = _texts(arguments)
    return next((text for name, text in texts if text in {form.format(name) for form in PLACEHOLDERS}), "")


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in a value, each with the name of the parameter that it belongs to."""
    if is_object(value):
        for key, member in value.items():
            yield from _texts(member, key)
    elif is_array(value):
        for item in value:
            yield from _texts(item, name)
    elif isinstance(value, str):
        yield name, value
