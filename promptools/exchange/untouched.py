"""Forward requests that do not concern tools byte for byte, and watch the reply for failures that a retry can fix.

Such failures are an error in `MENDED`, under any status, a stream that is cut, and a reply that the server swallowed
(tokens were spent, but nothing was sent). They can be retried only while the client has seen no content, so a reply has
two phases:

    before content   a stream's events are parsed, and forwarded as they come, except those from the first that would
                     end it (error, finish reason, end marker); a whole reply is held. If the reply turns out to be
                     lost, what is held is discarded and the retry loop takes over.
    after content    bytes are forwarded unparsed; only the end of the stream is looked for

The first content, call or refusal ends the first phase, and so do more than `HELD` bytes held: a lost reply is smaller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptools.exchange.effects import Failed, Head, Opened
from promptools.exchange.ending import Ending
from promptools.exchange.failure import Failure, of_link, of_problem, of_status
from promptools.exchange.intake import Intake
from promptools.exchange.sending import CALL_REASONS
from promptools.modes.checks import FEW, HARMONY_CALL
from promptools.profiles.profile import Wire
from promptools.wire.shapes import as_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.ledger import Ledger, Steps
    from promptools.wire.chat import Delta

MENDED = frozenset({"harmony", "server_parser", "overflow"})
"""Errors caused by the model's output, not by the request; and overflow, whose text differs on every server."""
HELD = 1 << 20
"""The most bytes of a reply that are held until it has content; a longer one is forwarded, as a lost one is smaller."""
_BLOCK: dict[Wire, re.Pattern[bytes]] = {"chat": re.compile(rb"\r\n\r\n|\n\n|\r\r"), "ollama": re.compile(rb"\n")}
"""The end of an event (SSE), or of a line (NDJSON)."""


class Watch:
    """Parses a reply as it is forwarded, until content has been seen; from then on bytes are forwarded unparsed."""

    def __init__(self, *, streamed: bool, swallows: bool, wire: Wire = "chat") -> None:
        self.said = False
        """Whether content, a call or a refusal has been seen, or more than `HELD` bytes."""
        self._intake = Intake(streamed=streamed, wire=wire)
        self._ending = Ending(wire)
        self._end = _BLOCK[wire]
        self._swallows = swallows
        self._unread = bytearray()
        self._searched = 0
        self._kept = bytearray()
        self._thought = False
        self._closed = False

    @property
    def over(self) -> bool:
        """Whether the server has signalled the end of the stream; it may keep the connection open."""
        return self._ending.seen

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may be forwarded now that `data` has arrived."""
        if self._intake.streamed:
            self._ending.feed(data)
        if self.said:
            return data
        if not self._intake.streamed:
            self._kept += data
            return self._let_go() if len(self._kept) > HELD else b""
        self._unread += data
        safe = b""
        while not self.said and (block := self._block()):
            self._look(self._intake.feed(block))
            if self._ends():
                self._kept += block
            else:
                safe += block
        if self.said or len(self._kept) + len(self._unread) > HELD:
            safe += self._let_go()
        return safe

    def _let_go(self) -> bytes:
        """Return what is held, and stop holding anything from now on."""
        held = self.rest
        self.said = True
        self._kept.clear()
        self._unread.clear()
        return held

    def _block(self) -> bytes:
        """Remove and return the next complete event or line; empty if there is none. No byte is searched twice."""
        delimiter = self._end.search(self._unread, self._searched)
        if delimiter is None:
            self._searched = max(0, len(self._unread) - 3)  # a chunk boundary may split the delimiter
            return b""
        block = bytes(self._unread[: delimiter.end()])
        del self._unread[: delimiter.end()]
        self._searched = 0
        return block

    def end(self) -> bytes:
        """Parse what is held at the end of the reply; unless there is a `failure`, the `rest` may be forwarded."""
        if not self.said:
            held = self._unread if self._intake.streamed else self._kept
            self._look([*self._intake.feed(bytes(held)), *self._intake.close()])
        self._closed = True
        return b""

    @property
    def rest(self) -> bytes:
        """The bytes that are held."""
        return bytes(self._kept + self._unread)

    def failure(self, opened: Opened) -> Failure | None:
        """Return what is wrong with the reply so far; None if nothing is, or nothing that a retry can fix."""
        decoder = self._intake
        if self.said:
            return None
        if decoder.problem:
            failure = of_problem(decoder.problem, opened, b"")
            return failure if failure.kind in MENDED else None
        if not self._closed or decoder.garbled:
            return None
        if decoder.streamed and not decoder.finish and not decoder.done:
            return Failure("cut", "the stream ended without a finish reason", opened=opened)
        lost = decoder.stop.get(0) == HARMONY_CALL or decoder.finish.get(0) in CALL_REASONS
        if lost or self._empty():
            return Failure("swallowed", "an answer without content", opened=opened, lost=lost)
        return None

    def _look(self, deltas: Sequence[Delta]) -> bool:
        for delta in deltas:
            self._thought = self._thought or bool(delta.reasoning)
            self.said = self.said or bool(delta.content.strip() or delta.tool_calls or delta.refusal)
        return self.said

    def _ends(self) -> bool:
        decoder = self._intake
        return bool(decoder.problem or decoder.finish or decoder.done)

    def _empty(self) -> bool:
        if not self._swallows or set(self._intake.finish.values()) - {"stop"}:
            return False
        spent = as_int((self._intake.usage or {}).get("completion_tokens"))
        return self._thought or (spent is not None and spent > FEW)


def pass_on(ledger: Ledger, body: bytes, watch: Watch) -> Steps[Failure | None]:
    """Send `body` and forward the response; return the failure if no content was forwarded and a retry may help."""
    opened = yield from ledger.send(body, ledger.front.path)
    if isinstance(opened, Failed):
        return of_link(opened)
    head = Head(opened.status, opened.headers)
    if not 200 <= opened.status < 300:
        error_body = yield from ledger.read_all(HELD)
        error = of_status(opened, error_body)
        if error.kind in MENDED:
            return error
        yield from ledger.emit(error_body, lambda: head)
        while len(error_body) > HELD and isinstance(chunk := (yield from ledger.read()), bytes):
            yield from ledger.emit(chunk, lambda: head)
        return None
    while True:
        chunk = yield from ledger.read()
        if isinstance(chunk, Failed):
            return of_link(chunk, opened)
        data = watch.end() if chunk is None else watch.feed(chunk)
        over = chunk is None or watch.over
        if over and chunk is not None:
            watch.end()
        if data:
            yield from ledger.emit(data, lambda: head)
        failure = watch.failure(opened)
        if failure:
            yield from ledger.abandon()
            return failure
        if over:
            yield from ledger.emit(watch.rest, lambda: head)
            return None
