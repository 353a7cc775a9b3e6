"""Read a tool from any of the forms in which callers define tools.

For a Python function, the descriptions of the parameters come from its docstring (`parse_docstring`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, cast

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object
from promptools.types import Schema, Tool

if TYPE_CHECKING:
    from collections.abc import Collection


# Parameter descriptions from docstrings in Google, NumPy or Sphinx style, parsed by griffe.


STYLES = ("google", "numpy", "sphinx")
_KNOWN_SECTIONS = frozenset(("parameters", "raises", "returns", "text"))


class ParsedDocstring(NamedTuple):
    """The description of a function, and the descriptions of its parameters."""

    text: str
    parameters: dict[str, str]


def parse_docstring(docstring: str, names: Collection[str]) -> ParsedDocstring:
    """Return the descriptions of a function and of its parameters `names` from the function's docstring.

    The function's description consists of the docstring's text and of what the docstring says about the result. It is
    the whole docstring if no parameter is described, or if the docstring has other sections, such as examples, that
    would be lost.
    """
    if not any(re.search(rf"\b{re.escape(name)}\b", docstring) for name in names):
        return ParsedDocstring(docstring, {})  # without griffe, whose import takes 0.2 s
    try:
        griffe: Any = import_module("griffe")
    except ImportError:  # griffe is not installed
        return ParsedDocstring(docstring, {})
    for style in STYLES:
        sections = griffe.Docstring(docstring, lineno=1).parse(style, warnings=False)
        parameters = [entry for section in sections if section.kind.value == "parameters" for entry in section.value]
        descriptions = {entry.name: " ".join(entry.description.split()) for entry in parameters if entry.name in names}
        if descriptions:
            known = all(section.kind.value in _KNOWN_SECTIONS for section in sections)
            return ParsedDocstring(_without_parameters(sections) if known else docstring, descriptions)
    return ParsedDocstring(docstring, {})


def _without_parameters(sections: list[Any]) -> str:
    """Return the docstring without its parameters: the text, and what the function returns."""
    texts = [section.value for section in sections if section.kind.value == "text"]
    results = [entry.description for section in sections if section.kind.value == "returns" for entry in section.value]
    return "\n\n".join([*texts, *(f"Returns: {result}" for result in results if result)])


# The forms of a definition: objects of the APIs, schemas, Python functions and classes.


ToolLike: TypeAlias = "Tool | Mapping[str, Any] | type[Any] | Callable[..., Any]"
"""An OpenAI tool dict, a bare or Anthropic-like dict, a pydantic model, a typed function, or a `Tool`."""

MARKS_KEY = "x-promptools"
"""The key for promptools' marks (`dangerous`, `aliases`, ...) in a tool dict or in its schema. It is never sent."""
SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
"""The keys that hold the schema in OpenAI's, Anthropic's and MCP's tools, in this order."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """Copies of a tool, and of the dict to send to a server (`payload`); `notes` say what was wrong with the tool."""

    tool: Tool
    payload: dict[str, Any]
    notes: list[str] = field(default_factory=list[str])
    unreadable: bool = False
    """Whether the schema is nested too deeply to be copied. If so, the caller's own object is sent."""


def read_definition(given: ToolLike, position: int, *, strict: bool = False, copied: bool = False) -> ToolDefinition:
    """Read one tool, in O(n); `position`, counted from 0, appears in errors.

    If `copied`, `given` is a dict that may be changed. Raises UsageError for anything that is not a tool or has no
    name; if `strict`, also for any fault that would otherwise get a note.
    """
    try:
        source = _from_dict(cast(dict[str, Any], given), position) if copied else _read_shallow(given, position)
    except RecursionError:
        if strict:
            raise UsageError(f"Tool at position {position} is nested too deeply to be read; flatten it.") from None
        return _read_too_deep(given, position)
    if strict and source.notes:
        raise UsageError(f"Tool {source.tool.name!r}: {source.notes[0]}.")
    return source


def _read_too_deep(given: ToolLike, position: int) -> ToolDefinition:
    """Return the definition of a tool that is nested too deeply. It is sent unchanged; its calls are not checked."""
    data: dict[str, Any] = dict(given) if _is_mapping(given) else {}
    inner = data.get("function", data)
    whole: dict[str, Any] = dict(inner) if _is_mapping(inner) else {}
    if isinstance(given, Tool):
        whole = {"name": given.name, "description": given.description, "parameters": given.parameters}
    known = {key: whole[key] for key in ("name", "description") if key in whole}
    source = _from_dict({"function": known}, position)
    sent = (
        {**source.payload, **data, "function": whole} if "function" in data else {**source.payload, "function": whole}
    )
    note = "its parameters are nested too deeply to be read: its calls are not checked by them"
    return replace(source, payload=sent, notes=[note], unreadable=True)


def _read_shallow(given: ToolLike, position: int) -> ToolDefinition:
    if isinstance(given, Tool):
        tool = replace(given, parameters=copy_json(given.parameters), aliases=dict(given.aliases))
        return _definition(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}, {}, tool, []
        )
    if _is_mapping(given):
        return _from_dict(copy_json(dict(given)), position)
    if callable(given):
        return _from_python(given, position)
    raise UsageError(
        f"Tool at position {position} is {clip(repr(given))}: expected an OpenAI tool dict, a dict with 'name', "
        f"'description' and 'parameters', a pydantic model, a typed function or a Tool."
    )


def apply_marks(tool: Tool, marks: Any) -> Tool:
    """Return a copy of a tool with marks (`dangerous`, ...) set; raise UsageError for an unknown or invalid mark."""
    if not _is_mapping(marks):
        raise UsageError(f"Tool {tool.name!r}: its marks are {clip(repr(marks))}; expected a dict.")
    changes = dict(marks)
    wanted = {
        "dangerous": "true or false",
        "infer": "true, false or null",
        "aliases": "a dict of model's name to ours",
        "names": "a list of names",
        "free_text": "the name of a parameter, or null",
    }
    for key, value in changes.items():
        shown = clip(repr(value))
        good = {
            "dangerous": isinstance(value, bool),
            "infer": value is None or isinstance(value, bool),
            "aliases": _is_mapping(value) and all(isinstance(name, str) for pair in value.items() for name in pair),
            "names": isinstance(value, list | tuple) and all(_is_name(name) for name in cast(Sequence[Any], value)),
            "free_text": isinstance(value, str | None),
        }
        if key not in wanted:
            raise UsageError(f"Tool {tool.name!r}: there is no mark {key!r}; the marks are {', '.join(wanted)}.")
        if not good[key]:
            raise UsageError(f"Tool {tool.name!r}: the mark {key!r} is {shown}; expected {wanted[key]}.")
    if "aliases" in changes:
        changes["aliases"] = {**tool.aliases, **changes["aliases"]}
    if "names" in changes:
        changes["names"] = tuple(dict.fromkeys((*tool.names, *changes["names"])))
    return replace(tool, **changes)


def marks_of(tool: Tool) -> dict[str, Any]:
    """Return the marks of a tool that are set, in the form that `apply_marks` takes."""
    marks = {
        "dangerous": tool.dangerous or None,
        "infer": tool.infer,
        "aliases": dict(tool.aliases) or None,
        "names": list(tool.names) or None,
        "free_text": tool.free_text,
    }
    return {key: value for key, value in marks.items() if value is not None}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _from_dict(data: dict[str, Any], position: int) -> ToolDefinition:
    marks = [data.pop(MARKS_KEY, None)]
    kind = data.pop("type", "function")
    inner = data.pop("function", None)
    if isinstance(inner, dict):
        function, around = cast(dict[str, Any], inner), data
        marks.insert(0, function.pop(MARKS_KEY, None))
    elif inner is None and "name" in data:
        function, around = data, {}
    else:
        raise UsageError(
            f"Tool at position {position} has no name: {clip(repr({'type': kind, 'function': inner, **data}))}. Give "
            f"it as {{'type': 'function', 'function': {{'name': ..., 'description': ..., 'parameters': {{...}}}}}}."
        )
    notes: list[str] = []
    tool = _tool(function, position, notes)
    marks.insert(0, tool.parameters.pop(MARKS_KEY, None))
    for entry in marks:
        tool = tool if entry is None else apply_marks(tool, entry)
    return _definition(function, around, tool, notes)


def _tool(function: dict[str, Any], position: int, notes: list[str]) -> Tool:
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"Tool at position {position} has no name ({clip(repr(name))}); give it one under 'name'.")
    schemas = [function.pop(key) if key != "parameters" else function[key] for key in SCHEMA_KEYS if key in function]
    empty: Any = {"type": "object", "properties": {}}
    parameters = next((schema for schema in schemas if schema is not None), empty)
    function["parameters"] = parameters
    description, strict = function.get("description"), function.get("strict")
    if not isinstance(description, str | None):
        notes.append(f"its description is {clip(repr(description))}; expected a string")
        description = None
    if not isinstance(strict, bool | None):
        notes.append(f"'strict' is {clip(repr(strict))}; expected true or false")
    return Tool(name, description or "", _parameters(parameters, notes), strict=strict is True)


def _parameters(given: Any, notes: list[str]) -> Schema:
    """Return the schema of a tool's arguments. Arguments are always an object, so any other `type` is removed."""
    if not is_object(given):
        notes.append(
            f"its parameters are {clip(repr(given))}; expected a schema such as "
            "{'type': 'object', 'properties': {}}"
        )
        return {}
    kind = given.get("type", "object")
    if kind == "object" or (is_array(kind) and "object" in kind):
        return given
    from promptools.schema.documents import read_type

    read = read_type(kind)
    if read == "object" or (is_array(read) and "object" in read):
        return given
    notes.append(f"its parameters are of type {clip(repr(kind))} at '/type'; arguments are always an object")
    return {key: value for key, value in given.items() if key != "type"}


def _definition(function: dict[str, Any], around: dict[str, Any], tool: Tool, notes: list[str]) -> ToolDefinition:
    if tool.strict:
        function.setdefault("strict", True)
    return ToolDefinition(tool, {"type": "function", "function": function, **around}, notes)


def _from_python(given: Callable[..., Any], position: int) -> ToolDefinition:
    name = getattr(given, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(
            f"Tool at position {position} has no name: {clip(repr(given))}. Give a function defined with 'def'."
        )
    pydantic: Any = import_module("pydantic")  # a heavy import, only for callers that use it
    if isinstance(given, type) and not issubclass(given, pydantic.BaseModel):
        raise UsageError(
            f"Tool {name!r} is a class but not a pydantic model; give a model, a typed function or a dict."
        )
    try:
        parameters: Schema = pydantic.TypeAdapter(given).json_schema()
    except (pydantic.PydanticUserError, NameError, TypeError) as error:
        raise UsageError(f"Tool {name!r}: no JSON Schema can be made of its signature: {clip(str(error))}") from error
    parameters.pop("title", None)
    parameters.pop("description", None)
    properties = parameters.get("properties", {})
    description, descriptions = parse_docstring(inspect.cleandoc(given.__doc__ or ""), properties)
    for key, schema in properties.items():
        schema.pop("title", None)
        if key in descriptions:
            schema.setdefault("description", descriptions[key])  # a description in the annotation wins
    if parameters.get("type", "object") != "object":
        raise UsageError(
            f"Tool {name!r}: its parameters are of type {parameters['type']!r}; arguments are always an object, so "
            f"let each parameter have a name."
        )
    function: dict[str, Any] = {"name": name, "description": description, "parameters": parameters}
    marks = parameters.pop(MARKS_KEY, None)
    tool = Tool(name, description, parameters)
    return _definition(function, {}, tool if marks is None else apply_marks(tool, marks), [])
