"""Logged replies to calls, content and reasoning: many at once, in processes of their own."""

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
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, NamedTuple

from promptools.batch.columns.input_columns import REPLY_COLUMNS
from promptools.batch.columns.result_schemas import KEYS, encode_row, failed_row, key_columns, reparsed_row
from promptools.batch.files.parquet_files import read_input
from promptools.dialects import using_own
from promptools.dialects.own_dialects import read_own
from promptools.dialects.table_file import DialectTable
from promptools.engine import parse
from promptools.errors import PromptoolsError, UsageError, clip
from promptools.json_values import is_object
from promptools.recording.replay import describe_reply
from promptools.schema import Tools
from promptools.types import Reply

CHUNK = 256
"""Replies that a process gets at once."""
OPTIONS = ("dialect", "finish_reason", "in_reasoning")
"""Keys of a logged reply that are options of `parse`."""
INVALID = (PromptoolsError, ValueError, TypeError, RecursionError)
"""What is raised for a reply that cannot be read."""


class ReparsedLine(NamedTuple):
    """The result for one line of a log."""

    text: bytes
    """A line of JSON: what is read of the reply, or an `error`; as a row it has all columns."""
    has_calls: bool = False
    failed: bool = False


def read_replies(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines or rows of a log, each as JSON, and their numbers; raise `UsageError` if it cannot be read."""
    return read_input(path, REPLY_COLUMNS)


def reparse_line(text: bytes, line: int, *, as_row: bool = False) -> ReparsedLine:
    """Read the reply in the line `line` of a log; the result has the form of a line, or of a row of Parquet."""
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
    # an empty list is not the same as none: no call of such a reply was offered
    return parse(text, None if tools is None else _prepare(tools), **options)


def reparse(
    lines: Iterable[tuple[int, bytes]], workers: int, *, as_row: bool = False, dialects: Sequence[DialectTable] = ()
) -> Iterator[ReparsedLine]:
    """Yield the result of each line, in order; `workers` processes read them, or this one if it is 1.

    `dialects` are those of the app's own. A few chunks for each process are read ahead. Raises `PromptoolsError` if a
    process ends, as without memory.
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
    """Hold back Ctrl-C, for good in processes that are started meanwhile: the one that started them ends them.

    A process that ended by itself while it starts would leave the pool waiting for it. The mask is of this thread and
    of those processes; another thread may still take the signal, such as one of Arrow's, so it has another handler.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    in_main_thread = threading.current_thread() is threading.main_thread()  # no other one has handlers
    held_back: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: held_back.append(number)) if in_main_thread else None
    resource_tracker.ensure_running()  # the first process to be started would start it, which unblocks SIGINT
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
    """End this process when its parent ends; one that is killed tells its children nothing, and they would wait."""

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
    """Yield the result of each line, with `dialects` of the app's own."""
    own = read_own(dialects)
    for line, text in lines:
        with using_own(own):
            result = reparse_line(text, line, as_row=as_row)
        yield result


def _keys(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in KEYS if key in row}


@lru_cache(maxsize=64)
def _prepare(text: str) -> Tools | None:
    """Return the tools of a JSON text, None for `null`."""
    try:
        tools = json.loads(text)
    except ValueError as error:
        raise UsageError(f"'tools' is not valid JSON: {error}") from None
    return None if tools is None else Tools(tools)
