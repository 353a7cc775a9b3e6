"""The content of an upstream response, read in pieces; decompressed pieces have a limited size.

The HTTP libraries decompress each network read as a whole, which turns 64 KB of compressed zeros into 64 MB. So only
codings that are decompressed here are requested, and content in any other coding stays compressed.
"""

from __future__ import annotations

import socket
import zlib
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from promptools.transport.http_library import HttpLibrary


MAX_PIECE = 1 << 16
"""Maximum size of one piece after decompression, in bytes."""
_WBITS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""The `wbits` argument of zlib for each coding."""
_RAW_WBITS = -zlib.MAX_WBITS
_IDENTITY = frozenset({"", "identity"})


def supported_encodings(value: str) -> str:
    """Return an `Accept-Encoding` value with only the codings decompressed here; if there are none, `identity`."""
    supported = [coding.strip() for coding in value.split(",") if _coding_name(coding) in _WBITS]
    return ", ".join(supported) or "identity"


def _coding_name(value: str) -> str:
    return value.partition(";")[0].strip().lower()


class Decompressor:
    """Decompresses gzip (one or several members) or deflate, piece by piece and in linear time."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._zlib = zlib.decompressobj(_WBITS[coding])
        self._head = b""
        self._header_checked = coding != "deflate"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield `data` decompressed, at most `MAX_PIECE` bytes at a time; raise `zlib.error` if it is invalid."""
        if not self._header_checked:
            data = self._check_header(data)
        while self._header_checked:
            piece = self._zlib.decompress(data, MAX_PIECE)
            data = self._zlib.unconsumed_tail
            if piece:
                yield piece
            if self._zlib.eof:
                data = self._next_member(self._zlib.unused_data)
            if not data and len(piece) < MAX_PIECE:
                return

    def _check_header(self, data: bytes) -> bytes:
        """Check for zlib's header of two bytes, which some servers omit (RFC 9110, section 8.4.1.2).

        Returns all data so far, because decompression begins only after the check.
        """
        self._head += data
        if len(self._head) > 1:
            self._header_checked = True
            if self._head[0] & 15 != 8 or int.from_bytes(self._head[:2]) % 31:
                self._zlib = zlib.decompressobj(_RAW_WBITS)
        return self._head

    def _next_member(self, rest: bytes) -> bytes:
        """Start the next member of a gzip stream, if there is one; return its data."""
        rest = rest.lstrip(b"\0") if self._coding != "deflate" else b""
        if rest:
            self._zlib = zlib.decompressobj(_WBITS[self._coding])
        return rest


def decompressor_for(response: Any) -> Decompressor | None:
    """Return the decompressor for a response; None for an uncompressed response or an unsupported coding."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    return Decompressor(coding) if coding in _WBITS else None


def is_readable(response: Any) -> bool:
    """Return whether `iter_content` yields plain bytes: the response is uncompressed, or is decompressed on reading."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    return coding in _IDENTITY or coding in _WBITS or response.is_stream_consumed


def iter_content(response: Any, library: HttpLibrary) -> Iterator[bytes]:
    """Yield the content of a response, decompressed; raise the library's `DecodingError` if that fails."""
    if response.is_stream_consumed:  # the content is already in memory, as with a mock transport
        yield from response.iter_bytes()
        return
    inflate = decompressor_for(response)
    try:
        for raw in response.iter_raw():
            if inflate is None:
                yield raw
            else:
                yield from inflate.feed(raw)
    except zlib.error as error:
        raise library.module.DecodingError(str(error)) from error


async def aiter_content(response: Any, library: HttpLibrary) -> AsyncGenerator[bytes]:
    """Async version of `iter_content`."""
    if response.is_stream_consumed:
        async with aclosing(response.aiter_bytes()) as content:
            async for piece in content:
                yield piece
        return
    inflate = decompressor_for(response)
    try:
        async with aclosing(response.aiter_raw()) as raws:
            async for raw in raws:
                if inflate is None:
                    yield raw
                else:
                    for number, piece in enumerate(inflate.feed(raw)):
                        if number:
                            await checkpoint()  # one read may yield a thousand pieces: other tasks run between them
                        yield piece
    except zlib.error as error:
        raise library.module.DecodingError(str(error)) from error


def content_iterator(response: Any, library: HttpLibrary) -> AsyncIterator[bytes]:
    """Return an async iterator over the decompressed content of a response.

    If the response is uncompressed and is its own stream, the response itself is returned.
    """
    if response.stream is response and decompressor_for(response) is None:
        own: AsyncIterator[bytes] = response
        return own
    return aiter_content(response, library)


def end_received(response: Any) -> bool:
    """Return whether the end of a chunked HTTP/1.1 response has been received; reading to the end then does not block.

    A connection whose response was not read to its end is closed instead of reused. Neither library has a public API
    for data that was received but not read; if that data cannot be found, the result is False. The result is also False
    for a closed response, because another thread may be using its connection.
    """
    if response.is_closed:
        return False
    layer = response.stream
    for name in _CONNECTION_PATH:
        layer = getattr(layer, name, layer)
    state = getattr(layer, "_h11_state", None)
    return state is not None and (bytes(state.trailing_data[0]) + _unread_socket_data(response)).endswith(_LAST_CHUNK)


def _unread_socket_data(response: Any) -> bytes:
    """Return the data waiting in a response's socket, without consuming it; empty if the socket uses TLS."""
    stream = response.extensions.get("network_stream")
    raw_socket = stream and stream.get_extra_info("socket")
    if type(raw_socket) is not socket.socket:
        return b""
    timeout = raw_socket.gettimeout()
    try:
        raw_socket.settimeout(0)  # else it would wait as long as the client's own time-out
        return raw_socket.recv(MAX_PIECE, socket.MSG_PEEK)
    except OSError:  # nothing is waiting, or the socket is closed
        return b""
    finally:
        with suppress(OSError):
            raw_socket.settimeout(timeout)


_LAST_CHUNK = b"0\r\n\r\n"
"""The last chunk of a chunked body."""
_CONNECTION_PATH = ("_stream", "_httpcore_stream", "_stream", "_connection")
"""Attributes to follow from a response's stream to the connection; a missing attribute is skipped.

The first one exists only if a client object of the HTTP library sent the request, rather than a bare transport.
"""
