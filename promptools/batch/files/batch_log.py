"""The results so far, in a local file: a run that ended at any moment goes on from it.

Its first line has the settings of the run. Each further line has the result of one request, and is written whole; a
line that was cut off when the process ended is removed when the file is opened again.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from promptools.batch.request_answering import BatchAnswer
from promptools.batch.request_line import LineProblem
from promptools.errors import PromptoolsError, UsageError
from promptools.json_values import is_object

SETTINGS = "settings"
BEGINNING = f'{{"{SETTINGS}": '.encode()
"""How each log begins."""


class BatchLog:
    """The log at `path`, open for one process. `settings` must be those of a file that exists."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._settings = dict(settings)
        self._done = bytearray()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
        try:
            self._lock()
            self._size = self._remove_torn_line()
            self._read_done()
        except BaseException:
            os.close(self._file)
            raise

    def has(self, line: int) -> bool:
        """Whether the request of this line has a result."""
        return line < len(self._done) and bool(self._done[line])

    def done(self) -> bytes:
        """Return a byte for each line up to the last with a result, the first for line 0: 1 if it has one."""
        return bytes(self._done)

    def add(self, answer: BatchAnswer) -> None:
        """Add a result; raise `PromptoolsError` if it cannot be written, which leaves the file as it was."""
        problem = answer.problem and asdict(answer.problem)
        self._write({"line": answer.line, "result": answer.result, "problem": problem})
        self._mark(answer.line)

    def answers(self) -> Iterator[BatchAnswer]:
        """Yield the results, in the order in which they came."""
        with self.path.open("rb") as file:
            for text in file:
                row = _read_row(text)
                if row and isinstance(row.get("line"), int) and is_object(row.get("result")):
                    problem: Any = row.get("problem")
                    yield BatchAnswer(row["line"], row["result"], LineProblem(**problem) if problem else None)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        text = json.dumps(row).encode() + b"\n"
        written = 0
        try:
            os.lseek(self._file, self._size, os.SEEK_SET)
            while written < len(text):
                written += os.write(self._file, text[written:])
        except OSError as error:
            with suppress(OSError):  # a torn line is removed by the next run, too
                os.ftruncate(self._file, self._size)
            raise PromptoolsError(
                f"cannot write {str(self.path)!r}: {error.strerror}; nothing is lost: the same command goes on"
            ) from error
        self._size += written

    def _read_done(self) -> None:
        """Read the settings, and which requests have results; a new file gets its settings."""
        if self._size == 0:
            self._write({SETTINGS: self._settings})
            return
        with self.path.open("rb") as file:
            self._check_settings((_read_row(file.readline()) or {}).get(SETTINGS))
        for answer in self.answers():
            self._mark(answer.line)

    def _check_settings(self, known: Any) -> None:
        if known == self._settings:
            return
        if not is_object(known):
            raise UsageError(f"{str(self.path)!r} is not a batch log; choose another --log")
        names = [name for name in self._settings if known.get(name) != self._settings[name]]
        raise UsageError(
            f"{str(self.path)!r} is the log of another batch: {' and '.join(names) or 'its version'} changed since;"
            " run what it was made with, or remove it to begin anew"
        )

    def _mark(self, line: int) -> None:
        if line >= len(self._done):
            self._done.extend(bytes(max(line + 1 - len(self._done), 4096)))
        self._done[line] = 1

    def _remove_torn_line(self) -> int:
        """Cut off what follows the last end of a line; return the size of the file."""
        size = at = os.fstat(self._file).st_size
        if not self._read_at(0, len(BEGINNING)).startswith(BEGINNING[:at]):
            raise UsageError(f"{str(self.path)!r} is not a batch log; choose another --log")
        while at > 0:
            begin = max(0, at - 65536)
            end = self._read_at(begin, at - begin).rfind(b"\n")
            if end >= 0:
                at = begin + end + 1
                break
            at = begin
        if at < size:
            os.ftruncate(self._file, at)
        return at

    def _read_at(self, position: int, size: int) -> bytes:
        os.lseek(self._file, position, os.SEEK_SET)
        return os.read(self._file, size)

    def _lock(self) -> None:
        """Raise `UsageError` if another process has the file open; where there are no locks, do nothing."""
        if importlib.util.find_spec("fcntl") is None:
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another process is writing {str(self.path)!r}; wait for it, or end it") from None


def _read_row(text: bytes) -> dict[str, Any] | None:
    try:
        row: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if is_object(row) else None
