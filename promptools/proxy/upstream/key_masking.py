"""Mask the API key in responses of a server that repeat it: the client gets asterisks instead.

The key belongs to the proxy's operator. Masked are header fields, errors by their status, and errors that are reported
under HTTP 200 (`reported_errors`), so that no reply of a model is ever changed; and only keys that are too long to
match by accident. It happens here, where a response arrives, so nothing behind it can show the key: no error of the
proxy's own that quotes the server, no trace, no log line.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from promptools.masking import MIN_KEY_LENGTH, PartialSecret, SecretMask, secrets_in
from promptools.proxy.upstream.reported_errors import JsonPlace
from promptools.transport.response_content import Decompressor, decompressor_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from promptools.transport.http_library import HttpLibrary

MAX_DECOMPRESSED = 1 << 24
"""Bytes of a compressed error; of one that has more, such as a gzip bomb, the rest is not sent."""
_ENCODING_FIELDS = ("content-encoding", "content-length")
_NOT_TEXT = ("image/", "audio/", "video/", "application/octet-stream")
"""Media types in which nothing is reported."""
_LINES = ("text/event-stream", "ndjson", "jsonl", "json-seq")
_EVENT = re.compile(r"data: ?|(?:event|id|retry|error)?:")
_MAX_UNREAD = 1 << 18
"""The most characters whose place in the JSON is not determined yet."""


def mask_error(response: Any, library: HttpLibrary, authorization: str) -> Any:
    """Return a response in which the key of the request's `Authorization` field is masked, wherever it is no answer."""
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
    """Says whether a place in a body is in a model's answer; reads only the text before the places in question."""

    def __init__(self, *, by_lines: bool) -> None:
        self._by_lines = by_lines
        self._place = JsonPlace()
        self._unread: deque[str] = deque()
        self._unread_size = 0
        self._at_start = True

    def pass_by(self, text: str) -> None:
        """Go on by `text`."""
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
        """Whether the place after all that was passed by is in an answer."""
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
    """Incremental masking of keys in a stream of bytes; the beginning of one is held back. O(n) in bytes."""

    def __init__(self, keys: Iterable[str], answers: AnswerFinder | None = None) -> None:
        self._pattern = SecretMask(keys, bounded=False).pattern
        self._partial = [PartialSecret(key) for key in keys]
        self._answers = answers
        self._held = ""

    @property
    def held_back(self) -> bytes:
        """What is held back, because it may be a prefix of a key."""
        return self._held.encode("latin-1")

    def feed(self, piece: bytes) -> bytes:
        """Return the masked bytes that cannot be part of a key any more."""
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
    """Base of the body stream of a masked error, decompressed if it was compressed."""

    def __init__(
        self, inner: Any, mask: KeyMask, decompressor: Decompressor | None, decoding_error: type[Exception]
    ) -> None:
        self._inner = inner
        self._mask = mask
        self._decompressor = decompressor
        self._decompressed = 0
        """Bytes so far."""
        self._decoding_error = decoding_error
        self.limit: int | None = None
        """The most that is decompressed."""

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
            self._decompressor = None  # it is not compressed as declared: forward it as it is
            yield raw

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()


@cache
def _stream_class(library: HttpLibrary) -> Any:
    return type("PromptoolsMaskedStream", (MaskedStream, library.module.AsyncByteStream), {})
