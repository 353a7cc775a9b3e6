"""The columns of an input: their types, and their values as JSON.

A null means that there is nothing, so it is left out: Arrow gives each struct of a column the fields of all others. A
list and a map have the nulls that were written. Values that are JSON as a string are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from promptools.batch.columns.arrow_package import arrow
from promptools.errors import UsageError

Kind: TypeAlias = Literal["string", "boolean", "key", "object", "array"]
"""A `key` is a string or an integer; an `object` or `array` is nested, or a string of JSON."""
Convert: TypeAlias = Callable[[Any], Any]
"""Converts a value that is not null, as pyarrow returns it, to JSON."""

EXPECTED: Mapping[Kind, str] = {
    "string": "a string",
    "boolean": "a boolean",
    "key": "a string or an integer",
    "object": "a struct, a map or a string of JSON",
    "array": "a list of structs or a string of JSON",
}


@dataclass(frozen=True, slots=True)
class InputColumns:
    """The columns that are read of an input; all others are ignored."""

    kinds: Mapping[str, Kind]
    required: frozenset[str]


REQUEST_COLUMNS = InputColumns(
    {"custom_id": "string", "method": "string", "url": "string", "body": "object"},
    frozenset({"custom_id", "url", "body"}),
)
REPLY_COLUMNS = InputColumns(
    {
        "text": "string",
        "tools": "array",
        "dialect": "string",
        "finish_reason": "string",
        "in_reasoning": "boolean",
        "id": "key",
        "custom_id": "key",
    },
    frozenset({"text"}),
)


class RowReader:
    """Converts the rows of tables of one Arrow schema.

    Raises `UsageError` if a column is missing or has a wrong type.
    """

    def __init__(self, schema: Any, columns: InputColumns) -> None:
        available = list(schema.names)
        if missing := sorted(columns.required - set(available)):
            raise UsageError(f"there is no column {missing[0]!r}; the columns are {', '.join(available) or 'none'}")
        self.names = [name for name in columns.kinds if name in available]
        self._convert: dict[str, Convert] = {}
        for name in self.names:
            if available.count(name) > 1:
                raise UsageError(f"there are {available.count(name)} columns {name!r}; rename or remove one")
            self._convert[name] = _column_conversion(name, schema.field(name).type, columns.kinds[name])

    def read(self, batch: Any) -> list[dict[str, Any]]:
        """Return the rows of a record batch or table, without what is null."""
        convert = self._convert
        values = [(name, convert[name], batch.column(name).to_pylist()) for name in self.names]
        return [
            {name: convert(column[row]) for name, convert, column in values if column[row] is not None}
            for row in range(batch.num_rows)
        ]


def _column_conversion(name: str, kind: Any, expected: Kind) -> Convert:
    types: Any = arrow().types
    plain = _storage(kind)
    if types.is_null(plain):
        return _same
    if _is_text(plain):
        allowed = expected != "boolean"
    else:
        allowed = {
            "string": False,
            "boolean": types.is_boolean(plain),
            "key": types.is_integer(plain),
            "object": types.is_struct(plain) or types.is_map(plain),
            "array": _is_list(plain),
        }[expected]
    if not allowed:
        raise UsageError(f"the column {name!r} is {kind}; it must be {EXPECTED[expected]}")
    return _conversion(plain, name)


def _conversion(kind: Any, path: str) -> Convert:
    """Return the conversion of a type to JSON; `path` names it in errors."""
    types: Any = arrow().types
    plain = _storage(kind)
    if _is_text(plain) or any(
        test(plain) for test in (types.is_null, types.is_boolean, types.is_integer, types.is_floating)
    ):
        return _same
    if types.is_struct(plain):
        fields = [plain.field(index) for index in range(plain.num_fields)]
        converted = {field.name: _conversion(field.type, f"{path}.{field.name}") for field in fields}
        return lambda value: {key: converted[key](item) for key, item in value.items() if item is not None}
    if types.is_map(plain) and _is_text(_storage(plain.key_type)):
        item_of = _conversion(plain.item_type, f"{path}.*")
        return lambda value: {key: None if item is None else item_of(item) for key, item in value}
    if _is_list(plain):
        element_of = _conversion(plain.value_type, f"{path}[]")
        return lambda value: [None if item is None else element_of(item) for item in value]
    raise UsageError(f"the column {path!r} is {kind}, which JSON does not have; cast it, or write JSON as a string")


def _storage(kind: Any) -> Any:
    """Return the type of the values: without an extension, as of JSON, and without a dictionary."""
    if isinstance(kind, arrow().BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if arrow().types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    types: Any = arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: Any) -> bool:
    types: Any = arrow().types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(test(kind) for test in tests)


def _same(value: Any) -> Any:
    return value
