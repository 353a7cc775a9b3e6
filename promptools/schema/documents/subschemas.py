"""Where a schema holds other schemas: the keywords that do, its direct subschemas, and JSON pointers to them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from promptools.schema.documents.json_guards import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptools.types import Schema

SINGLE_SCHEMA = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
SINGLE_SCHEMA_RARE = ("contentSchema", "unevaluatedItems", "unevaluatedProperties")
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
REFERENCES = ("$ref", "$dynamicRef")
_SINGLE = (*SINGLE_SCHEMA, *SINGLE_SCHEMA_RARE)
_APPLICATORS = frozenset((*_SINGLE, *SCHEMA_LISTS, *SCHEMA_MAPS))
IN_PLACE = frozenset(("allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then", *REFERENCES))
"""Keywords whose subschemas apply to the same value: a cycle of these alone never ends."""


def import_library(name: str) -> Any:
    """Import a library on first use: only callers with tools wait for jsonschema, which has no usable types anyway."""
    return import_module(name)


def pointer(path: Sequence[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path])


def resolve_pointer(root: Any, reference: str) -> Any:
    """Return the target of a reference such as `#/$defs/a`; None where there is none, and for any other form."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    node = root
    for step in unquote(reference[1:]).split("/")[1:]:
        if is_object(node):
            node = node.get(step.replace("~1", "/").replace("~0", "~"))
        elif is_array(node) and step.isdecimal() and step.isascii():
            node = node[int(step)] if len(step) < 9 and int(step) < len(node) else None
        else:
            return None
    return node


def children(node: Schema) -> Iterator[tuple[str, str, Any]]:
    """Yield `(keyword, pointer from the node, subschema)` for each direct subschema of a node."""
    if _APPLICATORS.isdisjoint(node):
        return
    for keyword in _SINGLE:
        if keyword in node:
            yield keyword, f"/{keyword}", node[keyword]
    for keyword in SCHEMA_LISTS:
        if keyword in node:
            for index, sub in enumerate(node[keyword]):
                yield keyword, f"/{keyword}/{index}", sub
    for keyword in SCHEMA_MAPS:
        if keyword in node:
            for name, sub in node[keyword].items():
                yield keyword, pointer([keyword, name]), sub


def subschemas_under(node: Schema, keyword: str) -> list[Any]:
    """Return the subschemas under a keyword of a node."""
    value = node[keyword]
    return [*value.values()] if keyword in SCHEMA_MAPS else value if keyword in SCHEMA_LISTS else [value]
