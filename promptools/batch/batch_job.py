"""A batch from its input to its output: what is missing is sent, and the output is written when all is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from promptools.batch.columns.result_schemas import batch_row, batch_schema
from promptools.batch.files.batch_files import (
    check_name,
    errors_path,
    exists,
    identity_of,
    is_local,
    is_parquet,
    read_lines,
    remove,
    write_lines,
)
from promptools.batch.files.batch_log import BatchLog
from promptools.batch.files.input_survey import InputSurvey, custom_id_digests, digest_of, read_requests
from promptools.batch.files.parquet_files import read_column, write_rows
from promptools.batch.files.pending_requests import AnswerRequests, PendingRequests
from promptools.batch.request_answering import BatchAnswer
from promptools.batch.request_line import LineProblem
from promptools.errors import PromptoolsError, UsageError, without_credentials

FORMAT_VERSION = 1
"""The version of the log."""


@dataclass(slots=True)
class BatchTotals:
    """What came of the requests so far."""

    requests: int
    """Requests with a `custom_id`."""
    earlier: int = 0
    """Those that had a result before this run."""
    done: int = 0
    """Those that have a result."""
    failed: int = 0
    """Those of them that failed, invalid ones too."""
    unnamed: int = 0
    """Invalid lines without a `custom_id`."""
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
    """The batch of the file `source`, with its results in `output` and its failures beside it.

    `survey` is what the input has, `model` the one that replaces those of the requests. The results are kept in `log`
    until all are there.
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
        """Whether the output is there, from an earlier run; raise `UsageError` if it is another batch's."""
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
        """Return how many requests have a result of an earlier run."""
        if not self.log.exists():
            return 0
        with BatchLog(self.log, self._settings) as log:
            return sum(1 for _ in log.answers())

    def run(self, answer_requests: AnswerRequests, follow: Callable[[BatchTotals], None]) -> None:
        """Have what has no result yet answered, and write the output; `follow` is called after each result.

        Raises `PromptoolsError` if a request is left without a result.
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
                raise PromptoolsError(f"{missing} requests have no result; nothing is lost: the same command goes on")
            self._write(log)

    def _write(self, log: BatchLog) -> None:
        """Write the output, the last of all files, and remove the log."""
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
    """Yield the `custom_id`s of an output, of whatever else it is a file."""
    if is_parquet(output):
        yield from (value for value in read_column(output, "custom_id") if isinstance(value, str))
        return
    for _, text in read_lines(output):
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            custom_id = json.loads(text)["custom_id"]
            if isinstance(custom_id, str):
                yield custom_id


def default_log(output: str) -> str:
    """Return the path of the log for an output: beside it, or in the current folder if it is not local."""
    return f"{output if is_local(output) else output.rstrip('/').rpartition('/')[2]}.part"


def check_paths(source: str, output: str, log: str | None) -> None:
    """Raise `UsageError` if the files of a batch cannot be what their names say."""
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
