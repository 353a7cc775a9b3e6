"""What is in a batch file: read once before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from promptools.batch.columns.input_columns import REQUEST_COLUMNS
from promptools.batch.columns.result_schemas import escape_surrogates
from promptools.batch.files.batch_files import MAX_LINE
from promptools.batch.files.parquet_files import read_input
from promptools.batch.request_line import BatchRequest, LineProblem, read_request
from promptools.errors import UsageError, clip


@dataclass(slots=True)
class InputSurvey:
    """The contents of a batch file."""

    requests: int = 0
    """Requests with a `custom_id`, invalid ones too: the lines of the output."""
    invalid: int = 0
    """Lines that are not sent."""
    unnamed: int = 0
    """Those of them without a `custom_id`, which have no line in the output."""
    without_model: int = 0
    urls: Counter[str] = field(default_factory=Counter[str])
    models: Counter[str] = field(default_factory=Counter[str])
    not_utf8: int = 0
    """The first line whose `custom_id` UTF-8 cannot express, and so Parquet cannot have."""
    digest: str = ""
    """A digest of all lines."""


def survey_input(path: str, measure: Callable[[BatchRequest], None] | None = None) -> InputSurvey:
    """Read a batch file, and call `measure` with each valid request.

    Raises `UsageError` if it cannot be read, is empty, or has a `custom_id` twice. Takes some 100 bytes of memory for
    each request while it reads.
    """
    survey = InputSurvey()
    whole = blake2b(digest_size=16)
    seen: set[bytes] = set()
    for number, text in read_input(path, REQUEST_COLUMNS):
        whole.update(b"%d " % number)
        whole.update(text)
        request = _read_line(number, text)
        if request.custom_id is not None:
            key = digest_of(request.custom_id)
            if key in seen:
                _raise_duplicate(path, request.custom_id, number)
            seen.add(key)
            if not survey.not_utf8 and escape_surrogates(request.custom_id) != request.custom_id:
                survey.not_utf8 = number
        _count(survey, request)
        if measure and isinstance(request, BatchRequest):
            measure(request)
    if not survey.requests and not survey.invalid:
        raise UsageError(f"{path!r} has no requests; write one in each line or row")
    survey.digest = whole.hexdigest()
    return survey


def read_requests(path: str) -> Iterator[BatchRequest | LineProblem]:
    """Yield what is in each line, or each row, of a batch file."""
    return (_read_line(number, text) for number, text in read_input(path, REQUEST_COLUMNS))


def _read_line(number: int, text: bytes) -> BatchRequest | LineProblem:
    if len(text) >= MAX_LINE:
        message = f"the line is longer than {MAX_LINE} bytes"
        return LineProblem(number, None, "invalid_line", message, "make the request shorter")
    return read_request(text, number)


def _count(survey: InputSurvey, request: BatchRequest | LineProblem) -> None:
    survey.requests += request.custom_id is not None
    if isinstance(request, LineProblem):
        survey.invalid += 1
        survey.unnamed += request.custom_id is None
        return
    survey.urls[request.url] += 1
    if model := request.body.get("model"):
        survey.models[model] += 1
    else:
        survey.without_model += 1


def _raise_duplicate(path: str, custom_id: str, line: int) -> None:
    first = next(islice((request.line for request in read_requests(path) if request.custom_id == custom_id), 1))
    raise UsageError(
        f"{path!r} has the custom_id {clip(custom_id)!r} in lines {first} and {line}; each request needs its own"
    )


def custom_id_digests(path: str) -> set[bytes]:
    """Return the digests of the `custom_id`s of a batch file."""
    return {digest_of(request.custom_id) for request in read_requests(path) if request.custom_id is not None}


def digest_of(custom_id: str) -> bytes:
    """Return a digest of 16 bytes."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
