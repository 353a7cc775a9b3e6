"""The types of a schema under the names that other languages have for them."""

from __future__ import annotations

import re
from typing import Any

from promptools.schema.shapes import is_array

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
_REST = re.compile(r"[\[<(,].*", re.DOTALL)


def read_type(given: Any) -> str | list[str] | None:
    """Return what is meant by the value of `type`; None where it cannot be told, or means anything.

    So are read `float`, `String`, `List[int]`, `string[]`, `int | None` and `str, optional`, and lists of them.
    """
    names: list[Any] = given if is_array(given) else _alternatives(given)
    kinds = ["null" if name is None and is_array(given) else _kind(name) for name in names]
    known = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    if not known or None in kinds:
        return None
    return known if len(known) > 1 or is_array(given) else known[0]


def _alternatives(given: Any) -> list[Any]:
    return given.split("|") if isinstance(given, str) and "[" not in given and "<" not in given else [given]


def _kind(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    plain = name.strip().lower()
    return "array" if plain.endswith("[]") else _TYPES.get(_REST.sub("", plain).strip())
