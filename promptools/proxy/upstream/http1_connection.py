"""HTTP/1.1 to a server, with llhttp (httptools) as the parser: one request at a time on each connection.

httpx and httpcore read a response with h11, in Python, through a dozen layers; that was half of the processor time of a
request through the proxy. Here the event loop hands what arrives to the parser, and the parser to `DirectResponse`.

    request     written at once, head and body; an exchange has the whole of it
    response    its head resolves `DirectResponse.head`; its body is buffered until `__anext__` takes all of it.
                Above `MAX_BUFFERED` bytes reading pauses, so that a slow client slows the server down
    end         by the parser or, for a body without a declared length, by the end of the connection. At the end the
                connection is idle again, even if the body has not been taken yet

Nothing is resent here: a server may close an idle connection at any time. One that has been closed is not used again;
a request that was sent at that moment is sent again by the driver.
Errors are those of httpx, by which the driver classifies failures. Interim responses (1xx) are skipped.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Any

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BUFFERED = 1 << 16
"""Bytes of a body from which reading pauses until they are taken."""
MAX_HEAD = 1 << 17
"""Maximum number of bytes of a response's head."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_BODY = frozenset({204, 304})


class Fields:
    """Header fields as they are on the wire; names are compared case-insensitively."""

    __slots__ = ("raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the values of a field, joined with commas."""
        key = name.encode("latin-1").lower()
        values = [value for field, value in self.raw if field.lower() == key]
        return b", ".join(values).decode("latin-1") if values else default

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


class DirectResponse:
    """A response: what the driver needs of one of httpx, and an async iterator over its body."""

    is_stream_consumed = False

    def __init__(self, connection: Http1Connection, errors: Any) -> None:
        self.status_code = 0
        self.headers: Any = Fields([])
        self._stream: Any = None
        self.extensions: dict[str, Any] = {}
        self.request: Any = None
        self.complete = False
        """Whether all of it has arrived."""
        self.keep_alive = False
        """Whether another request may follow on the connection."""
        self.ends_with_connection = False
        self._failure: tuple[type[Exception], str] | None = None
        """What to raise once all that has arrived is read; an exception would refer to this object by its traceback."""
        self.waiting_since: float | None = None
        self._connection = connection
        self._errors = errors
        self._waiter: asyncio.Future[None] | None = None
        self._has_head = False
        self._has_length = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True, lenient_data_after_close=True, lenient_optional_cr_before_lf=True
        )

    # -- for the driver

    @property
    def stream(self) -> Any:
        """The body: this response, unless it was replaced. A reference to itself would need the collector."""
        return self if self._stream is None else self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = stream

    @property
    def has_redirect_location(self) -> bool:
        """Whether the response is a redirect."""
        return self.status_code in _REDIRECTS and "location" in self.headers

    @property
    def is_released(self) -> bool:
        """Whether the connection is free: the whole response has been received, read or not."""
        return self.complete

    def aiter_raw(self) -> Any:
        """Return an async iterator over the body."""
        return self if self._stream is None else aiter(self._stream)

    def __aiter__(self) -> DirectResponse:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self.complete:
                raise StopAsyncIteration
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._connection.resume_reading()
        return data

    async def aclose(self) -> None:
        """Close the connection, unless the response is complete."""
        if not self.complete:
            self._connection.close()

    async def head(self) -> None:
        """Wait for the status and the header fields."""
        while not self._has_head:
            await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            error, message = self._failure
            raise error(message)
        loop = self._connection.loop
        self._waiter = loop.create_future()
        self.waiting_since = loop.time()
        try:
            await self._waiter
        finally:
            self._waiter = self.waiting_since = None

    # -- for the connection

    def release(self) -> None:
        """Drop the parser of a complete response: it refers to its methods, so only the collector would free both."""
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        if not self._has_head:
            self._size += len(data)
            if self._size > MAX_HEAD:
                self.fail(self._errors.RemoteProtocolError, "the head of the response is too long")
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                self.fail(self._errors.RemoteProtocolError, f"the response is not HTTP: {error}")
            self.keep_alive = False
        self._wake()

    def end_of_connection(self, error: Exception | None) -> None:
        """Handle the end of the connection, which ends a response without a declared length, too."""
        if self.complete or self._failure is not None:
            return
        if self._has_head and self.ends_with_connection and error is None:
            self.complete = True
        elif self._has_head:
            self.fail(self._errors.RemoteProtocolError, "peer closed connection without sending complete message body")
        elif error is not None:
            self.fail(self._errors.ReadError, str(error))
        else:
            self.fail(self._errors.RemoteProtocolError, "Server disconnected without sending a response.")
        self._wake()

    def fail(self, error: type[Exception], message: str) -> None:
        """Raise an error of this class to who waits, after what has arrived before it."""
        self._failure = error, message
        self._connection.close()
        self._wake()

    def time_out(self) -> None:
        """Fail because nothing has arrived for too long."""
        self.fail(self._errors.ReadTimeout, "the server sent nothing for too long")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- for the parser

    def on_message_begin(self) -> None:
        """Begin a response; one after the complete one was not asked for."""
        if self.complete:
            self.keep_alive = False
            return
        self.headers.raw.clear()
        self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field; trailers are dropped."""
        if self._has_head:
            return
        self.headers.raw.append((name, value.rstrip(b" \t")))
        lower = name.lower()
        if lower == b"content-length" or (lower == b"transfer-encoding" and value.lower().endswith(b"chunked")):
            self._has_length = True

    def on_headers_complete(self) -> None:
        """Pass the head on, unless it is that of an interim response."""
        if self.complete:
            return
        self.status_code = self._parser.get_status_code()
        if self.status_code < 100:
            self.fail(self._errors.RemoteProtocolError, f"{self.status_code:03} is no status of HTTP")
        if self.status_code < 200:
            return
        self._has_head = True
        self._size = 0
        self.ends_with_connection = not self._has_length and self.status_code not in _NO_BODY

    def on_body(self, data: bytes) -> None:
        """Buffer a piece of the body."""
        if self.complete or not self._has_head:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self._connection.pause_reading()

    def on_message_complete(self) -> None:
        """End the response."""
        if self._has_head and not self.complete:
            self.complete = True
            self.keep_alive = bool(self._parser.should_keep_alive())


class Http1Connection(asyncio.Protocol):
    """A connection to a server. `on_idle` is called when it may be used again, `on_lost` when it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_idle: Callable[[Http1Connection], None],
        on_lost: Callable[[Http1Connection], None],
    ) -> None:
        self.loop = loop
        self.idle_since = 0.0
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._transport: Any = None
        self._response: DirectResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False

    async def send(self, data: list[bytes], errors: Any, read_timeout: float | None) -> DirectResponse:
        """Send a request; return its response once its head has arrived."""
        response = self._response = DirectResponse(self, errors)
        if read_timeout is not None:
            self._timer = self.loop.call_later(read_timeout, self._check_timeout, response, read_timeout)
        self._transport.writelines(data)
        try:
            await response.head()
        except BaseException:
            self.close()
            raise
        return response

    def is_usable(self) -> bool:
        """Whether another request may be sent: nothing has arrived meanwhile, not even the end of the connection.

        A busy event loop learns of it late, and what was sent by then is lost; so the socket itself is asked.
        """
        return not self._transport.is_closing() and not _is_readable(self._transport.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection."""
        self._stop_timer()
        self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading, until the buffered body is taken."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # -- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass data on to the response that it belongs to."""
        response = self._response
        if response is None:  # not asked for
            self.close()
            return
        response.feed(data)
        if response.complete:
            self._end(response)

    def eof_received(self) -> None:
        """Handle the end of what the server sends: the connection is closed."""
        if self._response is not None:
            self._response.end_of_connection(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._stop_timer()
        response, self._response = self._response, None
        if response is not None:
            response.end_of_connection(exc)
            response.release()
        self._on_lost(self)

    def _end(self, response: DirectResponse) -> None:
        self._stop_timer()
        self._response = None
        response.release()
        if not response.keep_alive:
            self._transport.close()
            return
        self.resume_reading()
        self._on_idle(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_timeout(self, response: DirectResponse, seconds: float) -> None:
        """Fail a read that takes too long; one timer serves all reads of a response, since most take far less."""
        now = self.loop.time()
        since = now if response.waiting_since is None else response.waiting_since
        if now - since >= seconds:
            response.time_out()
            return
        self._timer = self.loop.call_at(since + seconds, self._check_timeout, response, seconds)


def _is_readable(sock: Any) -> bool:
    """Whether a socket has data, or has been closed by the other side."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
