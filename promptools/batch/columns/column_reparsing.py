"""Replies in the columns of a data frame: what is read of them, in columns beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, cast

from promptools.batch.columns.arrow_package import arrow
from promptools.batch.columns.input_columns import REPLY_COLUMNS, InputColumns, RowReader
from promptools.batch.columns.result_schemas import encode_row, failed_row, reparsed_row, reparsed_schema
from promptools.batch.reparsing import INVALID, reparse_reply
from promptools.dialects import using_own
from promptools.dialects.own_dialects import GivenDialect, read_own
from promptools.errors import UsageError
from promptools.json_values import is_object

OPTION_COLUMNS = InputColumns(
    {name: kind for name, kind in REPLY_COLUMNS.kinds.items() if name not in {"id", "custom_id"}},
    REPLY_COLUMNS.required,
)
"""The columns that decide how a reply is read; ids of any type stay as they are."""


def reparse_columns(batch: Any, dialects: Iterable[GivenDialect] = ()) -> Any:
    """Read the replies of a batch of columns; return it as a table of Arrow with the columns of `reparsed_schema`, too.

    `batch` is a table or record batch of Arrow, or a mapping of names to lists or arrays, so that `map_batches` of Ray
    Data and `map(batched=True)` of datasets take this function as it is. Its columns are `text`, and if they are there
    `tools`, `dialect`, `finish_reason` and `in_reasoning`; others are left alone, except those of the same name as a
    new one, which are replaced. A reply that cannot be read has an `error`, whose `line` counts from 1 in the batch.
    `dialects` are those of your own: for other machines, what `promptools.dialects.read_table` returns of their files.

    Raises `UsageError` if `text` is missing, a column has a wrong type, or pyarrow is not installed.
    """
    table = _as_table(batch)
    results = _reparse_table(table, dialects)
    for name, column in zip(results.schema.names, results.columns, strict=True):
        at = table.schema.get_field_index(name)
        table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
    return table


def reparse_series(replies: Any, dialects: Iterable[GivenDialect] = ()) -> Any:
    """Read the replies of a Polars series of structs, and return a series of structs of type `reparsed_dtype()`.

    The fields are those that `reparse_columns` takes: `pl.struct("text", "tools").map_batches(reparse_series,
    return_dtype=reparsed_dtype())`.
    """
    polars = _polars()
    results = _reparse_table(replies.struct.unnest().to_arrow(), dialects)
    return polars.from_arrow(arrow().Table.from_batches([results])).to_struct(replies.name)


def reparsed_dtype() -> Any:
    """Return the type of `reparsed_schema` for Polars: a struct."""
    polars = _polars()
    return polars.Struct(dict(polars.from_arrow(reparsed_schema().empty_table()).schema))


def _polars() -> Any:
    """Return Polars; raise `UsageError` if it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        raise UsageError("Polars is not installed: pip install 'promptools-compat[polars]'") from None


def _reparse_table(table: Any, dialects: Iterable[GivenDialect]) -> Any:
    """Return a record batch of the results."""
    rows: list[dict[str, Any]] = []
    with using_own(read_own(dialects)):
        for line, row in enumerate(RowReader(table.schema, OPTION_COLUMNS).read(table), 1):
            try:
                result = reparsed_row(reparse_reply(row))
                encode_row(result)  # one row that Arrow cannot have would cost all of them
                rows.append(result)
            except INVALID as error:
                rows.append(failed_row(line, error))
    return arrow().RecordBatch.from_pylist(rows, reparsed_schema())


def _as_table(batch: Any) -> Any:
    pa = arrow()
    batch = getattr(batch, "pa_table", batch)  # what a batch of datasets is before it is converted to Python objects
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, pa.Table):
        return batch
    if not isinstance(batch, Mapping):
        raise UsageError(f"a batch of columns is a table of Arrow or a mapping, and no {type(batch).__name__}")
    columns = cast("Mapping[str, Any]", batch)
    return pa.table({name: _as_array(name, values) for name, values in columns.items()})


def _as_array(name: str, values: Any) -> Any:
    pa = arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(_as_python(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"the column {name!r} cannot be one of Arrow: {error}; write JSON as a string") from None


def _as_python(values: Any) -> Any:
    """Return arrays of numpy as lists, nested ones too."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [_as_python(value) for value in cast("list[Any]", values)]
    if is_object(values):
        return {key: _as_python(value) for key, value in values.items()}
    return values
