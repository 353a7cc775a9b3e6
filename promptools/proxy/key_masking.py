"""Mask the API key with asterisks where a server's response repeats it.

The key belongs to the proxy's operator. It is masked in header fields, in responses with an error status, and in errors
that a server sends with status 200; `JsonPlace` distinguishes such errors from answers. It is never masked in a model's
reply. A key that is so short that it may match by accident is never masked. Responses are masked as they arrive, so
that no error of the proxy, no trace and no log line can show the key.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from promptools.masking import MIN_KEY_LENGTH, PartialSecret, SecretMask, secrets_in
from promptools.transport.response_content import Decompressor, decompressor_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from promptools.transport.http_library import HttpLibrary


# Distinguish the errors of a server from the answers of a model, in a body of any API, whole or streamed.
#
# A server may report an error under HTTP 200: as the whole body, as an event in the middle of a stream, in a field of
# a choice, or as a page of HTML. A model's text must never be changed; everything else may be. So the place in the
# JSON decides: whatever is inside a field of `_ANSWERS` is an answer, unless it is in turn inside a field of `_ERRORS`.
# A body is parsed only once a key is found in it.


_ANSWERS = frozenset(
    {"choices", "message", "response", "content", "text", "thinking", "reasoning", "delta", "output", "output_text"}
    | {"item", "part", "content_block", "arguments", "tool_calls", "completion", "generated_text", "token", "tokens"}
    | {"prompt", "completion_probabilities", "logprobs", "segments", "words", "results", "outputs", "documents"}
    | {"embedding", "embeddings", "summary", "refusal"}
)
"""Names of the fields, in any API, that hold text written by a model or an app."""
_ONLY_OBJECTS = frozenset({"message"})
"""Names of fields whose value is an answer if it is an object, and the text of an error if it is a string."""
_ERRORS = frozenset(
    {"error", "errors", "error_message", "detail", "details", "warning", "warnings", "finish_reason", "stop_reason"}
)
"""Names of fields that the server writes, even inside a model's answer."""
_OPAQUE = frozenset({"arguments", "input", "content", "tool_calls", "function_call", "text", "parsed", "output"})
"""Names of fields whose objects a model may have written: an `error` inside such an object is part of the answer."""
_IN_OBJECT = re.compile(r'["{}\[\]:,]')
_IN_ARRAY = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_MAX_NAME = 64
_MAX_DEPTH = 1000


class JsonPlace:
    """Reads JSON text in pieces, and tells whether the position after the last piece is inside a model's answer."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        """The name of the current field of each open object; None for an array."""
        self._in_string = self._is_name = self._expects_name = False
        self._name = self._escape = ""
        self._too_deep = False

    def reset(self) -> None:
        """Forget the text read so far, and start at the beginning of another JSON text."""
        self.__init__()  # type: ignore[misc]

    @property
    def in_answer(self) -> bool:
        """Whether a model or the app wrote the text at the current position."""
        names = [name for name in self._names if name is not None]
        if not names or self._too_deep or names[0] not in _ANSWERS:
            # an error is recognized only by the names of fields, even in the Responses API's `response.failed`
            return False
        if len(names) == 1:
            return names[0] not in _ONLY_OBJECTS
        for name in names:
            if name in _ERRORS:
                return False
            if name in _OPAQUE:
                return True
        return True

    def feed(self, text: str) -> None:
        """Read `text`, the next piece of the JSON; the current position is then the end of the piece."""
        text, at = self._escape + text, 0
        self._escape = ""
        while at < len(text) and not self._too_deep:
            if self._in_string:
                at = self._read_string(text, at)
                continue
            in_object = bool(self._names) and self._names[-1] is not None
            found = (_IN_OBJECT if in_object else _IN_ARRAY).search(text, at)
            if found is None:
                return
            at = found.end()
            self._read_mark(found[0])

    def _read_string(self, text: str, at: int) -> int:
        found = _STRING.match(text, at)
        end = at if found is None else found.end()
        if self._is_name and len(self._name) < _MAX_NAME:
            self._name += text[at : min(end, at + _MAX_NAME)]
        if end < len(text) and text[end] == "\\":  # the other half of the escape is in the next piece
            self._escape = text[end:]
            return len(text)
        if end < len(text):
            self._in_string = False
            if self._is_name and self._names:
                self._names[-1] = self._name
            return end + 1
        return end

    def _read_mark(self, mark: str) -> None:
        if mark == '"':
            self._in_string, self._name = True, ""
            self._is_name = self._expects_name and bool(self._names) and self._names[-1] is not None
        elif mark in "{[":
            self._too_deep = self._too_deep or len(self._names) >= _MAX_DEPTH
            if not self._too_deep:
                self._names.append("" if mark == "{" else None)
            self._expects_name = mark == "{"
        elif mark in "}]":
            if self._names:
                self._names.pop()
            self._expects_name = False
        else:
            self._expects_name = mark == ","


MAX_DECOMPRESSED = 1 << 24
"""Maximum size in bytes of a decompressed error.

The rest of a larger error, such as a gzip bomb, is not sent.
"""
_ENCODING_FIELDS = ("content-encoding", "content-length")
_NOT_TEXT = ("image/", "audio/", "video/", "application/octet-stream")
"""Beginnings of the media types in which servers report no errors."""
_LINES = ("text/event-stream", "ndjson", "jsonl", "json-seq")
_EVENT = re.compile(r"data: ?|(?:event|id|retry|error)?:")
_MAX_UNREAD = 1 << 18
"""Maximum number of characters of a body that an `AnswerFinder` keeps unparsed.

Beyond this, it parses the oldest text without waiting until `in_answer` is read.
"""


def mask_error(response: Any, library: HttpLibrary, authorization: str) -> Any:
    """Return `response` with the request's key masked everywhere except in a model's answer.

    `authorization` is the value of the request's `Authorization` field, which contains the key.
    """
    keys = secrets_in((("authorization", authorization),), min_length=MIN_KEY_LENGTH)
    if not keys:
        return response
    mask = SecretMask(keys, bounded=False)
    status, media_type = response.status_code, response.headers.get("content-type", "").lower()
    readable = status >= 400 or (status >= 200 and status not in {204, 304} and not media_type.startswith(_NOT_TEXT))
    inflate = decompressor_for(response) if readable else None
    fields = [
        (name, mask.text(value.decode("latin-1")).encode("latin-1"))
        for name, value in response.headers.raw
        if inflate is None or name.lower().decode("latin-1") not in _ENCODING_FIELDS
    ]
    if fields != list(response.headers.raw):
        response.headers = library.module.Headers(fields)
    if readable:
        by_lines = any(kind in media_type for kind in _LINES)
        in_answers = None if status >= 400 else AnswerFinder(by_lines=by_lines)
        stream = _stream_class(library)(
            response.stream, KeyMask(keys, in_answers), inflate, library.module.DecodingError
        )
        stream.limit = MAX_DECOMPRESSED if status >= 400 else None
        response.stream = stream
    return response


class AnswerFinder:
    """Tells whether the current position in a body is inside a model's answer.

    Text is parsed lazily: when `in_answer` is read, or when much unparsed text has been collected.
    """

    def __init__(self, *, by_lines: bool) -> None:
        self._by_lines = by_lines
        self._place = JsonPlace()
        self._unread: deque[str] = deque()
        self._unread_size = 0
        self._at_start = True

    def pass_by(self, text: str) -> None:
        """Move the current position past `text`, the next piece of the body."""
        if self._by_lines and (end := text.rfind("\n") + 1):
            self._place.reset()
            self._unread.clear()
            self._unread_size, text, self._at_start = 0, text[end:], True
        if text:
            self._unread.append(text)
            self._unread_size += len(text)
        while self._unread_size > _MAX_UNREAD:
            self._read(self._unread.popleft())

    @property
    def in_answer(self) -> bool:
        """Whether the position after the text passed so far is inside an answer."""
        if self._unread:
            text = "".join(self._unread)
            self._unread.clear()
            self._read(text)
        return self._place.in_answer

    def _read(self, text: str) -> None:
        self._unread_size -= len(text)
        if self._at_start and text:
            self._at_start = False
            event = _EVENT.match(text)
            if event is not None:
                self._by_lines = True  # a stream of events, whatever its media type
                text = text[text.rfind("\n") + 1 :]
                event = _EVENT.match(text)
            text = text[event.end() :] if event else text
        self._place.feed(text)


class KeyMask:
    """Masks keys in a stream of bytes, in linear time.

    Bytes at the end of a piece that may be the beginning of a key are held back until the next piece.
    """

    def __init__(self, keys: Iterable[str], answers: AnswerFinder | None = None) -> None:
        self._pattern = SecretMask(keys, bounded=False).pattern
        self._partial = [PartialSecret(key) for key in keys]
        self._answers = answers
        self._held = ""

    @property
    def held_back(self) -> bytes:
        """The bytes held back because they may be the beginning of a key."""
        return self._held.encode("latin-1")

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; return all bytes except those that are held back, with keys masked."""
        text = self._held + piece.decode("latin-1")
        masked, at = list[str](), 0
        for found in () if self._pattern is None else self._pattern.finditer(text):
            masked.append(self._pass_by(text[at : found.start()]))
            is_answer = self._answers is not None and self._answers.in_answer
            masked.append(found[0] if is_answer else "*" * len(found[0]))
            self._pass_by(found[0])
            at = found.end()
        rest = text[at:]
        certain = min((partial.hold_from(rest) for partial in self._partial), default=len(rest))
        masked.append(self._pass_by(rest[:certain]))
        self._held = rest[certain:]
        return "".join(masked).encode("latin-1")

    def _pass_by(self, text: str) -> str:
        if self._answers is not None:
            self._answers.pass_by(text)
        return text


class MaskedStream:
    """Base class for the body of a response, as a stream in which keys are masked; decompresses a compressed body."""

    def __init__(
        self, inner: Any, mask: KeyMask, decompressor: Decompressor | None, decoding_error: type[Exception]
    ) -> None:
        self._inner = inner
        self._mask = mask
        self._decompressor = decompressor
        self._decompressed = 0
        """Number of bytes that were decompressed so far."""
        self._decoding_error = decoding_error
        self.limit: int | None = None
        """Maximum number of bytes that are decompressed; None means no limit."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for raw in self._inner:
            for number, piece in enumerate(self._decompress(raw)):
                if number:
                    await checkpoint()
                if masked := self._mask.feed(piece):
                    yield masked
        if held := self._mask.held_back:
            yield held

    def _decompress(self, raw: bytes) -> Iterator[bytes]:
        if self._decompressor is None:
            yield raw
            return
        try:
            for piece in self._decompressor.feed(raw):
                self._decompressed += len(piece)
                if self.limit is not None and self._decompressed > self.limit:
                    raise self._decoding_error(f"the error has more than {self.limit:,} bytes when decompressed")
                yield piece
        except zlib.error as error:
            if self._decompressed:
                raise self._decoding_error(str(error)) from error
            self._decompressor = None  # the body is not compressed as declared: forward it unchanged
            yield raw

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()


@cache
def _stream_class(library: HttpLibrary) -> Any:
    return type("PromptoolsMaskedStream", (MaskedStream, library.module.AsyncByteStream), {})
