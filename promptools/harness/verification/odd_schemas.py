"""Tools with odd schemas, as apps, frameworks and converters write them, and what those schemas mean.

The meaning is written by hand in JSON Schema 2020-12. It is not derived by `promptools.schema`, because that package is
under test too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from promptools.json_values import is_object

SEED = 20261128
SETS = 7
"""Number of tools for each oddity (kind of odd schema). Each tool has a set of parameters that was chosen at random."""


@dataclass(frozen=True, slots=True)
class OddTool:
    """A tool with an odd schema, and arguments that conform to the schema."""

    oddity: str
    name: str
    parameters: Any
    """The schema as it is sent."""
    meant: dict[str, Any]
    """What the schema means, written in JSON Schema 2020-12."""
    values: dict[str, Any]


Fields: TypeAlias = dict[str, Any]
"""The schemas of parameters, by name."""
Shape: TypeAlias = tuple[Any, dict[str, Any], dict[str, Any]]
"""A schema as it is sent, what it means in JSON Schema 2020-12, and arguments that conform to it."""


def _record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


_TEXT, _WHOLE, _NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
_FIELDS: dict[str, tuple[Any, Any]] = {
    "title": (_TEXT, "Blue Heron"),
    "count": (_WHOLE, 7),
    "price": ({"type": "number"}, 12.5),
    "urgent": ({"type": "boolean"}, True),
    "tags": ({"type": "array", "items": _TEXT}, ["calm", "cheap"]),
    "size": ({"type": "string", "enum": ["small", "large"]}, "large"),
    "address": (_record(street=_TEXT, number=_WHOLE), {"street": "Elm Street", "number": 12}),
    "lines": ({"type": "array", "items": _record(item=_TEXT, amount=_WHOLE)}, [{"item": "pear", "amount": 3}]),
    "day": ({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}, "2026-03-14"),
    "level": ({"type": "integer", "minimum": 1, "maximum": 5}, 4),
}
_VERBS = (
    "store",
    "update",
    "review",
    "archive",
    "submit",
    "print",
    "check",
    "approve",
    "export",
    "copy",
    "plan",
    "merge",
)
_NOUNS = (
    *("trip", "order", "invoice", "ticket", "parcel", "lease", "recipe", "budget", "survey", "permit"),
    *("report", "badge", "claim", "quote", "visit", "shift", "lesson", "sample", "policy", "asset"),
)


def odd_tools() -> tuple[OddTool, ...]:
    """Return `SETS` tools for each oddity (kind of odd schema), in a shuffled order that is always the same."""
    rng = random.Random(SEED)  # noqa: S311 - a table, and no secret
    names = [f"{verb}_{noun}" for verb in _VERBS for noun in _NOUNS]
    made: list[OddTool] = []
    for oddity, shape in ODDITIES.items():
        for _ in range(SETS):
            chosen = sorted(rng.sample(sorted(_FIELDS), rng.randint(2, 4)))
            fields = {name: _FIELDS[name][0] for name in chosen}
            values = {name: _FIELDS[name][1] for name in chosen}
            sent, meant, wanted = shape(fields, values)
            made.append(OddTool(oddity, names[len(made)], sent, meant, wanted))
    rng.shuffle(made)
    return tuple(made)


# Shapes of schemas: a function makes the schema that is sent, its meaning and fitting arguments from simple fields.


def _map_schemas(change: Callable[[dict[str, Any]], Any], schema: Any) -> Any:
    """Apply `change` to a schema and to each schema inside it, the innermost first; return the result."""
    if not is_object(schema):
        return schema
    inner = dict(schema)
    if is_object(inner.get("properties")):
        inner["properties"] = {name: _map_schemas(change, each) for name, each in inner["properties"].items()}
    if "items" in inner:
        inner["items"] = _map_schemas(change, inner["items"])
    return change(inner)


def _named_types(names: Mapping[str, str]) -> Callable[[Fields, dict[str, Any]], Shape]:
    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        meant = _record(**fields)
        return _map_schemas(lambda part: {**part, "type": names.get(part["type"], part["type"])}, meant), meant, values

    return shape


def _each_field(
    change: Callable[[str, Any], Any], *, nullable: bool = False
) -> Callable[[Fields, dict[str, Any]], Shape]:
    """Return a function that builds a tool's schema by applying `change` to the schema of each parameter.

    If `nullable` is true, the changed schema means that a parameter may also be null.
    """

    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        sent = _record(**{name: change(name, schema) for name, schema in fields.items()})
        meant = {name: {"anyOf": [schema, _NULL]} if nullable else schema for name, schema in fields.items()}
        return sent, _record(**meant), values

    return shape


def _renamed(rename: Callable[[int, str], str]) -> Callable[[Fields, dict[str, Any]], Shape]:
    """Return a function that builds a tool's schema with all parameters renamed."""

    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        names = {name: rename(index, name) for index, name in enumerate(fields)}
        schema = _record(**{names[name]: each for name, each in fields.items()})
        return schema, schema, {names[name]: value for name, value in values.items()}

    return shape


def _with_field(schema: Any, value: Any, meant: Any = None) -> Callable[[Fields, dict[str, Any]], Shape]:
    """Return a function that builds a tool's schema with one more parameter, `extra`.

    `meant` is the meaning of the schema of `extra`, if that is different from the schema itself.
    """

    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        wanted = {**values, "extra": value}
        clean = _record(**fields, extra=schema if meant is None else meant)
        return _record(**fields, extra=schema), clean, wanted

    return shape


def _plain(fields: Fields, values: dict[str, Any]) -> Shape:
    return _record(**fields), _record(**fields), values


def _required_inside(fields: Fields, values: dict[str, Any]) -> Shape:
    """Mark parameters as required as in JSON Schema draft 3, which uses a key in the schema of each parameter."""
    marked = {name: each if "required" in each else {**each, "required": True} for name, each in fields.items()}
    required = [name for name, each in fields.items() if "required" not in each]
    properties = {"type": "object", "properties": fields}
    return {**properties, "properties": marked}, {**properties, "required": required}, values


def _referenced(key: str, draft: str | None) -> Callable[[Fields, dict[str, Any]], Shape]:
    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        sent = {
            **({"$schema": draft} if draft else {}),
            **_record(**{name: {"$ref": f"#/{key}/{name}"} for name in fields}),
            key: dict(fields),
        }
        return sent, _record(**fields), values

    return shape


def _without_type(fields: Fields, values: dict[str, Any]) -> Shape:
    meant = _record(**fields)
    return {key: value for key, value in meant.items() if key != "type"}, meant, values


def _nothing_required(required: Any) -> Callable[[Fields, dict[str, Any]], Shape]:
    def shape(fields: Fields, values: dict[str, Any]) -> Shape:
        meant = {"type": "object", "properties": fields}
        return {**meant, "required": required}, meant, values

    return shape


def _many(fields: Fields, values: dict[str, Any]) -> Shape:
    others = {f"option_{number:02}": {"type": "string", "description": f"Option {number}."} for number in range(20)}
    schema = {**_record(**fields), "properties": {**fields, **others}}
    return schema, schema, values


def _deep(fields: Fields, values: dict[str, Any]) -> Shape:
    schema, wanted = _record(**fields), dict(values)
    for name in ("inner", "part", "section", "page", "book"):
        schema, wanted = _record(**{name: schema}), {name: wanted}
    return schema, schema, wanted


def _closed(fields: Fields, values: dict[str, Any]) -> Shape:
    def close(part: dict[str, Any]) -> dict[str, Any]:
        return {**part, "additionalProperties": False} if part["type"] == "object" else part

    schema = _map_schemas(close, _record(**fields))
    return schema, schema, values


def _recursive(fields: Fields, values: dict[str, Any]) -> Shape:
    node = {
        "type": "object",
        "properties": {"label": _TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["label"],
    }
    schema = {**_record(**fields, tree={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
    return schema, schema, {**values, "tree": {"label": "root", "children": [{"label": "leaf"}]}}


_PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_KEYWORDS = ("type", "properties", "required", "items", "name", "arguments")
_SHAPES = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "radius": _WHOLE},
            "required": ["kind", "radius"],
        },
        {"type": "object", "properties": {"kind": {"const": "line"}, "length": _WHOLE}, "required": ["kind", "length"]},
    ],
    "discriminator": {"propertyName": "kind"},
}
_LONG = " ".join(f"Sentence {number} says no more than the name of the parameter." for number in range(10))

ODDITIES: dict[str, Callable[[Fields, dict[str, Any]], Shape]] = {
    "a plain schema": _plain,
    "types of Python": _named_types(_PYTHON),
    "types of Java": _named_types({"integer": "long", "number": "double"}),
    "types in capitals": _named_types({name: name.upper() for name in _PYTHON}),
    "required on each parameter (draft 3)": _required_inside,
    "references to definitions (draft 7)": _referenced("definitions", "http://json-schema.org/draft-07/schema#"),
    "references to $defs": _referenced("$defs", None),
    "no type at the top": _without_type,
    "a type or null": _each_field(lambda _, schema: {**schema, "type": [schema["type"], "null"]}, nullable=True),
    "anyOf with null, as Pydantic": _each_field(
        lambda name, schema: {"anyOf": [schema, {"type": "null"}], "default": None, "title": name.title()},
        nullable=True,
    ),
    "nullable, as OpenAPI": _each_field(lambda _, schema: {**schema, "nullable": True}, nullable=True),
    "descriptions that are null": _each_field(lambda _, schema: {**schema, "description": None, "title": None}),
    "required is null": _nothing_required(None),
    "required is empty": _nothing_required([]),
    "keys of vendors": _each_field(lambda name, schema: {**schema, "x-order": 3, "example": name, "readOnly": False}),
    "allOf around each parameter": _each_field(lambda name, schema: {"allOf": [schema], "description": f"The {name}."}),
    "names with a dash": _renamed(lambda _, name: f"{name}-value"),
    "names with a dot": _renamed(lambda _, name: f"item.{name}"),
    "names with a space": _renamed(lambda _, name: f"The {name}"),
    "names that are not ASCII": _renamed(lambda _, name: f"{name}_größe"),
    "names that are keywords": _renamed(lambda index, _: _KEYWORDS[index]),
    "names with a dollar sign": _renamed(lambda _, name: f"${name}"),
    "twenty more parameters": _many,
    "five levels": _deep,
    "closed objects": _closed,
    "long descriptions": _each_field(lambda _, schema: {**schema, "description": _LONG}),
    "an enum of several types": _with_field({"enum": [1, "one", None, False]}, "one"),
    "a schema that is true": _with_field(True, "anything"),
    "a constant": _with_field({"const": "v2"}, "v2"),
    "a map": _with_field({"type": "object", "additionalProperties": _WHOLE}, {"north": 3, "south": 4}),
    "a tree that refers to itself": _recursive,
    "oneOf with a discriminator": _with_field(_SHAPES, {"kind": "circle", "radius": 5}),
    "an exclusive minimum (draft 4)": _with_field(
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 8, {"type": "integer", "exclusiveMinimum": 0}
    ),
}
