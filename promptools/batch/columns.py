"""Arrow columns in files and data frames: the columns of inputs, which become JSON, and the columns of results.

`InputColumns` names the columns that an input may have, and `RowReader` converts their values to JSON. For each
schema of results, a function builds the rows. pyarrow is loaded on first use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from promptools.errors import UsageError, clip, install_command
from promptools.types import Fix, Reply


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules; raise `UsageError` if pyarrow is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"columns and Parquet need pyarrow: {install_command('parquet')} ({error})") from None


# The columns of an input: their types, and their values as JSON.
#
# A null in a row or a struct is left out, because Arrow gives each struct of a column the fields of all others. A null
# in a list or a map is kept, because somebody wrote it. A value that is JSON as a string is not changed.


Kind: TypeAlias = Literal["string", "boolean", "key", "object", "array"]
"""The kind of the values in a column.

A `key` is a string or an integer. An `object` or `array` is a value of a nested type, or a string of JSON.
"""
Convert: TypeAlias = Callable[[Any], Any]
"""A function that converts a value to JSON. It gets the value as pyarrow returns it, and never a null."""

EXPECTED: Mapping[Kind, str] = {
    "string": "a string",
    "boolean": "a boolean",
    "key": "a string or an integer",
    "object": "a struct, a map or a string of JSON",
    "array": "a list of structs or a string of JSON",
}


@dataclass(frozen=True, slots=True)
class InputColumns:
    """The columns of an input that are read; all others are ignored."""

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
    """Converts rows of Arrow tables that have the schema `schema` to JSON objects.

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
        """Return the rows of a record batch or table, without null values."""
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
    """Return the function that converts values of an Arrow type to JSON; `path` names the column in errors."""
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
    """Return the type in which the values of an Arrow type are stored.

    That type is neither an extension type (such as the one for JSON) nor dictionary-encoded.
    """
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


# The columns of results: their schemas, and the functions that make rows.
#
# Values without a fixed shape, such as the arguments of a call and the body of a response, are JSON as strings. Lists
# are never null.


KEYS = ("id", "custom_id")
"""Names of the columns with a reply's ids, which are copied into the row of its result."""


def batch_schema() -> Any:
    """Return the Arrow schema of the results of a batch."""
    pa = arrow()
    response = [("status_code", pa.int32()), ("request_id", pa.string()), ("body", pa.string())]
    return pa.schema([
        ("id", pa.string()),
        ("custom_id", pa.string()),
        ("response", pa.struct(response)),
        ("error", pa.struct([("code", pa.string()), ("message", pa.string())])),
    ])  # fmt: skip


def reparsed_schema() -> Any:
    """Return the Arrow schema of parsed replies: the columns that `reparse_columns` adds."""
    pa = arrow()
    text = pa.string()
    fixes = pa.list_(pa.struct([("kind", text), ("detail", text), ("path", text)]))
    call = pa.struct([("name", text), ("arguments", text), ("dialect", text), ("fixes", fixes)])
    malformed = pa.struct([("name", text), ("reason", text), ("dialect", text)])
    return pa.schema([
        ("calls", pa.list_(call)),
        ("malformed", pa.list_(malformed)),
        ("content", text),
        ("reasoning", text),
        ("fixes", fixes),
        ("error", pa.struct([("line", pa.int64()), ("message", text)])),
    ])  # fmt: skip


def reparsed_file_schema() -> Any:
    """Return the Arrow schema of a file of reparsed replies: ids as strings, and the columns of `reparsed_schema`."""
    pa = arrow()
    return pa.schema([*((key, pa.string()) for key in KEYS), *reparsed_schema()])


def batch_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch result as a row with the columns of `batch_schema`."""
    response, error = result.get("response"), result.get("error")
    if response is not None:
        response = {**response, "body": json.dumps(response["body"])}
    if error is not None:
        error = {**error, "message": escape_surrogates(error["message"])}
    return {"id": result["id"], "custom_id": result["custom_id"], "response": response, "error": error}


def reparsed_row(reply: Reply) -> dict[str, Any]:
    """Return a parsed reply as a row with the columns of `reparsed_schema`."""
    return {
        "calls": [
            {
                "name": call.name,
                "arguments": escape_surrogates(call.arguments_json),  # these are valid escapes of JSON
                "dialect": call.dialect,
                "fixes": _fix_rows(call.fixes),
            }
            for call in reply.calls
        ],
        "malformed": [
            {"name": malformed.name, "reason": malformed.reason, "dialect": malformed.dialect}
            for malformed in reply.malformed
        ],
        "content": reply.content or None,
        "reasoning": reply.reasoning or None,
        "fixes": _fix_rows(reply.fixes),
        "error": None,
    }


def failed_row(line: int, error: Exception) -> dict[str, Any]:
    """Return the row for a reply that cannot be read, with the reason in its column `error`."""
    message = escape_surrogates(clip(str(error)))
    return {
        "calls": [],
        "malformed": [],
        "content": None,
        "reasoning": None,
        "fixes": [],
        "error": {"line": line, "message": message},
    }


def key_columns(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of a row as strings; an id that is not a string is converted to JSON."""
    values = {key: row[key] for key in KEYS if row.get(key) is not None}
    return {
        key: escape_surrogates(value) if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON; raise `UnicodeEncodeError` for text that UTF-8 cannot express.

    Arrow stores text as UTF-8.
    """
    return json.dumps(row, ensure_ascii=False).encode()


def escape_surrogates(text: str) -> str:
    r"""Return a text with its lone surrogates written as `\udxxx`, so that UTF-8 can express it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fix_rows(fixes: Iterable[Fix]) -> list[dict[str, Any]]:
    return [fix.to_dict() for fix in fixes]
