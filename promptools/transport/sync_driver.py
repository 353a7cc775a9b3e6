"""Drive an exchange with blocking calls."""

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
    Probe,
    Read,
    ReadBody,
    ResponseHead,
    Send,
    Wait,
)
from promptools.transport.driver import ExchangeDriver, consult, probe
from promptools.transport.response_content import end_received, iter_content

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from promptools.transport.http_library import HttpLibrary


_RUNNING = "generator already executing"
"""Message of the `ValueError` that Python raises if a generator is resumed or closed while another thread runs it."""


class SyncDriver(ExchangeDriver):
    """Drives an exchange with blocking calls; `send` sends a request without following redirects."""

    def __init__(self, exchange: Exchange, library: HttpLibrary, send: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(exchange, library, **options)
        self.send = send
        self.pieces: Iterator[bytes] = iter(())
        self.output = self._run()

    def head(self) -> ResponseHead | None:
        """Run until the head (status and headers) of the response is known, and return it; None if there is none."""
        try:
            head = next(self.output, None)
        except BaseException:
            self.close()
            raise
        assert not isinstance(head, bytes), "an exchange emits its head first"
        return head

    def body(self) -> Iterator[bytes]:
        """Yield the bytes of the response's body; close the exchange at the end, even if iteration stops early."""
        with closing(self):
            try:
                for piece in self.output:
                    assert isinstance(piece, bytes), "an exchange emits one head"
                    yield piece
            except ValueError as error:
                if not self.closing or str(error) != _RUNNING:  # another thread is closing the exchange just now
                    raise
            self.check_whole()

    def close(self) -> None:
        """Close the exchange and its upstream reply.

        While another thread runs the exchange, only the reply is closed, and that thread ends the exchange.
        """
        self.closing = True
        if not self.running:
            try:
                self.output.close()
            except ValueError as error:
                if str(error) != _RUNNING:  # the other thread has resumed the exchange just now
                    raise
            else:
                return
        self._close()

    def _run(self) -> Generator[ResponseHead | bytes]:
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
                outcome = self._perform(effect)
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
            self.running = True
            try:
                self.exchange.close()
            finally:
                self._release()
                self.running = False

    def _perform(self, effect: Probe | Consult | Send | Read | Abandon | Compute | Wait | ReadBody) -> EffectResult:
        match effect:
            case Probe():
                return probe(self, effect)
            case Consult():
                return consult(self, effect)
            case Send():
                return self._open(effect)
            case Read():
                return self._read()
            case Compute():
                return self.compute_outcome(effect.work)
            case ReadBody():
                assert self.read_body is not None, "the exchange began without the body"
                return Body(self.read_body(), self.clock())
            case Abandon():
                self._release()
            case Wait():
                time.sleep(effect.seconds)
            case _:
                assert_never(effect)
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
        """Close the reply; if its end has arrived, first read it to the end, so that the connection can be reused."""
        with suppress(self.library_error):
            while self.response is not None and end_received(self.response) and next(self.pieces, None) is not None:
                pass
        self._close()

    def _close(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            response.close()
