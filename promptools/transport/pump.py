"""The shells of an exchange: carry out its effects over httpx or httpx2, tell it what happened, hand on what it emits.

The two colours differ by `await` and nothing else; what they share stands in `Pump`. A pump owns one upstream reply at
a time and closes it whatever happens: the end, an error, the client's early `break`, a cancelled task.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, assert_never

import anyio

from promptools.exchange import (
    Abandon,
    Compute,
    Computed,
    Done,
    Emit,
    Ended,
    Exchange,
    Failed,
    Happening,
    Head,
    Look,
    Opened,
    Piece,
    Read,
    Send,
    Tick,
    Wait,
)
from promptools.transport.content import acceptable, ends_at_hand, is_plain, pieces, pieces_async
from promptools.transport.family import decoded
from promptools.transport.look import look, look_async
from promptools.transport.redirects import MOST_REDIRECTIONS, elsewhere, follow, may_follow, redirected
from promptools.transport.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator

    from promptools.exchange.effects import FailKind, Request
    from promptools.transport.family import Family
    from promptools.types import Reply

HOP = frozenset({"transfer-encoding", "connection", "keep-alive"})
BODY = frozenset({"content-encoding", "content-length"})
"""No longer true of a decoded body."""
PHASES = ("connect", "read", "write", "pool")
RACE = 1.0
"""Seconds after which a connection that breaks off was not closed before the request came."""
FRAMING = frozenset({"content-length", "transfer-encoding"})
"""Said anew by the library for the body that it really sends."""
LINGER = 0.05
"""Seconds for which the end of a reply is waited for once all that it says has been handed on."""


class Pump:
    """What both colours share: the exchange, the open reply, the clock."""

    def __init__(self, exchange: Exchange, family: Family, *, extensions: Any = None, url: Any = None) -> None:
        self.exchange = exchange
        self.family = family
        self.extensions: dict[str, Any] = dict(extensions or {})
        self.url = url
        """The URL of a request that an HTTP client sent, which follows its redirections itself; None: there is none."""
        self.host: str | None = url and url.host
        self.response: Any = None
        self.facts: dict[str, Any] = {}
        self.deadline: float | None = None
        self.sent_at = 0.0
        self.events: list[str] = []
        """What the HTTP library told of the connection that it sent the last request on."""
        self.reply: Reply | None = None
        self.working = False
        self.waiting = False
        """An effect is being done that a tick may come between."""
        self.ready: list[Head | bytes] = []
        self.broken: Exception | None = None
        self.begun = False
        self.over = False
        """The exchange has ended by itself: what is open is a reply that has said all."""
        self.clock = time.monotonic
        self.failure: type[Exception] = family.module.RequestError

    def step(self, told: Happening | None) -> Look | Send | Read | Abandon | Wait | Compute | None:
        """Tell the exchange what happened and get what it wants next; None when it is over or broken.

        What it emits is kept in `ready`, to be handed on before anything that takes time and at the end. So the
        exchange is over before its last bytes go out: many clients close the answer as soon as they see those.
        """
        while True:
            try:
                effect = next(self.exchange) if told is None else self.exchange.send(told)
            except StopIteration as stop:
                self.reply, self.over = stop.value, True
                return None
            except Exception as error:  # noqa: BLE001 - raised again once all that it emitted has been handed on
                self.broken = error
                return None
            if not isinstance(effect, Emit):
                return effect
            if effect.what:
                self.ready.append(effect.what)
                self.begun = True
            told = Done(self.clock())

    def tick(self) -> list[Head | bytes]:
        """Tell the exchange that time has passed, if it waits for anything; return what it has to say meanwhile."""
        if not self.waiting:
            return []
        self.step(Tick(self.clock()))
        return self.flush()

    def flush(self) -> list[Head | bytes]:
        """Take what is ready to be handed on, bytes joined."""
        ready, self.ready = self.ready, []
        pieces = b"".join(each for each in ready if isinstance(each, bytes))
        heads: list[Head | bytes] = [each for each in ready if isinstance(each, Head)]
        return [*heads, pieces] if pieces else heads

    def build(self, send: Send) -> Any:
        """Make the request of a send, whose whole time begins now."""
        self.sent_at = self.clock()
        self.deadline = None if send.timeout is None else self.sent_at + send.timeout
        request = self.request(send.request, send.timeout)
        self.events = []
        request.extensions["trace"] = self.trace
        return request

    def trace(self, event: str, info: Any) -> Any:
        """Note what the HTTP library does, and call the client's own function for it."""
        self.events.append(event)
        own = self.extensions.get("trace")
        return own(event, info) if own is not None else None

    def too_late(self, error: Exception) -> bool:
        """Tell whether the request came on a connection kept from the one before, as the server was closing it.

        Servers may at any time, and llama.cpp does so behind each stream. The request was not read, so it is sent once
        more; each time one kept connection is used up, and a new one ends it.
        """
        made = not self.events or any("connect_" in each for each in self.events)
        return not made and self._kind(error) == "closed" and self.clock() - self.sent_at < RACE

    def request(self, wanted: Request, timeout: float | None) -> Any:
        """Make an upstream request: the client's own extensions, with its time-outs cut to `timeout` seconds."""
        extensions = dict(self.extensions)
        if timeout is not None:
            own: dict[str, float | None] = extensions.get("timeout", {})
            extensions["timeout"] = {phase: _least(own.get(phase), timeout) for phase in PHASES}
        headers = tuple(
            (name, acceptable(value)) if name.lower() == "accept-encoding" else (name, value)
            for name, value in wanted.headers
            if self._stays(name.lower(), wanted.url)
        )
        return self.family.request(wanted.method, wanted.url, headers, wanted.body, extensions)

    def _stays(self, name: str, url: str) -> bool:
        """Leave framing to the library, and keep a `Host` field only for the host that it was written for."""
        if name == "host":
            return self.host is None or self.family.module.URL(url).host == self.host
        return name not in FRAMING

    def opened(self, request: Any, response: Any) -> Opened | Failed:
        """Say how the server answered; the headers describe the body as `Read` gives it, decoded.

        A redirection to another origin, where no keys and no prompt may go, is a failure.
        """
        self.response = response
        response.request = request
        self.facts = {key: value for key, value in response.extensions.items() if key != "network_stream"}
        place = redirected(self.family, request, response)
        if place is not None and not may_follow(request.url, place):
            return Failed("protocol", elsewhere(place), self.clock())
        if place is not None and request.url != self.url:
            return Failed("protocol", f"redirected more than {MOST_REDIRECTIONS} times", self.clock())
        gone = HOP | BODY if "content-encoding" in response.headers and is_plain(response) else HOP
        headers = tuple(pair for pair in decoded(response.headers) if pair[0].lower() not in gone)
        return Opened(response.status_code, headers, self.clock())

    def onward(self, request: Any, response: Any, hops: int) -> Any:
        """Make the request that a redirection within an origin asks for; None where it is not followed here."""
        if request.url == self.url:
            return None
        place = redirected(self.family, request, response)
        if place is None or not may_follow(request.url, place) or hops >= MOST_REDIRECTIONS:
            return None
        return follow(self.family, request, response.status_code, place)

    def passed_up(self, told: Happening) -> Head | None:
        """Give the head of a redirection: the client above follows it, and where it leads an exchange begins anew."""
        if self.begun or not isinstance(told, Opened) or not self.response.has_redirect_location:
            return None
        return Head(told.status, tuple(pair for pair in told.headers if pair[0].lower() not in BODY))

    def got(self, piece: bytes | None) -> Piece | Ended:
        """Say what was read; None is the end."""
        return Ended(self.clock()) if piece is None else Piece(piece, self.clock())

    def failed(self, error: Exception) -> Failed:
        """Say how the library failed; what is not the library's own (a bug in a hook, say) never comes here."""
        return Failed(self._kind(error), str(error) or type(error).__name__, self.clock(), error)

    def _kind(self, error: BaseException) -> FailKind:
        module = self.family.module
        if isinstance(
            error, (module.ConnectError, module.ConnectTimeout, module.ProxyError, module.UnsupportedProtocol)
        ):
            return "connect"
        if isinstance(error, module.TimeoutException):
            return "timeout"
        if isinstance(error, (module.NetworkError, module.RemoteProtocolError)):
            return "closed"
        return "protocol"

    def computed(self, work: Callable[[], Any]) -> Computed:
        """Call a function that only computes, and say what came of it."""
        try:
            return Computed(work(), None, self.clock())
        except Exception as error:  # noqa: BLE001 - the exchange raises it where it asked for the work
            return Computed(None, error, self.clock())

    def late(self) -> Failed | None:
        """Say that the send's whole time is up, if it is; looked at after each piece, so a stall may double it."""
        if self.deadline is None or self.clock() < self.deadline:
            return None
        error = self.family.module.ReadTimeout("the time for this request is up")
        return Failed("timeout", str(error), self.clock(), error)


def _least(own: float | None, bound: float) -> float:
    return bound if own is None else min(own, bound)


class SyncPump(Pump):
    """Drives an exchange with blocking calls; `send` opens a request, and follows no redirection."""

    def __init__(self, exchange: Exchange, family: Family, send: Callable[[Any], Any], **shared: Any) -> None:
        super().__init__(exchange, family, **shared)
        self.send = send
        self.pieces: Iterator[bytes] = iter(())
        self.emitted = self._run()

    def head(self) -> Head | None:
        """Run to the head of the answer; None when the exchange ends without one."""
        try:
            head = next(self.emitted, None)
        except BaseException:
            self.close()
            raise
        assert not isinstance(head, bytes), "an exchange emits its head first"
        return head

    def body(self) -> Iterator[bytes]:
        """Run on to the end, giving the bytes of the body; left early, it closes all."""
        with closing(self):
            for piece in self.emitted:
                assert isinstance(piece, bytes), "an exchange emits one head"
                yield piece

    def close(self) -> None:
        """Close the exchange and its upstream; from another thread only the upstream, which ends the exchange."""
        if self.working:
            self._close()
        else:
            self.emitted.close()

    def _run(self) -> Generator[Head | bytes]:
        told: Happening | None = None
        self.working = True
        try:
            while (effect := self.step(told)) is not None:
                for what in self.flush():
                    self.working = False
                    yield what
                    self.working = True
                match effect:
                    case Look():
                        told = look(self, effect)
                    case Send():
                        told = self._open(effect)
                        if (head := self.passed_up(told)) is not None:
                            self.working = False
                            yield head
                            return
                    case Read():
                        told = self._read()
                    case Abandon():
                        self._release()
                        told = Done(self.clock())
                    case Wait() | Compute():
                        told = self._do(effect)
                    case _:
                        assert_never(effect)
            self.working = False
            for what in self.flush():
                yield what
            if self.broken:
                raise self.broken
        finally:
            self.working = False
            self.exchange.close()
            self._release()

    def _do(self, effect: Wait | Compute) -> Happening:
        if isinstance(effect, Compute):
            return self.computed(effect.work)
        time.sleep(effect.seconds)
        return Done(self.clock())

    def _open(self, send: Send) -> Happening:
        self._release()
        request, hops = self.build(send), 0
        try:
            response = self.send(request)
            while (onward := self.onward(request, response, hops)) is not None:
                response.close()
                request, hops = onward, hops + 1
                response = self.send(request)
        except self.failure as error:
            return self._open(send) if self.too_late(error) else self.failed(error)
        self.pieces = pieces(response, self.family)
        return self.opened(request, response)

    def _read(self) -> Happening:
        try:
            piece = next(self.pieces, None)
        except self.failure as error:
            return self.failed(error)
        return self.late() or self.got(piece)

    def _release(self) -> None:
        """Close the reply, read to its end if that is at hand: else its connection is lost."""
        with suppress(self.failure):
            while self.response is not None and ends_at_hand(self.response) and next(self.pieces, None) is not None:
                pass
        self._close()

    def _close(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            response.close()


class AsyncPump(Pump):
    """Drives an exchange on an event loop: `SyncPump` with `await`."""

    def __init__(
        self, exchange: Exchange, family: Family, send: Callable[[Any], Awaitable[Any]], **shared: Any
    ) -> None:
        super().__init__(exchange, family, **shared)
        self.send = send
        self.pieces: AsyncIterator[bytes] | None = None
        self.emitted = self._run()

    async def head(self) -> Head | None:
        """Run to the head of the answer; None when the exchange ends without one."""
        try:
            head = await anext(self.emitted, None)
        except BaseException:
            await self.close()
            raise
        assert not isinstance(head, bytes), "an exchange emits its head first"
        return head

    async def body(self) -> AsyncGenerator[bytes]:
        """Run on to the end, giving the bytes of the body; left early, it closes all."""
        try:
            async for piece in self.emitted:
                assert isinstance(piece, bytes), "an exchange emits one head"
                yield piece
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the exchange and its upstream; from another task only the upstream, which ends the exchange."""
        if self.working:
            await self._close()
        else:
            await self.emitted.aclose()

    async def _run(self) -> AsyncGenerator[Head | bytes]:
        told: Happening | None = None
        self.working = True
        try:
            while (effect := self.step(told)) is not None:
                for what in self.flush():
                    self.working = False
                    yield what
                    self.working = True
                self.waiting = not isinstance(effect, Compute)
                match effect:
                    case Look():
                        told = await look_async(self, effect)
                    case Send():
                        told = await self._open(effect)
                        if (head := self.passed_up(told)) is not None:
                            self.working = False
                            yield head
                            return
                    case Read():
                        told = await self._read()
                    case Abandon():
                        await self._release()
                        told = Done(self.clock())
                    case Wait() | Compute():
                        told = await self._do(effect)
                    case _:
                        assert_never(effect)
                self.waiting = False
            self.working = False
            for what in self.flush():
                yield what
            if self.broken:
                raise self.broken
        finally:
            self.working = self.waiting = False
            self.exchange.close()
            await self._release()

    async def _do(self, effect: Wait | Compute) -> Happening:
        if isinstance(effect, Compute):
            return await in_thread(self.computed, effect.work)
        await anyio.sleep(effect.seconds)
        return Done(self.clock())

    async def _open(self, send: Send) -> Happening:
        await self._release()
        request, hops = self.build(send), 0
        try:
            response = await self.send(request)
            while (onward := self.onward(request, response, hops)) is not None:
                await response.aclose()
                request, hops = onward, hops + 1
                response = await self.send(request)
        except self.failure as error:
            return await self._open(send) if self.too_late(error) else self.failed(error)
        self.pieces = pieces_async(response, self.family)
        return self.opened(request, response)

    async def trace(self, event: str, info: Any) -> None:
        """Do the same as an event loop wants it."""
        own = super().trace(event, info)
        if own is not None:
            await own

    async def _read(self) -> Happening:
        assert self.pieces is not None, "an exchange reads what it has sent for"
        try:
            piece = await anext(self.pieces, None)
        except self.failure as error:
            return self.failed(error)
        return self.late() or self.got(piece)

    async def _release(self) -> None:
        """Close the reply, read to its end if that is at hand, or comes at once where the reply has said all."""
        if self.response is not None and self.pieces is not None and (self.over or ends_at_hand(self.response)):
            with anyio.move_on_after(LINGER, shield=True), suppress(self.failure):
                while await anext(self.pieces, None) is not None:
                    pass
        await self._close()

    async def _close(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            with anyio.CancelScope(shield=True):  # a cancelled task closes its upstream all the same
                await response.aclose()
