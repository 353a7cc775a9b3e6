"""Parquet files: rows in and out, a part of a row group at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import IO, Any

from promptools.batch.columns.arrow_package import arrow
from promptools.batch.columns.input_columns import InputColumns, RowReader
from promptools.batch.files.batch_files import check_name, file_errors, is_parquet, open_input, read_lines, write_file
from promptools.errors import UsageError, without_credentials

READ_BYTES = 4 * 2**20
"""Bytes of rows that are decoded at once, by the average of their row group."""
MAX_ROWS = 4096
"""Maximum number of rows that are decoded at once."""
BUFFER_BYTES = 2**20
"""Bytes of each column that are read at once from the file."""
GROUP_BYTES = 16 * 2**20
"""Bytes of rows after which a row group is written."""
CONVERTED_ROWS = 256
"""Rows that are converted for writing at once. Until then they are Python objects, which are far larger."""


def read_input(path: str, columns: InputColumns) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an input that are not blank, or the rows of a Parquet file as JSON, with numbers from 1.

    Raises `UsageError` if it cannot be read, lacks a column, or has one of a wrong type.
    """
    return _read_rows(path, columns) if is_parquet(path) else read_lines(path)


def read_column(path: str, name: str) -> Iterator[Any]:
    """Yield the values of one column of a Parquet file."""
    with file_errors(path, "read"), closing(open_input(path)) as file:
        parquet = _open(file)
        if name not in parquet.schema_arrow.names:
            raise UsageError(f"cannot read {without_credentials(path)!r}: there is no column {name!r}")
        for batch in parquet.iter_batches(MAX_ROWS, columns=[name]):
            yield from batch.column(0).to_pylist()


def write_rows(path: str, rows: Iterable[Mapping[str, Any]], schema: Any) -> None:
    """Write a Parquet file under another name, and rename it when it is complete.

    Raises `PromptoolsError` if it cannot be written.
    """

    def write(file: IO[bytes]) -> None:
        with arrow("pyarrow.parquet").ParquetWriter(file, schema, compression="zstd") as writer:
            for group in _row_groups(rows, schema):
                writer.write_table(group)

    check_name(path)
    write_file(path, write)


def _read_rows(path: str, columns: InputColumns) -> Iterator[tuple[int, bytes]]:
    number = 0
    with file_errors(path, "read"), closing(open_input(path)) as file:
        parquet = _open(file)
        try:
            reader = RowReader(parquet.schema_arrow, columns)
        except UsageError as error:
            raise UsageError(f"cannot read {without_credentials(path)!r}: {error}") from None
        for group in range(parquet.num_row_groups):
            size = _batch_size(parquet.metadata.row_group(group))
            for batch in parquet.iter_batches(size, row_groups=[group], columns=reader.names, use_threads=False):
                for row in reader.read(batch):
                    number += 1
                    yield number, json.dumps(row).encode()


def _open(file: IO[bytes]) -> Any:
    arrow_error = arrow().ArrowInvalid
    try:
        # buffered: without it, whole chunks of columns are read at once, however large their row groups are
        return arrow("pyarrow.parquet").ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except arrow_error as error:
        raise ValueError(f"not a Parquet file, or a damaged one: {error}") from error


def _batch_size(group: Any) -> int:
    """Return how many rows of a row group are decoded at once."""
    average = group.total_byte_size / max(1, group.num_rows)
    return max(1, min(MAX_ROWS, int(READ_BYTES / max(1.0, average))))


def _row_groups(rows: Iterable[Mapping[str, Any]], schema: Any) -> Iterator[Any]:
    """Yield tables of at least `GROUP_BYTES`, except for the last one."""
    pa = arrow()
    rest = iter(rows)
    ready: list[Any] = []
    size = 0
    while part := list(islice(rest, CONVERTED_ROWS)):
        batch = pa.RecordBatch.from_pylist(part, schema)
        ready.append(batch)
        size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(ready, schema)
            ready, size = [], 0
    if ready:
        yield pa.Table.from_batches(ready, schema)
