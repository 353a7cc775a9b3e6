"""Logged replies to calls, content and reasoning: many at once, in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from promptools.engine import parse
from promptools.errors import PromptoolsError, UsageError, clip
from promptools.recording.row_reading import describe_reply
from promptools.schema import Tools
from promptools.schema.documents.json_guards import is_object

CHUNK = 256
"""Replies that a process gets at once."""
OPTIONS = ("dialect", "finish_reason", "in_reasoning")
"""Keys of a logged reply that are options of `parse`."""
COPIED = ("id", "custom_id")
"""Keys that are copied into the result."""


class ReparsedLine(NamedTuple):
    """The result for one line of a log."""

    text: bytes
    """A line of JSON: what is read of the reply, or an `error`."""
    has_calls: bool = False
    failed: bool = False


def reparse_line(text: bytes, line: int) -> ReparsedLine:
    """Read the reply in the line `line` of a log."""
    copied: dict[str, Any] = {}
    try:
        row: Any = json.loads(text)
        if not is_object(row) or not isinstance(row.get("text"), str):
            raise UsageError("the line is no JSON object with the reply as 'text'")
        copied = {key: row[key] for key in COPIED if key in row}
        options: dict[str, Any] = {key: row[key] for key in OPTIONS if row.get(key) is not None}
        tools = row.get("tools")
        reply = parse(row["text"], tools and _prepare(json.dumps(tools)), **options)
        return ReparsedLine(_encode({**copied, **describe_reply(reply)}), has_calls=bool(reply.calls))
    except (PromptoolsError, ValueError, TypeError, RecursionError) as error:
        return ReparsedLine(_encode({**copied, "error": {"line": line, "message": clip(str(error))}}), failed=True)


def reparse(lines: Iterable[tuple[int, bytes]], workers: int) -> Iterator[ReparsedLine]:
    """Yield the result of each line, in order; `workers` processes read them, or this one if it is 1.

    A few chunks for each process are read ahead. Raises `PromptoolsError` if a process ends, as without memory.
    """
    rest = iter(lines)
    if workers == 1:
        yield from (reparse_line(text, line) for line, text in rest)
        return
    waiting: deque[Future[list[ReparsedLine]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            while chunk := list(islice(rest, CHUNK)):
                waiting.append(pool.submit(_reparse_chunk, chunk))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool:
            raise PromptoolsError("a process that reads replies has ended; run it again with fewer --workers") from None
        finally:
            for future in waiting:
                future.cancel()


def _reparse_chunk(chunk: list[tuple[int, bytes]]) -> list[ReparsedLine]:
    return [reparse_line(text, line) for line, text in chunk]


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


@lru_cache(maxsize=64)
def _prepare(tools: str) -> Tools:
    return Tools(json.loads(tools))
