"""Mask the API key in error responses of a server that repeat it: the client gets asterisks instead.

The key belongs to the proxy's operator. Only errors are masked, so that no reply of a model is ever changed, and only
keys that are too long to match by accident.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from promptools.transport.driver.response_content import Decompressor, decompressor_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from promptools.transport.driver.http_library import HttpLibrary

MIN_KEY_LENGTH = 12
"""Minimum length of a key that is masked: dummies such as `EMPTY` or `lm-studio` are ordinary words."""
MAX_DECOMPRESSED = 1 << 24
"""Bytes of a compressed error; of one that has more, such as a gzip bomb, the rest is not sent."""
_ENCODING_FIELDS = ("content-encoding", "content-length")


def mask_error(response: Any, library: HttpLibrary, authorization: str) -> Any:
    """Return a response; in an error, the key of the request's `Authorization` field is masked."""
    key = authorization.rpartition(" ")[2].encode("latin-1")
    if response.status_code < 400 or len(key) < MIN_KEY_LENGTH:
        return response
    inflate = decompressor_for(response)
    fields = [
        (name, value.replace(key, _asterisks(key)))
        for name, value in response.headers.raw
        if inflate is None or name.lower().decode("latin-1") not in _ENCODING_FIELDS
    ]
    response.headers = library.module.Headers(fields)
    response.stream = _stream_class(library)(response.stream, key, inflate, library.module.DecodingError)
    return response


class KeyMask:
    """Incremental masking of a key in a stream of bytes. O(n) in bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.held_back = b""
        """What is held back, because it may be a prefix of the key."""

    def feed(self, piece: bytes) -> bytes:
        """Return the masked bytes that cannot be part of a key any more."""
        data = (self.held_back + piece).replace(self._key, _asterisks(self._key))
        certain = max(0, len(data) - len(self._key) + 1)
        self.held_back = data[certain:]
        return data[:certain]


class MaskedStream:
    """Base of the body stream of a masked error, decompressed if it was compressed."""

    def __init__(
        self, inner: Any, key: bytes, decompressor: Decompressor | None, decoding_error: type[Exception]
    ) -> None:
        self._inner = inner
        self._key = key
        self._decompressor = decompressor
        self._decompressed = 0
        """Bytes so far."""
        self._decoding_error = decoding_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        mask = KeyMask(self._key)
        async for raw in self._inner:
            for number, piece in enumerate(self._decompress(raw)):
                if number:
                    await checkpoint()
                yield mask.feed(piece)
        yield mask.held_back

    def _decompress(self, raw: bytes) -> Iterator[bytes]:
        if self._decompressor is None:
            yield raw
            return
        try:
            for piece in self._decompressor.feed(raw):
                self._decompressed += len(piece)
                if self._decompressed > MAX_DECOMPRESSED:
                    raise self._decoding_error(f"the error has more than {MAX_DECOMPRESSED:,} bytes when decompressed")
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


def _asterisks(key: bytes) -> bytes:
    return b"*" * len(key)
