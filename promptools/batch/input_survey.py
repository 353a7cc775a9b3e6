"""Read a batch file: once before anything is sent, and again to find the requests that have no result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeAlias

from promptools.batch.answering import BatchAnswer, BatchRequest, LineProblem, read_request
from promptools.batch.columns import REQUEST_COLUMNS, escape_surrogates
from promptools.batch.files import MAX_LINE, read_input
from promptools.errors import UsageError, clip, without_credentials
from promptools.json_values import is_array
from promptools.transport.session import local_vocabulary
from promptools.wire.json_body import as_list, as_object


@dataclass(slots=True)
class InputSurvey:
    """Counts and a digest of a batch file, taken by `survey_input` before anything is sent."""

    requests: int = 0
    """Number of requests with a `custom_id`, including invalid ones. The output has a line for each of them."""
    invalid: int = 0
    """Number of lines that are not valid requests, and so are not sent."""
    unnamed: int = 0
    """Number of invalid lines without a `custom_id`, which have no line in the output."""
    without_model: int = 0
    urls: Counter[str] = field(default_factory=Counter[str])
    models: Counter[str] = field(default_factory=Counter[str])
    not_utf8: int = 0
    """The number of the first line whose `custom_id` is not valid UTF-8; 0 if there is no such line.

    Parquet cannot hold such a `custom_id`.
    """
    digest: str = ""
    """A digest of all lines."""


def survey_input(path: str, measure: Callable[[BatchRequest], None] | None = None) -> InputSurvey:
    """Read a batch file and return what it contains; call `measure` with each valid request.

    Raises `UsageError` if the file cannot be read, is empty, or contains a `custom_id` twice. Takes about 100 bytes of
    memory for each request while it reads.
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
        raise UsageError(f"{without_credentials(path)!r} has no requests; write one in each line or row")
    survey.digest = whole.hexdigest()
    return survey


def read_requests(path: str) -> Iterator[BatchRequest | LineProblem]:
    """Yield the request in each line or row of a batch file; for an invalid request, yield a `LineProblem`."""
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
    where = f"{without_credentials(path)!r} has the custom_id {clip(custom_id)!r} in lines {first} and {line}"
    raise UsageError(f"{where}; each request needs its own")


def custom_id_digests(path: str) -> set[bytes]:
    """Return the digests of the `custom_id`s of a batch file."""
    return {digest_of(request.custom_id) for request in read_requests(path) if request.custom_id is not None}


def digest_of(custom_id: str) -> bytes:
    """Return a digest of 16 bytes for a `custom_id`."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class PendingRequests:
    """The requests in the file `source` that have no result, including invalid ones that have a `custom_id`.

    The file is read again at each iteration.
    """

    source: str
    done: bytes = field(repr=False)
    """A byte for each line, indexed by line number: 1 if the line has a result, else 0.

    Lines beyond the last byte have no result.
    """

    def __iter__(self) -> Iterator[BatchRequest | LineProblem]:
        """Yield the requests in the order of the file."""
        for request in read_requests(self.source):
            done = request.line < len(self.done) and self.done[request.line]
            if request.custom_id is not None and not done:
                yield request


AnswerRequests: TypeAlias = Callable[[PendingRequests, Callable[[BatchAnswer], None]], None]
"""A function that answers all requests, and calls another function with each result as soon as it is available."""


# Measure the text in the requests of a batch, in tokens if there is a vocabulary, else in characters.


class PromptSize:
    """Adds up the size of the text in requests: messages, prompts, inputs and instructions, and tools as JSON.

    The unit is tokens of o200k_base if promptools finds that vocabulary, else characters. Markup of the chat template
    is not counted.
    """

    def __init__(self) -> None:
        vocabulary = local_vocabulary()
        self._encode = vocabulary.encode if vocabulary else None
        self.unit = "tokens of o200k_base" if vocabulary else "characters"
        self.total = 0
        self.largest = 0
        self.largest_line = 0

    def add(self, request: BatchRequest) -> None:
        """Add the size of a request's text."""
        text = "\n".join(_texts(request.body))
        size = len(self._encode(text)) if self._encode else len(text)
        self.total += size
        if size > self.largest:
            self.largest, self.largest_line = size, request.line


def _texts(body: dict[str, Any]) -> list[str]:
    texts = [text for key in ("prompt", "input", "instructions") for text in _strings(body.get(key))]
    for message in (*as_list(body.get("messages")), *as_list(body.get("input"))):
        for key in ("content", "arguments", "output"):
            texts += _content_texts(as_object(message).get(key))
        if calls := as_object(message).get("tool_calls"):
            texts.append(json.dumps(calls, ensure_ascii=False))
    if tools := body.get("tools"):
        texts.append(json.dumps(tools, ensure_ascii=False))
    return texts


def _content_texts(content: Any) -> list[str]:
    parts: Sequence[Any] = content if is_array(content) else [content]
    return [text for part in parts for text in _strings(part if isinstance(part, str) else as_object(part).get("text"))]


def _strings(value: Any) -> list[str]:
    values: Sequence[Any] = value if is_array(value) else [value]
    return [text for text in values if isinstance(text, str)]
