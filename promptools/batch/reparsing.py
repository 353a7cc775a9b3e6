"""Read calls, content and reasoning from logged replies: in worker processes, or in columns of a data frame."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, cast

from promptools.batch.columns import (
    KEYS,
    REPLY_COLUMNS,
    InputColumns,
    RowReader,
    arrow,
    encode_row,
    failed_row,
    key_columns,
    reparsed_row,
    reparsed_schema,
)
from promptools.batch.files import read_input
from promptools.dialects import using_own
from promptools.dialects.own_dialects import GivenDialect, read_own
from promptools.dialects.table_file import DialectTable
from promptools.engine import parse
from promptools.errors import PromptoolsError, UsageError, clip, install_command
from promptools.json_values import is_object
from promptools.parsing.description import describe_reply
from promptools.schema import Tools
from promptools.types import Reply

CHUNK = 256
"""How many replies a worker process gets at a time."""
OPTIONS = ("dialect", "finish_reason", "in_reasoning")
"""Keys of a logged reply that are options of `parse`."""
INVALID = (PromptoolsError, ValueError, TypeError, RecursionError)
"""The exceptions that are raised for a reply that cannot be read."""


class ReparsedLine(NamedTuple):
    """The result for one line of a log."""

    text: bytes
    """A line of JSON with the parsed reply, or with an `error`.

    If `reparse_line` was called with `as_row`, the line is a row for a Parquet file, with all columns of
    `reparsed_schema`.
    """
    has_calls: bool = False
    failed: bool = False


def read_replies(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines or rows of a log as JSON, with their numbers; raise `UsageError` if the log is unreadable."""
    return read_input(path, REPLY_COLUMNS)


def reparse_line(text: bytes, line: int, *, as_row: bool = False) -> ReparsedLine:
    """Parse the logged reply in a line of JSON, and return the result as a line of JSON.

    `line` is the number of the line. If `as_row` is true, the result has the columns of a Parquet file. If the reply
    cannot be read, the result has an `error`.
    """
    row: Any = None
    try:
        row = json.loads(text)
        if not is_object(row):
            raise UsageError("the line is not a JSON object")
        reply = reparse_reply(row)
        if as_row:
            encoded = encode_row({**key_columns(row), **reparsed_row(reply)})
        else:
            encoded = json.dumps({**_keys(row), **describe_reply(reply)}).encode()
        return ReparsedLine(encoded + b"\n", has_calls=bool(reply.calls))
    except INVALID as error:
        copied = row if is_object(row) else {}
        failed = {"line": line, "message": clip(str(error))}
        result = {**key_columns(copied), **failed_row(line, error)} if as_row else {**_keys(copied), "error": failed}
        return ReparsedLine(json.dumps(result).encode() + b"\n", failed=True)


def reparse_reply(row: Mapping[str, Any]) -> Reply:
    """Parse the `text` of a logged reply; `tools` may be a list, or its JSON as a string. Raises one of `INVALID`."""
    text, tools = row.get("text"), row.get("tools")
    if not isinstance(text, str):
        raise UsageError(f"'text' is {clip(repr(text), 80)}; it must be the reply, a string")
    options: dict[str, Any] = {key: row[key] for key in OPTIONS if row.get(key) is not None}
    if tools is not None and not isinstance(tools, str):
        tools = json.dumps(tools)
    # an empty list differs from none: it means that no tool was offered
    return parse(text, None if tools is None else _prepare(tools), **options)


def reparse(
    lines: Iterable[tuple[int, bytes]], workers: int, *, as_row: bool = False, dialects: Sequence[DialectTable] = ()
) -> Iterator[ReparsedLine]:
    """Yield the result for each line, in order, using `workers` processes, or only this one if `workers` is 1.

    `dialects` are the app's own dialects. A few chunks for each process are read ahead. Raises `PromptoolsError` if a
    process ends, for example because memory ran out.
    """
    rest = iter(lines)
    if workers == 1:
        yield from reparse_lines(rest, as_row=as_row, dialects=dialects)
        return
    waiting: deque[Future[list[ReparsedLine]]] = deque()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            while chunk := list(islice(rest, CHUNK)):
                with _without_interrupts():
                    waiting.append(pool.submit(_reparse_chunk, chunk, as_row, dialects))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool:
            raise PromptoolsError("a process that reads replies has ended; run it again with fewer --workers") from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Generator[None, None, None]:
    """Block Ctrl-C in this process inside the `with` block, and for good in the processes that are started there.

    These processes need no Ctrl-C, since the parent ends them. If Ctrl-C ended one of them while it was starting, the
    pool would wait for it forever. The signal mask applies to this thread and to the started processes. Another thread,
    such as one of Arrow's, may still receive the signal, so the signal's handler is replaced too.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    in_main_thread = threading.current_thread() is threading.main_thread()  # no other thread has handlers
    held_back: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: held_back.append(number)) if in_main_thread else None
    resource_tracker.ensure_running()  # otherwise the first process would start the tracker, which unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if held_back:
            signal.raise_signal(signal.SIGINT)


def _end_with_parent() -> None:
    """End this process when its parent ends.

    A killed parent does not notify its children, so they would wait forever.
    """

    def watch() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _reparse_chunk(
    chunk: list[tuple[int, bytes]], as_row: bool, dialects: Sequence[DialectTable]
) -> list[ReparsedLine]:
    return list(reparse_lines(chunk, as_row=as_row, dialects=dialects))


def reparse_lines(
    lines: Iterable[tuple[int, bytes]], *, as_row: bool, dialects: Sequence[DialectTable]
) -> Iterator[ReparsedLine]:
    """Yield the result for each line. `dialects` are the app's own dialects."""
    own = read_own(dialects)
    for line, text in lines:
        with using_own(own):
            result = reparse_line(text, line, as_row=as_row)
        yield result


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in KEYS if key in row}


@lru_cache(maxsize=64)
def _prepare(text: str) -> Tools | None:
    """Parse tools from a JSON text; return None for `null`."""
    try:
        tools = json.loads(text)
    except ValueError as error:
        raise UsageError(f"'tools' is not valid JSON: {error}") from None
    return None if tools is None else Tools(tools)


# Replies in a column of a data frame: what is read from them becomes further columns.


OPTION_COLUMNS = InputColumns(
    {name: kind for name, kind in REPLY_COLUMNS.kinds.items() if name not in {"id", "custom_id"}},
    REPLY_COLUMNS.required,
)
"""The columns that decide how a reply is read.

Ids are left out, because they may have any type and are not converted.
"""


def reparse_columns(batch: Any, dialects: Iterable[GivenDialect] = ()) -> Any:
    """Parse the replies in a batch of columns; return an Arrow table with the columns of `reparsed_schema` added.

    `batch` is an Arrow table or record batch, or a mapping of names to lists or arrays, so this function can be passed
    to `map_batches` of Ray Data and to `map(batched=True)` of datasets. The column `text` is required; `tools`,
    `dialect`, `finish_reason` and `in_reasoning` are optional. Other columns are kept, unless a new column has the same
    name. A reply that cannot be read has an `error`, whose `line` is the number of its row in the batch, from 1.
    `dialects` are your own dialects. If the function runs on other machines, pass these dialects as the tables that
    `promptools.dialects.read_table` returns for their files.

    Raises `UsageError` if `text` is missing, a column has a wrong type, or pyarrow is not installed.
    """
    table = _as_table(batch)
    results = _reparse_table(table, dialects)
    for name, column in zip(results.schema.names, results.columns, strict=True):
        at = table.schema.get_field_index(name)
        table = table.append_column(name, column) if at < 0 else table.set_column(at, name, column)
    return table


def reparse_series(replies: Any, dialects: Iterable[GivenDialect] = ()) -> Any:
    """Read the replies in a Polars series of structs, and return a series of structs of type `reparsed_dtype()`.

    The structs have the fields that `reparse_columns` takes as columns, for example: `pl.struct("text",
    "tools").map_batches(reparse_series, return_dtype=reparsed_dtype())`.
    """
    polars = _polars()
    results = _reparse_table(replies.struct.unnest().to_arrow(), dialects)
    return polars.from_arrow(arrow().Table.from_batches([results])).to_struct(replies.name)


def reparsed_dtype() -> Any:
    """Return the Polars type for `reparsed_schema`: a struct."""
    polars = _polars()
    return polars.Struct(dict(polars.from_arrow(reparsed_schema().empty_table()).schema))


def _polars() -> Any:
    """Return Polars; raise `UsageError` if it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        raise UsageError(f"Polars is not installed: {install_command('polars')}") from None


def _reparse_table(table: Any, dialects: Iterable[GivenDialect]) -> Any:
    """Parse the replies in an Arrow table; return the results as a record batch."""
    rows: list[dict[str, Any]] = []
    with using_own(read_own(dialects)):
        for line, row in enumerate(RowReader(table.schema, OPTION_COLUMNS).read(table), 1):
            try:
                result = reparsed_row(reparse_reply(row))
                encode_row(result)  # without this check, one row that Arrow cannot hold would make all rows fail
                rows.append(result)
            except INVALID as error:
                rows.append(failed_row(line, error))
    return arrow().RecordBatch.from_pylist(rows, reparsed_schema())


def _as_table(batch: Any) -> Any:
    pa = arrow()
    batch = getattr(batch, "pa_table", batch)  # the Arrow table that a batch of datasets is made from
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, pa.Table):
        return batch
    if not isinstance(batch, Mapping):
        raise UsageError(f"a batch of columns is a table of Arrow or a mapping, not {type(batch).__name__}")
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
    """Return a value with all NumPy arrays in it converted to lists, including nested arrays."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [_as_python(value) for value in cast("list[Any]", values)]
    if is_object(values):
        return {key: _as_python(value) for key, value in values.items()}
    return values
