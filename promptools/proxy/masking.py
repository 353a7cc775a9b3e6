"""Mask the API key in error responses of a server that repeat it: the client gets asterisks instead.

The key belongs to the proxy's operator. Only errors are masked, so that no reply of a model is ever changed, and only
keys that are too long to match by accident.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from promptools.transport.content import Decompressor, decompressor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from promptools.transport.family import Family

SHORTEST = 12
"""Minimum length of a key that is masked: dummies such as `EMPTY` or `lm-studio` are ordinary words."""
_GONE = ("content-encoding", "content-length")


def masked(response: Any, family: Family, authorization: str) -> Any:
    """Return a response; in an error, the key of the request's `Authorization` field is masked."""
    key = authorization.rpartition(" ")[2].encode("latin-1")
    if response.status_code < 400 or len(key) < SHORTEST:
        return response
    inflate = decompressor(response)
    fields = [
        (name, value.replace(key, _stars(key)))
        for name, value in response.headers.raw
        if inflate is None or name.lower().decode("latin-1") not in _GONE
    ]
    response.headers = family.module.Headers(fields)
    response.stream = _stream_class(family)(response.stream, key, inflate, family.module.DecodingError)
    return response


class Mask:
    """Incremental masking of a key in a stream of bytes. O(n) in bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.rest = b""
        """What is held back, because it may be a prefix of the key."""

    def feed(self, piece: bytes) -> bytes:
        """Return the masked bytes that cannot be part of a key any more."""
        data = (self.rest + piece).replace(self._key, _stars(self._key))
        certain = max(0, len(data) - len(self._key) + 1)
        self.rest = data[certain:]
        return data[:certain]


class MaskedStream:
    """Base of the body stream of a masked error, decompressed if it was compressed."""

    def __init__(self, inner: Any, key: bytes, inflate: Decompressor | None, error: type[Exception]) -> None:
        self._inner = inner
        self._key = key
        self._inflate = inflate
        self._inflated = False
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        mask = Mask(self._key)
        async for raw in self._inner:
            for piece in self._plain(raw):
                yield mask.feed(piece)
        yield mask.rest

    def _plain(self, raw: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            yield raw
            return
        try:
            for piece in self._inflate.feed(raw):
                self._inflated = True
                yield piece
        except zlib.error as error:
            if self._inflated:
                raise self._error(str(error)) from error
            self._inflate = None  # it is not compressed as declared: forward it as it is
            yield raw

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()


@cache
def _stream_class(family: Family) -> Any:
    return type("PromptoolsMaskedStream", (MaskedStream, family.module.AsyncByteStream), {})


def _stars(key: bytes) -> bytes:
    return b"*" * len(key)
