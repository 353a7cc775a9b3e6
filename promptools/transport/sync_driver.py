"""Drives an exchange with blocking calls."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, assert_never

from promptools.exchange import (
    Abandon,
    Body,
    Compute,
    Consult,
    Done,
    EffectResult,
    Exchange,
    Head,
    Probe,
    Read,
    ReadBody,
    Send,
    Wait,
)
from promptools.transport.driver import ExchangeDriver, consult, probe
from promptools.transport.response_content import end_received, iter_content

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from promptools.transport.http_library import HttpLibrary


class SyncDriver(ExchangeDriver):
    """Drives an exchange with blocking calls; `send` sends a request without following redirects."""

    def __init__(self, exchange: Exchange, library: HttpLibrary, send: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(exchange, library, **options)
        self.send = send
        self.pieces: Iterator[bytes] = iter(())
        self.output = self._run()

    def head(self) -> Head | None:
        """Run until the head of the response is known, and return it; None if the exchange ends without one."""
        try:
            head = next(self.output, None)
        except BaseException:
            self.close()
            raise
        assert not isinstance(head, bytes), "an exchange emits its head first"
        return head

    def body(self) -> Iterator[bytes]:
        """Yield the bytes of the body until the exchange ends; everything is closed, even if iteration stops early."""
        with closing(self):
            for piece in self.output:
                assert isinstance(piece, bytes), "an exchange emits one head"
                yield piece

    def close(self) -> None:
        """Close the exchange and its upstream reply.

        While another thread runs the exchange, only the reply is closed, which makes the exchange end by itself.
        """
        if self.running:
            self._close()
        else:
            self.output.close()

    def _run(self) -> Generator[Head | bytes]:
        outcome: EffectResult | None = None
        self.running = True
        try:
            while (effect := self.step(outcome)) is not None:
                for item in self.take_output():
                    self.running = False
                    yield item
                    self.running = True
                match effect:
                    case Probe() | Consult():
                        outcome = probe(self, effect) if isinstance(effect, Probe) else consult(self, effect)
                    case Send():
                        outcome = self._open(effect)
                        if (head := self.client_redirect(outcome)) is not None:
                            self.running = False
                            yield head
                            return
                    case Read():
                        outcome = self._read()
                    case Abandon():
                        self._release()
                        outcome = Done(self.clock())
                    case Wait() | Compute() | ReadBody():
                        outcome = self._without_server(effect)
                    case _:
                        assert_never(effect)
            self.running = False
            for item in self.take_output():
                yield item
            if self.error:
                raise self.error
        finally:
            self.running = False
            self.exchange.close()
            self._release()

    def _without_server(self, effect: Wait | Compute | ReadBody) -> EffectResult:
        if isinstance(effect, ReadBody):
            assert self.read_body is not None, "the exchange began without the body"
            return Body(self.read_body(), self.clock())
        if isinstance(effect, Compute):
            return self.compute_outcome(effect.work)
        time.sleep(effect.seconds)
        return Done(self.clock())

    def _open(self, send: Send) -> EffectResult:
        self._release()
        request, hops = self.build_send(send), 0
        try:
            response = self.send(request)
            while (onward := self.next_redirect(request, response, hops)) is not None:
                response.close()
                request, hops = onward, hops + 1
                response = self.send(request)
        except self.library_error as error:
            return self._open(send) if self.hit_stale_connection(error) else self.failed_outcome(error)
        self.pieces = iter_content(response, self.library)
        return self.opened_outcome(request, response)

    def _read(self) -> EffectResult:
        try:
            piece = next(self.pieces, None)
        except self.library_error as error:
            return self.failed_outcome(error)
        return self.timeout_outcome() or self.read_outcome(piece)

    def _release(self) -> None:
        """Close the reply. If its end has arrived, read up to it first, so that the connection can be reused."""
        with suppress(self.library_error):
            while self.response is not None and end_received(self.response) and next(self.pieces, None) is not None:
                pass
        self._close()

    def _close(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            response.close()
