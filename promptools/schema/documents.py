"""Read JSON Schema documents: their types, subschemas and draft, and whether their keywords are well formed.

This module does not depend on tools or calls. Arguments are validated against draft 2020-12. `normalize` rewrites a
schema of an older draft if it would mean something else in draft 2020-12, and `graph` links the subschemas.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from promptools.types import Schema


# The types of JSON: the name of a value's type, and the meaning of a `type` with names from another language.


_NAMES_BY_CLASS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
}
JSON_TYPES: Final = frozenset((*_NAMES_BY_CLASS.values(), "null"))

_NAMES = {
    "string": "char character str string text",
    "number": "decimal double float float32 float64 number numeric real",
    "integer": "bigint byte int int16 int32 int64 integer long short uint uint32 uint64",
    "boolean": "bool boolean",
    "object": "dict dictionary hashmap hashtable map mapping object",
    "array": "array arraylist list sequence set tuple vector",
    "null": "nil none nonetype null",
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_TYPE_ARGUMENTS = lazy_pattern(r"[\[<(,].*", re.DOTALL)


def type_name(value: object) -> str:
    """Return the name of a JSON value's type."""
    return _NAMES_BY_CLASS.get(type(value), "null")


def read_type(given: Any) -> str | list[str] | None:
    """Return the JSON type or types that a value of the keyword `type` means; None if it means any type, or is unknown.

    Values such as `float`, `String`, `List[int]`, `string[]`, `int | None`, `str, optional`, and lists of such values
    are understood.
    """
    names: list[Any] = given if is_array(given) else [given]
    if isinstance(given, str) and "[" not in given and "<" not in given:
        names = given.split("|")
    kinds = ["null" if name is None and is_array(given) else _kind(name) for name in names]
    known = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    if not known or None in kinds:
        return None
    return known if len(known) > 1 or is_array(given) else known[0]


def _kind(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    plain = name.strip().lower()
    return "array" if plain.endswith("[]") else _TYPES.get(_TYPE_ARGUMENTS.sub("", plain).strip())


# Where a schema holds other schemas: the keywords for this, the direct subschemas, and JSON pointers to them.


SINGLE_SCHEMA = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
SINGLE_SCHEMA_RARE = ("contentSchema", "unevaluatedItems", "unevaluatedProperties")
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
REFERENCES = ("$ref", "$dynamicRef")
_SINGLE = (*SINGLE_SCHEMA, *SINGLE_SCHEMA_RARE)
_APPLICATORS = frozenset((*_SINGLE, *SCHEMA_LISTS, *SCHEMA_MAPS))
IN_PLACE = frozenset(("allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then", *REFERENCES))
"""Keywords whose subschemas apply to the same value as the schema.

A cycle of references through only these keywords would make validation endless.
"""


def import_library(name: str) -> Any:
    """Import jsonschema or a related library on first use, because it is slow to import and only tools need it."""
    return import_module(name)


def pointer(path: Sequence[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path])


def resolve_pointer(root: Any, reference: str) -> Any:
    """Return the target of a reference such as `#/$defs/a`; None if it has no target, or is not of this form."""
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


# The drafts of JSON Schema: which draft a schema declares, and which keywords the older drafts lack.
#
# Arguments are validated by draft 2020-12. A schema of an older draft is rewritten to that draft
# (`promptools.schema.normalize`) unless it means the same in both.


Draft = Literal[4, 6, 7, 2019, 2020]

URIS: dict[Draft, str] = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
LATEST: Draft = 2020

_BY_URI: dict[str, Draft] = {uri.rstrip("#").partition("://")[2]: draft for draft, uri in URIS.items()}
_INTRODUCED: dict[Draft, frozenset[str]] = {
    6: frozenset(("const", "contains", "propertyNames")),
    7: frozenset(("else", "if", "then")),
    2019: frozenset(
        (
            "$recursiveRef",
            "dependentRequired",
            "dependentSchemas",
            "maxContains",
            "minContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        )
    ),
    2020: frozenset(("$dynamicRef", "prefixItems")),
}
UNKNOWN_KEYWORDS: dict[Draft, frozenset[str]] = {
    draft: frozenset[str]().union(*(keywords for since, keywords in _INTRODUCED.items() if since > draft))
    for draft in URIS
}
"""For each draft, the keywords that it ignores, because a later draft introduced them."""
REF_SIBLINGS = frozenset(
    ("$comment", "$defs", "$ref", "$schema", "default", "definitions", "deprecated", "description", "examples", "title")
)
"""Annotations and definitions, which may stand beside a `$ref`. Up to draft 7, other keywords beside it are ignored."""


def draft_of(schema: Any) -> Draft:
    """Return the draft that a schema declares under `$schema`; the latest if it declares no draft or an unknown one."""
    uri = schema.get("$schema") if is_object(schema) else None
    if not isinstance(uri, str):
        return LATEST
    return _BY_URI.get(uri.strip().rstrip("#/").partition("://")[2], LATEST)


def same_in_latest(node: Schema, draft: Draft) -> bool:
    """Return whether a schema's own keywords mean the same in `draft` as in the latest draft.

    The keywords must be well formed in the latest draft.
    """
    if draft == LATEST:
        return True
    if not UNKNOWN_KEYWORDS[draft].isdisjoint(node) or (draft == 4 and "id" in node):
        return False
    return draft == 2019 or "$ref" not in node or REF_SIBLINGS.issuperset(node)


# A fast check that the keywords of a schema are well formed by the meta-schema of draft 2020-12.
#
# True is certain. False means that jsonschema must decide, since a keyword is malformed or rare.


def well_formed(node: Schema) -> bool:
    """Return whether jsonschema would certainly accept a schema's own keywords; subschemas are not examined."""
    for keyword, value in node.items():
        test = VALUE_TESTS.get(keyword)
        if test is not None and not test(value):
            return False
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(value: Any) -> bool:
    return is_array(value) and all(map(_text, value)) and len(set(value)) == len(value)


def _type(value: Any) -> bool:
    if isinstance(value, str):
        return value in JSON_TYPES
    return bool(value) and _names(value) and JSON_TYPES.issuperset(value)


def _schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _named_schemas(value: Any) -> bool:
    return is_object(value) and all(map(_schema, value.values()))


def _rare(_: Any) -> bool:
    return False


_KEYWORDS_BY_TEST: Mapping[Callable[[Any], bool], str] = {
    _text: "$comment $ref $schema contentEncoding contentMediaType description format pattern title",
    lambda value: isinstance(value, bool): "deprecated readOnly uniqueItems writeOnly",
    _number: "exclusiveMaximum exclusiveMinimum maximum minimum",
    lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ): "maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties",
    is_array: "examples",
    # an empty list is well formed, but would fit no value
    lambda value: is_array(value) and bool(value): "enum",
    _names: "required",
    lambda value: is_object(value) and all(map(_names, value.values())): "dependentRequired",
    _type: "type",
    _schema: "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties",
    lambda value: is_array(value) and bool(value) and all(map(_schema, value)): "allOf anyOf oneOf prefixItems",
    _named_schemas: "$defs definitions dependentSchemas properties",
    lambda value: _named_schemas(value) and all(map(_text, value)): "patternProperties",
    lambda value: _number(value) and value > 0: "multipleOf",
    _rare: "$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $vocabulary dependencies",
}
VALUE_TESTS = {word: test for test, words in _KEYWORDS_BY_TEST.items() for word in words.split()}
RARE_KEYWORDS = frozenset(_KEYWORDS_BY_TEST[_rare].split())
"""Rare keywords. For a schema that has one, `well_formed` returns False, and the schema is left to jsonschema."""
