"""Run a batch: requests without a result are sent, and the output is written when all requests have a result."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from promptools.batch.answering import BatchAnswer, LineProblem
from promptools.batch.columns import batch_row, batch_schema
from promptools.batch.files import (
    check_name,
    errors_path,
    exists,
    identity_of,
    is_local,
    is_parquet,
    read_column,
    read_lines,
    remove,
    write_lines,
    write_rows,
)
from promptools.batch.input_survey import (
    AnswerRequests,
    InputSurvey,
    PendingRequests,
    custom_id_digests,
    digest_of,
    read_requests,
)
from promptools.errors import PromptoolsError, UsageError, without_credentials
from promptools.json_values import is_object, try_json

# The log: the results so far, in a local file. A run that ended at any moment can be resumed from it.
#
# Its first line has the settings of the run. Each further line has the result of one request, and is written whole; a
# line that was cut off when the process ended is removed when the file is opened again.


SETTINGS = "settings"
BEGINNING = f'{{"{SETTINGS}": '.encode()
"""The first bytes of every batch log, by which a file is recognized as one."""


class BatchLog:
    """Keeps the results of a batch in the file `path`, which only one process may have open.

    If the file exists, its settings must equal `settings`.
    """

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
        """Return whether the log has a result for the request on line `line`."""
        return line < len(self._done) and bool(self._done[line])

    def done(self) -> bytes:
        """Return a byte for each line, indexed by line number: 1 if the line has a result, else 0.

        Lines beyond the last byte have no result.
        """
        return bytes(self._done)

    def add(self, answer: BatchAnswer) -> None:
        """Add a result. If it cannot be written, raise `PromptoolsError` and leave the file unchanged."""
        problem = answer.problem and asdict(answer.problem)
        self._write({"line": answer.line, "result": answer.result, "problem": problem})
        self._mark(answer.line)

    def answers(self) -> Iterator[BatchAnswer]:
        """Yield the results, in the order in which they arrived."""
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
            with suppress(OSError):  # the next run removes a torn line, too
                os.ftruncate(self._file, self._size)
            raise PromptoolsError(
                f"cannot write {str(self.path)!r}: {error.strerror}; nothing is lost: run the same command to continue"
            ) from error
        self._size += written

    def _read_done(self) -> None:
        """Check the settings, and read which requests have results. In a new file, write the settings."""
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
        """Remove an incomplete last line; return the size of the file."""
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
        """Lock the file, or raise `UsageError` if another process has locked it.

        Do nothing if the platform lacks `fcntl`, as Windows does.
        """
        if importlib.util.find_spec("fcntl") is None:
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another process is writing {str(self.path)!r}; wait for it, or end it") from None


def _read_row(text: bytes) -> dict[str, Any] | None:
    row = try_json(text)
    return row if is_object(row) else None


FORMAT_VERSION = 1
"""The version of the log's format."""


@dataclass(slots=True)
class BatchTotals:
    """Counts of the results so far."""

    requests: int
    """Number of requests with a `custom_id`."""
    earlier: int = 0
    """Number of requests that had a result before this run."""
    done: int = 0
    """Number of requests that have a result."""
    failed: int = 0
    """Number of requests that failed, including invalid requests."""
    unnamed: int = 0
    """Number of invalid lines without a `custom_id`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, answer: BatchAnswer) -> None:
        """Count a result."""
        self.done += 1
        self.failed += answer.problem is not None
        prompt, completion = answer.usage
        self.prompt_tokens += prompt
        self.completion_tokens += completion


class BatchJob:
    """Runs a batch: reads requests from `source`, and writes results to `output`.

    Failures are written to a separate file next to `output`. `survey` describes the input. `model` replaces the model
    of each request; an existing log must have been written with the same `model`. The file `log` keeps the results
    until all requests have one.
    """

    def __init__(self, source: str, output: str, survey: InputSurvey, *, model: str | None, log: str | None) -> None:
        self.source = source
        self.output = output
        self.errors = errors_path(output)
        self.log = Path(log or default_log(output))
        self.survey = survey
        self._settings = {"version": FORMAT_VERSION, "input": survey.digest, "model": model}
        self.totals = BatchTotals(survey.requests, unnamed=survey.unnamed)
        if survey.not_utf8 and is_parquet(output):
            raise UsageError(
                f"{without_credentials(source)!r}, line {survey.not_utf8}: Parquet cannot have this custom_id, which is"
                " not valid UTF-8; write JSON Lines"
            )

    def is_complete(self) -> bool:
        """Return whether an earlier run wrote the output; raise `UsageError` if the output belongs to another batch."""
        if self.log.exists() or not exists(self.output):
            return False
        missing = custom_id_digests(self.source)
        for custom_id in _custom_ids(self.output):
            missing.discard(digest_of(custom_id))
        if missing:
            raise UsageError(
                f"{without_credentials(self.output)!r} exists and has no results of {len(missing)} requests of"
                f" {without_credentials(self.source)!r}; choose another output, or remove it"
            )
        return True

    def count_earlier(self) -> int:
        """Return how many requests have a result from an earlier run."""
        if not self.log.exists():
            return 0
        with BatchLog(self.log, self._settings) as log:
            return sum(1 for _ in log.answers())

    def run(self, answer_requests: AnswerRequests, follow: Callable[[BatchTotals], None]) -> None:
        """Answer all requests that have no result, and write the output.

        `follow` is called with the totals at the start and after each result. Raises `PromptoolsError` if a request
        still has no result at the end.
        """
        with BatchLog(self.log, self._settings) as log:
            for answer in log.answers():
                self.totals.add(answer)
            self.totals.earlier = self.totals.done
            follow(self.totals)

            def record(answer: BatchAnswer) -> None:
                if log.has(answer.line):
                    return
                log.add(answer)
                self.totals.add(answer)
                follow(self.totals)

            answer_requests(PendingRequests(self.source, log.done()), record)
            if missing := self.totals.requests - self.totals.done:
                raise PromptoolsError(
                    f"{missing} requests have no result; nothing is lost: run the same command to continue"
                )
            self._write(log)

    def _write(self, log: BatchLog) -> None:
        """Write the error file (or remove it if nothing failed), then write the output, and remove the log."""
        if self.totals.failed or self.totals.unnamed:
            write_lines(self.errors, self._problems(log))
        else:
            remove(self.errors)
        results = (answer.result for answer in log.answers())
        if is_parquet(self.output):
            write_rows(self.output, map(batch_row, results), batch_schema())
        else:
            write_lines(self.output, map(_line, results))
        self.log.unlink()

    def _problems(self, log: BatchLog) -> Iterator[bytes]:
        if self.totals.unnamed:
            for request in read_requests(self.source):
                if isinstance(request, LineProblem) and request.custom_id is None:
                    yield _line(request.to_dict())
        for answer in log.answers():
            if answer.problem is not None:
                yield _line(answer.problem.to_dict())


def _custom_ids(output: str) -> Iterator[str]:
    """Yield the `custom_id`s in an existing output. Lines without a `custom_id` are skipped."""
    if is_parquet(output):
        yield from (value for value in read_column(output, "custom_id") if isinstance(value, str))
        return
    for _, text in read_lines(output):
        custom_id = (_read_row(text) or {}).get("custom_id")
        if isinstance(custom_id, str):
            yield custom_id


def default_log(output: str) -> str:
    """Return the path of the log: next to the output, or in the current folder if the output is not local."""
    return f"{output if is_local(output) else output.rstrip('/').rpartition('/')[2]}.part"


def check_paths(source: str, output: str, log: str | None) -> None:
    """Raise `UsageError` if these paths cannot be the files of a batch, for example because two are the same file."""
    check_name(source)
    check_name(output)
    names = [source, output, errors_path(output), log or default_log(output)]
    if len(set(map(identity_of, names))) < len(names):
        raise UsageError(f"{without_credentials(output)!r}: input, output and log must be different files")
    folder = Path(output).parent
    if is_local(output) and not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r} for the output; make it first")
    if is_local(output) and Path(output).is_dir():
        raise UsageError(f"{output!r} is a folder; name a file in it")


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
