"""HTTP/1.1 to a server, with llhttp (httptools) as the parser: one request at a time on each connection.

httpx and httpcore read a response with h11, in Python, through a dozen layers; that took half of the processor time of
a request through the proxy. Here the event loop passes incoming bytes to the parser, which calls `DirectResponse`.

    request     If its body is complete, the whole request is written immediately. Otherwise its head is written
                immediately, and its body piece by piece as it arrives from the client. The connection is read
                meanwhile: a server may answer before it has the whole request (401, 413), and then stop reading.
    response    Its head resolves `DirectResponse.head`. Its body is buffered until `__anext__` takes the buffer. Above
                `MAX_BUFFERED` bytes reading pauses, so that a slow client slows the server down.
    end         The parser finds the end of the response. A body without a declared length ends with the connection (RFC
                9112, section 6.3). A connection that can be reused is idle from then on, even if the body has not been
                taken yet.

What a server sends beyond a response must never become the answer to another request. So a connection is reused only if
all of this is true: the response had a body with a declared length, it ended with the last byte that arrived, the whole
request had been written before, and the server did not announce that it would close. Any data on an idle connection
closes it. Errors never quote received data. `docs/why/proxy-safety.md` has the reasons.

A server may close an idle connection at any time. A closed connection is not reused, and a request that was lost with
its connection is not sent again here. All errors are exceptions of httpx, from which `transport.driver` derives the
kind of failure. Interim responses (1xx) are skipped.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import httptools

from promptools.proxy.header_fields import Fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


MAX_BUFFERED = 1 << 16
"""Number of buffered bytes of a body above which reading pauses until they are taken."""
MAX_HEAD = 1 << 17
"""Maximum number of bytes of a response apart from its body: status line, header fields, chunk sizes and trailers.

If the body is long, more bytes are allowed (`MAX_FRAMING`).
"""
MAX_FRAMING = 16
"""For each byte of the body, this many bytes outside the body are allowed in addition to `MAX_HEAD`."""
EVENT_LOOP_TURNS = 4
"""Number of event loop iterations after which data that waits in a socket has reached the parser."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_BODY = frozenset({204, 304})


class StreamedBody(Protocol):
    """A request's body that is sent while it arrives."""

    length: int | None
    """The length of the body in bytes; None if the body is sent in chunks."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class DirectResponse:
    """A server's response, with the attributes of httpx's `Response` that the proxy uses.

    As an async iterator, it yields the body in pieces, as they arrive.
    """

    is_stream_consumed = False

    def __init__(self, connection: Http1Connection, errors: Any, method: str) -> None:
        self.status_code = 0
        self.headers: Any = Fields([])
        self._stream: Any = None
        self.extensions: dict[str, Any] = {}
        self.request: Any = None
        self.complete = False
        """Whether the whole response has arrived."""
        self.keep_alive = False
        """Whether another request may follow on the connection."""
        self.has_surplus = False
        """Whether the server has sent data after the end of this response."""
        self.is_unanswered = False
        """Whether the connection ended before anything was received."""
        self.ends_with_connection = False
        self.on_answered: Callable[[], object] | None = None
        """Called when the status and header fields have arrived, or can no longer arrive."""
        self._failure: tuple[type[Exception], str] | None = None
        """The class and message of the error that is raised once everything that arrived has been read.

        They are stored in place of an exception, because the traceback of an exception would refer to this object.
        """
        self.waiting_since: float | None = None
        self._connection = connection
        self._errors = errors
        self._waiter: asyncio.Future[None] | None = None
        self._is_to_head = method == "HEAD"
        self._has_head = False
        self._length: bytes | None = None
        self._codings: list[bytes] = []
        """The transfer codings of the response."""
        self._may_stay_open = False
        self._pieces: list[bytes] = []
        self._size = 0
        """Number of bytes of the body that are buffered."""
        self._received = self._received_body = self._trailer_size = 0
        self._progressed = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_chunked_length=True,
            lenient_data_after_close=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,  # old servers pad the size
        )

    # -- for the driver

    @property
    def stream(self) -> Any:
        """The stream of the body: this response itself, unless another stream was set.

        The response stores no reference to itself: with such a reference, only the garbage collector could free it.
        """
        return self if self._stream is None else self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = stream

    @property
    def has_redirect_location(self) -> bool:
        """Whether the response is a redirect with a location."""
        return self.status_code in _REDIRECTS and "location" in self.headers

    @property
    def is_closed(self) -> bool:
        """Whether the whole response has arrived, and the connection is free. The body may still be unread."""
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

    @property
    def is_answered(self) -> bool:
        """Whether the status and header fields have arrived, or the response has failed."""
        return self._has_head or self._failure is not None

    async def head(self) -> None:
        """Wait until the status and the header fields have arrived; raise an error if they can no longer arrive."""
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
        """Drop the parser: it refers back to this response, and only the garbage collector frees a reference cycle."""
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Parse incoming data. The last byte is parsed alone, to see whether the response ends exactly there.

        Only the complete header and bytes of the body wake a waiting reader and restart its timeout. So neither
        trailers nor chunk extensions can keep a response open forever.
        """
        self._progressed = False
        self._received += len(data)
        view = memoryview(data)
        try:
            self._parser.feed_data(view[:-1])
            if self.complete:
                self.has_surplus = True
            elif self._failure is None:
                self._parser.feed_data(view[-1:])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.complete:
                self.has_surplus = True
            elif self._failure is None:
                self.fail(self._errors.RemoteProtocolError, f"the response is not HTTP: {error}")
        if not self.complete and self._received - self._received_body > MAX_HEAD + MAX_FRAMING * self._received_body:
            self._fail_for_length()
        if self._progressed:
            self._wake()

    def _fail_for_length(self) -> None:
        what = "what surrounds the body" if self._has_head else "the head of the response"
        self.fail(self._errors.RemoteProtocolError, f"{what} is too long")

    def end_of_connection(self, error: Exception | None) -> None:
        """Handle the end of the connection, which also ends a response without a declared length."""
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
        self.is_unanswered = not self._received
        self._wake()

    def fail(self, error: type[Exception], message: str) -> None:
        """Close the connection, and raise `error` in the reader once it has read all the data that arrived before."""
        if self._failure is None:
            self._failure = error, message
        self._connection.close()
        self._wake()
        self._report_answer()

    def time_out(self) -> None:
        """Fail the response, because nothing has arrived for too long."""
        self.fail(self._errors.ReadTimeout, "the server sent nothing for too long")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _report_answer(self) -> None:
        if self.on_answered is not None:
            self.on_answered()

    # -- for the parser

    def on_message_begin(self) -> None:
        """Begin a response: the first one, or the one that follows an interim response."""
        if not self.complete:
            self.headers.raw.clear()
            self._codings.clear()
            self._length = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field; trailers are dropped."""
        if self._has_head:
            self._trailer_size += len(name) + len(value)
            if self._trailer_size > MAX_HEAD and not self.complete:
                self._fail_for_length()
            return
        value = value.rstrip(b" \t")
        self.headers.raw.append((name, value))
        lower = name.lower()
        if lower == b"content-length":
            self._length = value
        elif lower == b"transfer-encoding":
            self._codings += [coding.strip() for coding in value.lower().split(b",")]

    def on_headers_complete(self) -> None:
        """Handle the end of the header fields: fail if they are invalid; skip those of an interim response (1xx)."""
        if self.complete or self._failure is not None:
            return
        self._progressed = True
        status = self.status_code = self._parser.get_status_code()
        problem = self._problem(status)
        if problem is not None:
            self.fail(self._errors.RemoteProtocolError, problem)
        elif status >= 200:
            self._has_head = True
            self._decide_framing(self._is_to_head or status in _NO_BODY)
            self._report_answer()

    def _problem(self, status: int) -> str | None:
        """Return what is wrong with a status and header fields that the parser accepted; None if they are valid."""
        if status < 100:
            return f"{status:03} is not a valid HTTP status code"
        if status == 101:
            return "the server switched to another protocol, which was not requested"
        if status < 200:
            has_body = self._codings or (self._length or b"0").strip(b"0")
            return "an interim response has a body" if has_body else None
        if self._codings and self._codings != [b"chunked"]:
            return "the response has a transfer coding that was not asked for"
        return None

    def _decide_framing(self, without_body: bool) -> None:
        """Decide how the end of the body is found: by its length, its chunks, or the end of the connection.

        If the response must not have a body, the connection is not reused, since some servers send a body anyway.
        """
        chunked, has_length = bool(self._codings), self._length is not None
        if chunked and has_length:  # the chunks decide, and the client must not get the length
            self.headers.raw = [pair for pair in self.headers.raw if pair[0].lower() != b"content-length"]
        self.ends_with_connection = not (chunked or has_length or without_body)
        self._may_stay_open = chunked is not has_length and not without_body
        self.complete = self._is_to_head

    def on_body(self, data: bytes) -> None:
        """Buffer a piece of the body."""
        if self.complete or not self._has_head:
            return
        self._progressed = True
        self._received_body += len(data)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self._connection.pause_reading()

    def on_message_complete(self) -> None:
        """End the response."""
        if self._has_head and not self.complete and self._failure is None:
            self._progressed = self.complete = True
            self.keep_alive = self._may_stay_open and bool(self._parser.should_keep_alive())


class Http1Connection(asyncio.Protocol):
    """A connection to a server.

    `on_idle` is called when the connection may be used for another request, `on_lost` when it was closed, and
    `on_surplus` when the server has sent something beyond the response to a request.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_idle: Callable[[Http1Connection], None],
        on_lost: Callable[[Http1Connection], None],
        on_surplus: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.idle_since = 0.0
        self.owner = b""
        """A digest of the client's keys; this connection carries only requests with the same digest."""
        self.is_reused = False
        self.closed_unanswered = False
        """Whether the connection ended before any part of the response arrived."""
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._on_surplus = on_surplus
        self._transport: Any = None
        self._response: DirectResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        """A future that is done once the server accepts data again; None while it accepts data."""
        self._is_written = True
        """Whether the whole request was written."""
        self._greeting = b""
        """Data that the server sent before the first request, as an overloaded server may do."""
        self._lost_at_once: tuple[Exception | None] | None = None

    async def send(
        self,
        data: list[bytes],
        errors: Any,
        timeouts: dict[str, float | None],
        *,
        method: str = "POST",
        body: StreamedBody | None = None,
    ) -> DirectResponse:
        """Send a request, first `data`, then `body`; return its response once the header fields have arrived."""
        response = self._response = DirectResponse(self, errors, method)
        read_timeout = timeouts.get("read")
        if read_timeout is not None:
            self._timer = self.loop.call_later(read_timeout, self._check_timeout, response, read_timeout)
        try:
            self._write(data)
            if not self.is_reused:
                self._take_greeting(response)
            if body is not None and not response.is_answered:
                await self._stream(body, response, errors, timeouts.get("write"))
            await response.head()
        except BaseException:
            self.close()
            raise
        return response

    def _write(self, data: list[bytes]) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(data)

    def _take_greeting(self, response: DirectResponse) -> None:
        """Treat data that arrived before the first request as the response to that request."""
        if self._greeting:
            self._is_written = False  # so that no request may follow on this connection
            self.data_received(self._greeting)
        if self._lost_at_once is not None:
            response.end_of_connection(*self._lost_at_once)

    async def _stream(self, body: StreamedBody, response: DirectResponse, errors: Any, timeout: float | None) -> None:
        """Write the request's body in a separate task, which is stopped when the server answers."""
        self._is_written = False
        writing = self.loop.create_task(self._write_body(body, errors, timeout))
        response.on_answered = writing.cancel
        try:
            await asyncio.wait((writing,))
        finally:
            response.on_answered = None
            if not writing.done():  # this task was cancelled; nobody else may read the body while `writing` does
                writing.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait((writing,))
        error = None if writing.cancelled() else writing.exception()
        self._is_written = not writing.cancelled() and error is None
        if error is not None and not response.is_answered:
            raise error

    async def _write_body(self, body: StreamedBody, errors: Any, timeout: float | None) -> None:
        left = body.length
        async for piece in body:
            if not piece:
                continue
            if left is not None:
                left -= len(piece)
                if left < 0:
                    raise errors.LocalProtocolError("the request's body is longer than its Content-Length")
            # writing to a closed connection would lose the answer that arrived before
            for _ in range(EVENT_LOOP_TURNS if _is_readable(self._transport.get_extra_info("socket")) else 0):
                await asyncio.sleep(0)
            self._write([piece] if left is not None else [b"%x\r\n" % len(piece), piece, b"\r\n"])
            await self._drain(errors, timeout)
        if left:
            raise errors.LocalProtocolError("the request's body is shorter than its Content-Length")
        if left is None:
            self._write([b"0\r\n\r\n"])

    async def _drain(self, errors: Any, timeout: float | None) -> None:
        """Wait until the server has accepted most of the written data; raise `WriteTimeout` after `timeout` seconds."""
        if self._writable is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable
        except TimeoutError:
            raise errors.WriteTimeout("the server accepted no data for too long") from None

    def is_usable(self) -> bool:
        """Return whether another request may be sent: the server has neither sent anything nor closed the connection.

        A busy event loop may notice data or the end of the connection too late, and then the next request would be
        lost. So the socket itself is checked.
        """
        return not self._transport.is_closing() and not _is_readable(self._transport.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection."""
        self._stop_timer()
        self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading until the buffered body has been taken."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # -- for the event loop

    def pause_writing(self) -> None:
        """Make writers wait, because the server does not accept data fast enough."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """Wake the writer that waits, if any."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the new connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass data from the server to the current response.

        Data before the first request is kept. Data between two requests closes the connection.
        """
        response = self._response
        if response is not None:
            response.feed(data)
            if response.complete:
                self._end(response)
        elif self.is_reused or len(self._greeting) > MAX_HEAD:
            self._on_surplus()
            self.close()
        else:
            self._greeting += data

    def eof_received(self) -> None:
        """Handle the end of the server's data: the connection is closed."""
        self._end_response(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._stop_timer()
        self._lost_at_once = (exc,)
        self._end_response(exc)
        response, self._response = self._response, None
        if response is not None:
            response.release()
        self._on_lost(self)

    def _end_response(self, exc: Exception | None) -> None:
        if self._response is not None:
            self._response.end_of_connection(exc)
            self.closed_unanswered = self._response.is_unanswered

    def _end(self, response: DirectResponse) -> None:
        """End a response, and decide whether another request may follow on this connection."""
        self._stop_timer()
        self._response = None
        response.release()
        if response.has_surplus:
            self._on_surplus()
        is_written = self._is_written and not self._transport.get_write_buffer_size()
        if not is_written:
            self._transport.abort()
        elif response.has_surplus or not response.keep_alive:
            self._transport.close()
        else:
            self.resume_reading()
            self.is_reused = True
            self._on_idle(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_timeout(self, response: DirectResponse, seconds: float) -> None:
        """Fail a read that takes too long. Since most reads are fast, one timer serves all reads of a response."""
        now = self.loop.time()
        since = now if response.waiting_since is None else response.waiting_since
        if now - since >= seconds:
            response.time_out()
            return
        self._timer = self.loop.call_at(since + seconds, self._check_timeout, response, seconds)


def _is_readable(sock: Any) -> bool:
    """Return whether a socket has data to read, or was closed by the other side."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
