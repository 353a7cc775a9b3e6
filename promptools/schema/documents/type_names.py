"""The types of JSON: the name of a value's type, and what `type` means where it holds a name of another language."""

from __future__ import annotations

import re
from typing import Any, Final

from promptools.patterns import lazy_pattern
from promptools.schema.documents.json_guards import is_array

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
    """Return the JSON type or types that a value of `type` means; None where it is unknown, or means any type.

    It understands `float`, `String`, `List[int]`, `string[]`, `int | None`, `str, optional`, and lists of them.
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
