"""The account of one request: the clock, what was sent, what it cost, what was noted; and the single effects."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from promptools.errors import clip, without_credentials
from promptools.exchange.effects import (
    Abandon,
    Compute,
    Computed,
    Effect,
    Emit,
    Failed,
    Happening,
    Head,
    Headers,
    Look,
    Looked,
    Opened,
    Piece,
    Read,
    Request,
    Send,
    Tick,
    Wait,
)
from promptools.fallback import Policy
from promptools.profiles.detect import root_of
from promptools.types import Attempt, Reply, Seen
from promptools.wire.chunks import add_usage

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.failure import Failure
    from promptools.profiles.detect import Answer

T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Happening, T]
"""A part of an exchange."""

LARGE = 64 * 1024
"""Bytes of a request from which on it is prepared aside: about a hundred tools, some 15 ms of work if they are new."""
_CHAT = "/chat/completions"
_PER_HOP = frozenset({"content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"})


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a client gets after so many seconds without a byte, so that nobody takes the connection for dead."""

    seconds: float
    data: bytes
    head: Callable[[], Head]


class Ledger:
    """Carries out single effects for one request, and keeps account of them."""

    def __init__(self, client: ClientRequest, context: Context) -> None:
        self.client = client.request
        self.front = client.front
        self.context = context
        self.now = client.at
        self.url: str | None = None
        self.headers: Headers = ()
        self.place: tuple[str, str] = ("", "")
        """The provider, or its base URL, and the model."""
        self.policy = Policy(client.at, stop=context.stop, wait=context.wait, deadline=context.deadline)
        self.attempts: list[Attempt] = []
        self.notes: list[str] = []
        self.usage: dict[str, Any] | None = None
        self.opened: Opened | None = None
        """The last answer's status and headers."""
        self.head_sent = False
        self.heartbeat: Heartbeat | None = None
        """None: nothing goes to the client before there is something to show."""
        self.seen: Seen | None = None
        """What a look at the server found out, if there was one."""
        self._came = self._began = self._emitted = client.at

    @property
    def seconds(self) -> float:
        """Give how long the request has taken so far."""
        return self.now - self._came

    # -- effects

    def look(self, requests: tuple[Request, ...], seconds: float) -> Steps[tuple[Answer | None, ...]]:
        """Send small requests side by side; gives their answers."""
        happened = yield from self._do(Look(requests, seconds))
        assert isinstance(happened, Looked), happened
        return happened.answers

    def send(self, body: bytes, path: str = "chat/completions", method: str = "POST") -> Steps[Opened | Failed]:
        """Open a send with this body; for `path` see `Front.path`."""
        self._began = self.now
        self.policy.sent()
        url = endpoint(self.url or self.client.url, path)
        headers = upstream_headers(self.client.headers, self.headers)
        request = Request(method, url, headers, body)
        happened = yield from self._do(Send(request, self.policy.left(self.now)))
        if self.opened is not None and isinstance(happened, Failed) and happened.kind == "closed":
            # uvicorn closes the connection of an HTTP 500 and does not say so: the next to take it finds it dead
            self.notes.append("the server had closed the connection after its last answer: sent again on another")
            happened = yield from self._do(Send(request, self.policy.left(self.now)))
        assert isinstance(happened, (Opened, Failed)), happened
        if isinstance(happened, Opened):
            self.opened = happened
        elif happened.kind == "connect":
            self.context.sights.forget(root_of(base_of(url)))
        return happened

    def read(self) -> Steps[bytes | Failed | None]:
        """Read on: the next piece, None at the end, or how the reply broke off."""
        happened = yield from self._do(Read())
        if isinstance(happened, Piece):
            return happened.data
        return happened if isinstance(happened, Failed) else None

    def read_all(self, limit: int | None = None) -> Steps[bytes]:
        """Read what is left, up to a limit in bytes or the first piece past it; what breaks off counts as it came."""
        limit = self.context.max_reply if limit is None else limit
        pieces: list[bytes] = []
        size = 0
        while size <= limit and isinstance(piece := (yield from self.read()), bytes):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def abandon(self) -> Steps[None]:
        """Close the open send."""
        self.now = (yield Abandon()).at

    def wait(self, seconds: float) -> Steps[None]:
        """Let time pass; no time is no effect."""
        if seconds > 0:
            yield from self._do(Wait(seconds))

    def compute(self, work: Callable[[], T]) -> Steps[T]:
        """Call a function that only computes; for a large request where nothing else waits for it."""
        if len(self.client.body) < LARGE:
            return work()
        happened = yield Compute(work)
        self.now = happened.at
        assert isinstance(happened, Computed), happened
        if happened.error is not None:
            raise happened.error
        value: T = happened.value
        return value

    def emit(self, data: bytes, head: Callable[[], Head]) -> Steps[None]:
        """Hand bytes to the client, the head before the first of them."""
        if not self.head_sent:
            self.head_sent = True
            self.now = (yield Emit(head())).at
        if data:
            self.now = (yield Emit(data)).at
        self._emitted = self.now

    def beat(self) -> Steps[None]:
        """Send the heartbeat if it is due."""
        beat = self.heartbeat
        if beat is not None and self.now - self._emitted >= beat.seconds:
            yield from self.emit(beat.data, beat.head)

    def _do(self, effect: Effect) -> Steps[Happening]:
        """Have an effect done; while it takes its time the heartbeat goes on."""
        while isinstance(happened := (yield effect), Tick):
            self.now = happened.at
            yield from self.beat()
        self.now = happened.at
        return happened

    # -- account

    def record(self, mode: str, failure: Failure | None, usage: dict[str, Any] | None) -> None:
        """Write down what came of a send."""
        opened = failure.opened if failure else self.opened
        status = opened.status if opened else None
        outcome, why = (failure.kind, failure.why) if failure else ("answered", "")
        self.attempts.append(Attempt(mode, status, outcome, why, self.now - self._began, usage))
        self.usage = add_usage(self.usage, usage)

    def amend(self, failure: Failure, words: str) -> None:
        """Say of the send that failed what is done about it, in the trace and in the log."""
        alike = (number for number, each in reversed(list(enumerate(self.attempts))) if each.outcome == failure.kind)
        number = next(alike, len(self.attempts) - 1)
        told = self.attempts[number]
        self.attempts[number] = replace(told, why="; ".join(filter(None, (told.why, words))))
        if self.context.log:
            status = "no answer" if failure.status is None else f"HTTP {failure.status}"
            provider, model = without_credentials(self.place[0].partition("?")[0]), clip(self.place[1])
            self.context.log(
                f"promptools: send {number + 1} in {told.mode} mode failed: {failure.kind} ({status}); {words}"
                f" (provider {provider!r}, model {model!r})"
            )

    def traced(self, reply: Reply, mode: str) -> Reply:
        """Put the account into a reply's trace."""
        notes = (*dict.fromkeys((*self.notes, *reply.trace.notes)),)
        return reply.with_trace(attempts=tuple(self.attempts), mode=mode, notes=notes, seen=self.seen)


def base_of(url: str) -> str:
    """Give the base URL of the server whose Chat Completions, or a route of Ollama's, are at `url`."""
    own = url.partition("?")[0].rstrip("/")
    root, mark, _ = own.rpartition("/api/")
    if own.endswith(_CHAT) or not mark:
        return own.removesuffix(_CHAT)
    return root_of(root) + "/v1"


def endpoint(url: str, path: str) -> str:
    """Give the URL of another route on the server whose Chat Completions, or a route of Ollama's, are at `url`."""
    own, mark, query = url.partition("?")
    base = base_of(url)
    there = root_of(base) + path if path.startswith("/") else f"{base}/{path}"
    return url if there == own.rstrip("/") else there + mark + query


def upstream_headers(client: Headers, route: Headers) -> Headers:
    """Give the client's fields, the route's in place of those of the same name; a blank one takes a field away."""
    gone = _PER_HOP | {key.lower() for key, _ in route}
    kept = tuple(pair for pair in client if pair[0].lower() not in gone)
    return (*kept, *(pair for pair in route if pair[1]))
