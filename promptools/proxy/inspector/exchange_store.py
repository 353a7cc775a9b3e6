"""Keep the last exchanges in memory, up to a maximum number and a maximum total size.

An exchange is a client's request with everything that happened until the end of its response.

Observers are called from any thread, so a lock guards the store, and views work on snapshots of exchanges. Every change
has a number; a page asks for all exchanges that changed after the last number it knows.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING

from promptools.errors import without_credentials
from promptools.exchange import Failed, Opened, Piece, Request
from promptools.masking import mask_headers, mask_url, secrets_in

if TYPE_CHECKING:
    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.types import Reply

MAX_EXCHANGES = 200
MAX_BYTES = 64 * 2**20
MAX_BODY = 2**20
"""Maximum number of bytes that are kept of each body; most conversations without images are shorter."""
DISCONNECTED = "the client disconnected"
_OVERHEAD = 4096
"""Number of bytes that an exchange, a request to the server or a reply is assumed to take in addition to its text."""
_PARSED_SIZE = 2
"""Approximate ratio of a parsed body's size in memory to the size of its JSON, which is mostly long strings."""


@dataclass(slots=True)
class KeptBody:
    """A body of a request or response, or the beginning of a long body."""

    pieces: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    """Number of bytes of the body so far, including those that were not kept."""

    def add(self, data: bytes) -> int:
        """Add a piece; return how many of its bytes were kept."""
        kept = data[: max(0, MAX_BODY - self.size)]
        self.size += len(data)
        if kept:
            self.pieces.append(kept)
        return len(kept)

    @property
    def data(self) -> bytes:
        """The bytes that were kept."""
        return b"".join(self.pieces)

    def join(self) -> None:
        """Join the pieces, since many small pieces take much more memory."""
        self.pieces = [self.data]

    @property
    def left_out(self) -> int:
        """The number of bytes at the end that were not kept."""
        return max(0, self.size - MAX_BODY)


@dataclass(slots=True)
class KeptSend:
    """A request to the server, and the response to it."""

    sent: SentRequest
    """The request without its bodies, and with masked headers."""
    body: KeptBody
    opened: Opened | None = None
    """Status and masked headers of the response."""
    response: KeptBody = field(default_factory=KeptBody)
    first_at: float | None = None
    """When the first piece of the response's body arrived."""
    last_at: float | None = None
    failed: str = ""
    """How the response broke off, or why there is no response."""


@dataclass(slots=True)
class KeptExchange:
    """What is kept of an exchange: the client's request, the requests to the server, and the outcome."""

    number: int
    """The number of the exchange, counted from 1 since the proxy was started."""
    observed: ObservedExchange
    """The exchange as observers get it, but without the request's body, and with masked headers."""
    body: KeptBody
    wall_time: float
    """When the exchange began, in seconds since 1970."""
    change: int = 0
    """The number of the last change to this exchange."""
    sends: list[KeptSend] = field(default_factory=list[KeptSend])
    end: ExchangeEnd | None = None
    """How the exchange ended, without the exception; None if it has not ended."""
    error: str = ""
    """The error in the proxy itself, or why the exchange was ended early, such as a disconnect; empty if neither."""
    secrets: set[str] = field(default_factory=set[str], repr=False)
    size: int = 0
    computed: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values that a view has computed from this exchange; all snapshots of it share them."""

    def snapshot(self) -> KeptExchange:
        """Return a copy that later events of the exchange do not change."""
        sends = [replace(send, response=KeptBody([*send.response.pieces], send.response.size)) for send in self.sends]
        return replace(self, sends=sends, secrets=set(self.secrets))


class ExchangeStore:
    """Observer that keeps the last exchanges in memory, for the inspector's page."""

    def __init__(self, *, max_exchanges: int = MAX_EXCHANGES, max_bytes: int = MAX_BYTES) -> None:
        self.max_exchanges = max_exchanges
        self.max_bytes = max_bytes
        self.response_bytes = MAX_BODY
        self.id = token_hex(4)
        """An id that differs in each process, so that a page notices a restart of the proxy."""
        self.size = 0
        """Approximate number of bytes that all exchanges take."""
        self.change = 0
        """The number of the last change; every change to the store gets the next number."""
        self._kept: OrderedDict[str, KeptExchange] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    # -- the observer

    def began(self, exchange: ObservedExchange) -> None:
        """Start keeping an exchange, beginning with the client's request."""
        body = KeptBody()
        body.add(exchange.request.body)
        kept = KeptExchange(0, replace(exchange, request=_masked(exchange.request)), body, time.time())
        kept.secrets = secrets_in(exchange.request.headers, exchange.request.url) | exchange.secrets
        with self._lock:
            self._count += 1
            kept.number = self._count
            replaced = self._kept.pop(exchange.id, None)
            self.size -= replaced.size if replaced is not None else 0
            self._kept[exchange.id] = kept
            self._grow(kept, _OVERHEAD + min(body.size, MAX_BODY))

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Keep a request to the server."""
        with self._lock:
            kept = self._kept.get(exchange.id)
            if kept is None:
                return
            kept.secrets |= secrets_in(sent.request.headers, sent.request.url)
            body = KeptBody()
            size = _OVERHEAD + body.add(sent.request.body)
            if not kept.sends:
                size += _PARSED_SIZE * min(kept.body.size, MAX_BODY)
            kept.sends.append(KeptSend(_without_bodies(sent, long=kept.body.left_out > 0), body))
            self._grow(kept, size)

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Keep what arrived from the server: the header of a response, a piece of its body, its end, or a failure."""
        with self._lock:
            kept = self._kept.get(exchange.id)
            if kept is None or not kept.sends:
                return
            send, size = kept.sends[-1], 0
            if isinstance(received, Opened):
                kept.secrets |= secrets_in(received.headers)
                send.opened = replace(received, headers=mask_headers(received.headers))
            elif isinstance(received, Piece):
                send.first_at = received.at if send.first_at is None else send.first_at
                size = send.response.add(received.data)
            elif isinstance(received, Failed):
                send.failed = f"{received.kind}: {without_credentials(received.text)}"
            if not isinstance(received, (Opened, Piece)):
                send.response.join()
            send.last_at = received.at
            self._grow(kept, size)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Keep the end of an exchange."""
        with self._lock:
            kept = self._kept.get(exchange.id)
            if kept is None:
                return
            # an exception would keep all frames through which it passed
            kept.end, kept.error = replace(end, error=None), _error_text(end)
            self._grow(kept, len(end.response) + sum(map(_reply_size, end.replies)))

    # -- readers

    def exchanges(self, after: int = 0) -> list[KeptExchange]:
        """Return snapshots of the exchanges that changed after change number `after`, the oldest exchange first."""
        with self._lock:
            return [kept.snapshot() for kept in self._kept.values() if kept.change > after]

    def get(self, exchange_id: str) -> KeptExchange | None:
        """Return a snapshot of one exchange; None if it is not kept."""
        with self._lock:
            kept = self._kept.get(exchange_id)
            return None if kept is None else kept.snapshot()

    @property
    def first(self) -> int:
        """The number of the oldest exchange that is kept; if none is kept, the number of the next exchange."""
        with self._lock:
            return next((kept.number for kept in self._kept.values()), self._count + 1)

    def clear(self) -> None:
        """Forget all exchanges."""
        with self._lock:
            self._kept.clear()
            self.size = 0
            self.change += 1

    def _grow(self, kept: KeptExchange, size: int) -> None:
        """Count a change that adds `size` bytes to an exchange, and drop the oldest exchanges beyond the limits."""
        self.change += 1
        kept.change = self.change
        kept.size += size
        self.size += size
        while len(self._kept) > self.max_exchanges or (self.size > self.max_bytes and self._kept):
            _, oldest = self._kept.popitem(last=False)
            self.size -= oldest.size


def _masked(request: Request) -> Request:
    return Request(request.method, mask_url(request.url), mask_headers(request.headers), b"")


def _without_bodies(sent: SentRequest, *, long: bool) -> SentRequest:
    """Return a request to the server without its body.

    If `long` (the client's body is not kept whole), the messages that were parsed from that body are removed too.
    """
    prepared, parsed = sent.prepared, sent.tool_request
    if parsed is not None and long:
        parsed = replace(parsed, body={key: value for key, value in parsed.body.items() if key != "messages"})
    prepared = None if prepared is None else replace(prepared, body={})
    return replace(sent, request=_masked(sent.request), prepared=prepared, tool_request=parsed)


def _error_text(end: ExchangeEnd) -> str:
    error = end.error
    if error is None:
        return ""
    if isinstance(error, GeneratorExit):
        failed = end.status is not None and end.status >= 400
        return "the request went on to another server" if failed else DISCONNECTED
    return f"{type(error).__name__}: {without_credentials(str(error))}"


def _reply_size(reply: Reply) -> int:
    """Return the approximate size of a reply in bytes."""
    return _OVERHEAD + sum(map(len, _texts(reply)))


def _texts(reply: Reply) -> Iterator[str]:
    yield reply.content
    yield reply.reasoning
    for call in reply.calls:
        yield call.arguments_json
    yield from (piece.raw for piece in reply.malformed)
    yield from (piece.raw for piece in reply.discarded)
