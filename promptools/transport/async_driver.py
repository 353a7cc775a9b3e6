"""Drive an exchange on an event loop, with long computations in threads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar, checkpoint

from promptools.exchange import (
    Abandon,
    Body,
    Compute,
    Consult,
    Done,
    EffectResult,
    Exchange,
    Probe,
    Read,
    ReadBody,
    ResponseHead,
    Send,
    Wait,
)
from promptools.transport.driver import ExchangeDriver, consult_async, probe_async
from promptools.transport.response_content import content_iterator, end_received

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from promptools.transport.http_library import HttpLibrary


# Long computations run in threads, outside the event loop: only a few, since they share one interpreter with the loop.


A = TypeVar("A")
T = TypeVar("T")

MAX_THREADS = 2
"""Maximum number of threads per event loop. More threads would not be faster, and would leave the loop less time."""
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("promptools_limiter")


async def in_thread(work: Callable[[A], T], argument: A) -> T:
    """Call a function in a thread; if a cancel scope is cancelled meanwhile, wait until the function has returned.

    If asyncio cancels the task (`asyncio.timeout`, `Task.cancel`), the task does not wait, and the result is dropped.
    """
    limiter = _LIMITER.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _LIMITER.set(limiter)
    return await anyio.to_thread.run_sync(work, argument, limiter=limiter)


MAX_READ = 1 << 14
"""Maximum number of bytes that the exchange gets at a time: about 80 chunks of a stream, or 3 ms of work.

Between two such portions, other tasks can run.
"""
END_TIMEOUT = 0.05
"""Seconds to wait for the end of a reply once its whole content has been passed on."""


class AsyncDriver(ExchangeDriver):
    """Drives an exchange on an event loop."""

    def __init__(
        self, exchange: Exchange, library: HttpLibrary, send: Callable[[Any], Awaitable[Any]], **options: Any
    ) -> None:
        super().__init__(exchange, library, **options)
        self.send = send
        self.pieces: AsyncIterator[bytes] | None = None
        self._rest = b""
        """The part of the last piece that the exchange has not received yet."""
        self.output = self._run()

    async def head(self) -> ResponseHead | None:
        """Run until the head (status and headers) of the response is known, and return it; None if there is none."""
        try:
            head = await anext(self.output, None)
        except BaseException:
            await self.close()
            raise
        assert not isinstance(head, bytes), "an exchange emits its head first"
        return head

    async def body(self) -> AsyncGenerator[bytes]:
        """Yield the bytes of the response's body; close the exchange at the end, even if iteration stops early."""
        try:
            async for piece in self.output:
                assert isinstance(piece, bytes), "an exchange emits one head"
                yield piece
            self.check_whole()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the exchange and its upstream reply.

        While another task runs the exchange, only the reply is closed, and that task ends the exchange.
        """
        self.closing = True
        if self.running:
            await self._close()
        else:
            await self.output.aclose()

    async def _run(self) -> AsyncGenerator[ResponseHead | bytes]:
        outcome: EffectResult | None = None
        self.running = True
        try:
            while (effect := self.step(outcome)) is not None:
                for item in self.take_output():
                    self.running = False
                    yield item
                    self.running = True
                if self.closing:
                    self.error = self.closed_error()
                    break
                self.waiting = not isinstance(effect, (Compute, Consult, ReadBody))
                outcome = await self._perform(effect)
                self.waiting = False
                if isinstance(effect, Send) and (head := self.client_redirect(outcome)) is not None:
                    self.running = False
                    yield head
                    return
            self.running = False
            for item in self.last_output():
                yield item
            if self.error:
                raise self.error
        finally:
            self.running, self.waiting = True, False
            try:
                self.exchange.close()
            finally:
                await self._release()
                self.running = False
            self.pieces = None  # breaks a reference cycle: the pieces refer to their request, and it to this driver

    async def _perform(
        self, effect: Probe | Consult | Send | Read | Abandon | Compute | Wait | ReadBody
    ) -> EffectResult:
        match effect:
            case Probe():
                return await probe_async(self, effect)
            case Consult():
                return await consult_async(self, effect)
            case Send():
                return await self._open(effect)
            case Read():
                return await self._read()
            case Compute():
                return await in_thread(self.compute_outcome, effect.work)
            case ReadBody():
                assert self.read_body is not None, "the exchange began without the body"
                return Body(await self.read_body(), self.clock())
            case Abandon():
                await self._release()
            case Wait():
                await anyio.sleep(effect.seconds)
            case _:
                assert_never(effect)
        return Done(self.clock())

    async def _open(self, send: Send) -> EffectResult:
        await self._release()
        request, hops = self.build_send(send), 0
        try:
            response = await self.send(request)
            while (onward := self.next_redirect(request, response, hops)) is not None:
                await response.aclose()
                request, hops = onward, hops + 1
                response = await self.send(request)
        except self.library_error as error:
            return await self._open(send) if self.hit_stale_connection(error) else self.failed_outcome(error)
        self.pieces, self._rest = content_iterator(response, self.library), b""
        return self.opened_outcome(request, response)

    async def trace(self, event: str, info: Any) -> None:
        """Record a trace event, and await the client's own trace callback."""
        awaitable = super().trace(event, info)
        if awaitable is not None:
            await awaitable

    async def _read(self) -> EffectResult:
        assert self.pieces is not None, "an exchange reads what it has sent for"
        if self._rest:
            await checkpoint()
            piece: bytes | None = self._rest
        else:
            try:
                piece = await anext(self.pieces, None)
            except self.library_error as error:
                return self.failed_outcome(error)
        self._rest = b""
        if piece is not None and len(piece) > MAX_READ:
            piece, self._rest = piece[:MAX_READ], piece[MAX_READ:]
        return self.timeout_outcome() or self.read_outcome(piece)

    async def _release(self) -> None:
        """Close the reply. If its end has arrived, or the exchange is finished, first read the reply to the end."""
        if self.response is None or self.response.is_closed:
            self.response = None
            return
        if self.pieces is not None and (self.finished or end_received(self.response)):
            with anyio.move_on_after(END_TIMEOUT, shield=True), suppress(self.library_error):
                while await anext(self.pieces, None) is not None:
                    pass
        await self._close()

    async def _close(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            with anyio.CancelScope(shield=True):  # a cancelled task closes its upstream, too
                await response.aclose()
