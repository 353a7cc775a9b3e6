"""The content of an upstream reply: compressed or not, it is read in pieces of bounded size.

The HTTP libraries decompress a network read at once, and 64 KB of zeros become 64 MB that way. So compression is asked
for only in the forms that are decompressed here, and what a server compresses otherwise stays as it came.
"""

from __future__ import annotations

import socket
import zlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from promptools.transport.family import Family

PIECE = 1 << 16
"""Bytes that one piece has at most after it was decompressed."""
_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""What zlib is told to expect."""
_RAW = -zlib.MAX_WBITS
_IDENTITY = frozenset({"", "identity"})


def acceptable(value: str) -> str:
    """Return the value of an `Accept-Encoding` field without the codings that are not decompressed here."""
    kept = [each.strip() for each in value.split(",") if _coding(each) in _WINDOWS]
    return ", ".join(kept) or "identity"


def _coding(each: str) -> str:
    return each.partition(";")[0].strip().lower()


class Decompressor:
    """Decompresses gzip and deflate, also gzip in several members. O(n) in bytes."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._zlib = zlib.decompressobj(_WINDOWS[coding])
        self._head = b""
        self._begun = coding != "deflate"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` holds, at most `PIECE` bytes at a time; raise zlib.error for what is not compressed so."""
        if not self._begun:
            data = self._begin(data)
        while self._begun:
            piece = self._zlib.decompress(data, PIECE)
            data = self._zlib.unconsumed_tail
            if piece:
                yield piece
            if self._zlib.eof:
                data = self._next(self._zlib.unused_data)
            if not data and len(piece) < PIECE:
                return

    def _begin(self, data: bytes) -> bytes:
        """Look at the two bytes of zlib's header: some servers leave it out (RFC 9110, section 8.4.1.2)."""
        self._head += data
        if len(self._head) > 1:
            self._begun = True
            if self._head[0] & 15 != 8 or int.from_bytes(self._head[:2]) % 31:
                self._zlib = zlib.decompressobj(_RAW)
        return self._head

    def _next(self, rest: bytes) -> bytes:
        """Begin the next member of a gzip file, if there is one."""
        rest = rest.lstrip(b"\0") if self._coding != "deflate" else b""
        if rest:
            self._zlib = zlib.decompressobj(_WINDOWS[self._coding])
        return rest


def decompressor(response: Any) -> Decompressor | None:
    """Return what decompresses a response; None where it is not compressed, or not in a form that is known here."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    return Decompressor(coding) if coding in _WINDOWS else None


def is_plain(response: Any) -> bool:
    """Whether the content comes out of `pieces` as it is meant: not compressed, or decompressed."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    return coding in _IDENTITY or coding in _WINDOWS or response.is_stream_consumed


def pieces(response: Any, family: Family) -> Iterator[bytes]:
    """Yield the content of a response, decompressed; raise the family's DecodingError where that fails."""
    if response.is_stream_consumed:  # its content is at hand already, as that of a transport made for tests is
        yield from response.iter_bytes()
        return
    inflate = decompressor(response)
    try:
        for raw in response.iter_raw():
            if inflate is None:
                yield raw
            else:
                yield from inflate.feed(raw)
    except zlib.error as error:
        raise family.module.DecodingError(str(error)) from error


async def pieces_async(response: Any, family: Family) -> AsyncGenerator[bytes]:
    """Do the same on an event loop."""
    if response.is_stream_consumed:
        async with aclosing(response.aiter_bytes()) as whole:
            async for piece in whole:
                yield piece
        return
    inflate = decompressor(response)
    try:
        async with aclosing(response.aiter_raw()) as raws:
            async for raw in raws:
                if inflate is None:
                    yield raw
                else:
                    for piece in inflate.feed(raw):
                        yield piece
    except zlib.error as error:
        raise family.module.DecodingError(str(error)) from error


def ends_at_hand(response: Any) -> bool:
    """Whether the end of an HTTP/1.1 reply in chunks has come, so that reading to it does not wait.

    A connection whose reply was not read to its end is closed and cannot be used again. Neither library has a public
    name for what it has received and not read; where that is not found the answer is no.
    """
    inside = response.stream
    for name in _INSIDE:
        inside = getattr(inside, name, inside)
    state = getattr(inside, "_h11_state", None)
    return state is not None and (bytes(state.trailing_data[0]) + _waiting(response)).endswith(_END)


def _waiting(response: Any) -> bytes:
    """Return what waits in a plain socket, without taking it."""
    stream = response.extensions.get("network_stream")
    own = stream and stream.get_extra_info("socket")
    if type(own) is not socket.socket:
        return b""
    try:
        return own.recv(PIECE, socket.MSG_PEEK) if stream.get_extra_info("is_readable") else b""
    except OSError:  # it is closed
        return b""


_END = b"0\r\n\r\n"
"""The last chunk."""
_INSIDE = ("_stream", "_httpcore_stream", "_stream", "_connection")
"""From the stream of a response to its connection; the first is there where a client sent the request."""
