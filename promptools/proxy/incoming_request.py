"""A client's request: its destination, and its body, which is read whole or streamed to the server."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from promptools.masking import keys_in, secrets_in
from promptools.proxy.asgi import DisconnectedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from promptools.proxy.asgi import Message, Receive, Scope, Send
    from promptools.proxy.in_flight import RequestInFlight
    from promptools.proxy.routing import RequestRouter
    from promptools.proxy.served_config import ServedConfig
    from promptools.transport.endpoints import Endpoint


# The body.


DRAIN_SECONDS = 2.0
"""Maximum number of seconds for which the rest of a request's body is read and dropped after the response."""
WATCH_SECONDS = 0.02
"""Seconds after the end of a request's body before the proxy starts to watch whether the client disconnects.

A request that is answered faster needs no watching, which saves a task.
"""
_MAX_DIGITS = 20
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding", b"expect"})


class RequestBody:
    """The body of one request; only one task at a time may read it.

    As an async iterator it yields the pieces as the client sends them. The next piece is read only on demand, so
    nothing is buffered here, and a slow server slows the client down.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        fields = [pair for pair in scope["headers"] if pair[0].lower() in _BODY_FIELDS]
        lengths = [value for name, value in fields if name.lower() == b"content-length"]
        chunked = any(name.lower() == b"transfer-encoding" for name, _ in fields)
        valid = len(lengths) == 1 and lengths[0].isdigit() and len(lengths[0]) <= _MAX_DIGITS and not chunked
        self.length = int(lengths[0]) if valid else None
        """The value of `Content-Length`; None if the request has no valid length, or is chunked."""
        self._declared = chunked or bool(lengths)
        self._expects_continue = any(name.lower() == b"expect" for name, _ in fields)
        self._first_piece = b""
        self._whole: bytes | None = None
        self._reading_started = False
        self._complete = False
        self._completed: anyio.Event | None = None
        """Set when the body is complete; None if nobody waits for that."""
        self.is_abandoned = False
        """Whether the body is no longer read, except by `wait_for_disconnect`."""
        self.on_abandoned: Callable[[float], None] = _do_nothing
        """A callback that `abandon` calls once, with a delay in seconds.

        The callback should arrange that `wait_for_disconnect` is called after this delay.
        """

    async def to_forward(self) -> RequestBody | bytes:
        """Return the body to forward: as a stream, or as bytes if it has already arrived completely."""
        if self._declared:
            return self
        self._first_piece = await anext(self, b"")  # an HTTP/2 request may have a body without declaring it
        return self._first_piece if self._complete else self

    async def read(self, limit: int) -> bytes:
        """Read and keep the whole body; raise `DisconnectedError` if the client disconnects before its end.

        Raises `RefusedError` as soon as the body is known to be longer than `limit` bytes.
        """
        if self._whole is not None:
            return self._whole
        _check_size(self.length or 0, limit)
        pieces: list[bytes] = []
        size = 0
        async for piece in self:
            size += len(piece)
            _check_size(size, limit)
            pieces.append(piece)
        self._whole = b"".join(pieces)
        return self._whole

    async def peek(self, limit: int) -> bytes | None:
        """Return the whole body, or None if it has more than `limit` bytes; either way, it can still be streamed."""
        if (self.length or 0) > limit:
            return None
        pieces: list[bytes] = []
        size = 0
        async for piece in self:
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                break
        self._first_piece = b"".join(pieces)
        return self._first_piece if self._complete and size <= limit else None

    def __aiter__(self) -> RequestBody:
        return self

    async def __anext__(self) -> bytes:
        if self._first_piece:
            first, self._first_piece = self._first_piece, b""
            return first
        if self._complete:
            raise StopAsyncIteration
        message = await self._receive_message()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        piece: bytes = message.get("body", b"")
        return piece

    def abandon(self) -> None:
        """Record that the body is no longer read, except perhaps by `wait_for_disconnect`."""
        if not self.is_abandoned:
            self.is_abandoned = True
            on_abandoned, self.on_abandoned = self.on_abandoned, _do_nothing
            on_abandoned(WATCH_SECONDS if self._complete else 0.0)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects, discarding the rest of the body."""
        while (await self._receive_message())["type"] != "http.disconnect":
            await checkpoint()

    async def send_last(self, send: Send, message: Message) -> None:
        """Send the last message of a response, once the rest of the request's body has arrived or takes too long.

        The response may be complete before the request is. Many clients read the response only after they have sent the
        whole request, and lose it if the connection is closed earlier. A client that still waits for `100 Continue`
        sends no body, so the response is sent immediately.
        """
        if not self._complete and (self._reading_started or not self._expects_continue):
            await send({**message, "more_body": True})
            message = {"type": message["type"], "body": b""}
            self._completed = anyio.Event()
            self.abandon()
            with anyio.move_on_after(DRAIN_SECONDS):
                await self._completed.wait()
        await send(message)

    async def _receive_message(self) -> Message:
        self._reading_started = True
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._complete = True
            if self._completed is not None:
                self._completed.set()
            self.abandon()
        return message


@contextmanager
def streaming_body(body: RequestBody) -> Generator[None]:
    """Allow the body to be streamed inside the `with` block; after the block, it is no longer read."""
    try:
        yield
    finally:
        body.abandon()


def check_framing(scope: Scope) -> None:
    """Raise `RefusedError` for a request that states its length in two ways, which allows request smuggling."""
    names = {name.lower() for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        message = "the request has both Content-Length and Transfer-Encoding: where it ends is uncertain"
        raise RefusedError(400, message, code="bad_framing", headers=((b"connection", b"close"),))


def has_json_body(scope: Scope) -> bool:
    """Return whether a request is a POST with an uncompressed JSON body, according to its header fields."""
    fields = {name.lower(): value.lower() for name, value in scope["headers"]}
    is_json = fields.get(b"content-type", b"").partition(b";")[0].strip() == b"application/json"
    return scope["method"] == "POST" and is_json and b"content-encoding" not in fields


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        message = (
            f"the request's body is longer than the {limit} bytes that this proxy reads; its operator may raise that"
            " with --max-body"
        )
        raise RefusedError(413, message, code="body_too_large")


def _do_nothing(seconds: float) -> None:
    """Do nothing; the initial value of `on_abandoned`."""


# The request, and what decides where it goes.


MIN_CHECKED_LENGTH = 4
"""Minimum length of a client's key that observers mask; a shorter key may occur in any text by accident."""


@dataclass(frozen=True, slots=True, eq=False)
class IncomingRequest:
    """A client's request, and the facts that decide to which server it is sent."""

    served: ServedConfig
    in_flight: RequestInFlight
    path: str
    query: str
    body: RequestBody
    router: RequestRouter | None
    """The router; None if the request goes to the only server."""

    @property
    def scope(self) -> Scope:
        """The request's ASGI scope."""
        return self.in_flight.scope

    @property
    def method(self) -> str:
        """The request's HTTP method."""
        method: str = self.scope["method"]
        return method

    @property
    def url(self) -> str:
        """The request's URL at the proxy's only server, or at the first server of the default provider."""
        return self.served.upstream.url(self.path, self.query)

    @property
    def base_url(self) -> str:
        """The base URL of the server to which the request was last sent.

        Before that, it is the base URL of the proxy's only server, or of the default provider's first server.
        """
        return (self.router and self.router.failover.base_url) or self.served.upstream.base_url

    def secrets(self) -> frozenset[str]:
        """Return the client's credentials, which observers must mask; empty if there is no observer.

        Observers cannot take the credentials from the request to the server, since some are not forwarded.
        """
        if self.served.session.context.observer is None:
            return frozenset()
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.scope["headers"]]
        checked = keys_in(headers) if self.served.access.requires_key else ()
        keys = {key for key in checked if len(key) >= MIN_CHECKED_LENGTH}
        return frozenset(secrets_in(headers, f"?{self.query}") | keys)

    async def read_ahead(self, endpoint: Endpoint | None) -> None:
        """Read and keep the body if the proxy processes it, or if the model named in it decides which server to use."""
        if endpoint is not None and not endpoint.may_decline:
            await self.body.read(self.served.max_body)
        else:
            await self.peek()

    async def peek(self) -> bytes | None:
        """Return the body if the model named in it decides which server to use; else return None.

        Also returns None if the body is longer than `ServedConfig.max_body`, the most that the proxy reads.
        """
        routed = self.router is not None and has_json_body(self.scope)
        return await self.body.peek(self.served.max_body) if routed else None
