"""Requests that have nothing to do with tools pass byte for byte, both ways, under a watchful eye.

Only what ends a reply badly is looked for: a Harmony error, whatever its status, and a reply that the server swallowed.
A stream's bytes go on as they come but for the event that would end it before any content has been seen.
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
"""Errors that come of what the model said, not of what the client asked; and one that every server words otherwise."""
HELD = 1 << 20
"""Bytes of a reply that are held until it has content; beyond them it passes, for a lost one has not as many."""
_BLOCK: dict[Wire, re.Pattern[bytes]] = {"chat": re.compile(rb"\r\n\r\n|\n\n|\r\r"), "ollama": re.compile(rb"\n")}
"""The end of an event, or of a line."""


class Watch:
    """Looks at a reply as it passes, until content has been seen; from then on bytes pass unread."""

    def __init__(self, *, streamed: bool, swallows: bool, wire: Wire = "chat") -> None:
        self.said = False
        """Has content, or a call, gone on?"""
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
        """Whether the server has said that the stream is over; it may keep the connection open all the same."""
        return self._ending.seen

    def feed(self, data: bytes) -> bytes:
        """Take bytes and give those that may go on."""
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
        """Give what is held, and from now on everything: it is more than a lost reply has, whatever is in it."""
        held = self.rest
        self.said = True
        self._kept.clear()
        self._unread.clear()
        return held

    def _block(self) -> bytes:
        """Take the next whole event, if it is there; what has been searched is not searched again."""
        found = self._end.search(self._unread, self._searched)
        if found is None:
            self._searched = max(0, len(self._unread) - 3)  # the end of an event may be cut itself
            return b""
        block = bytes(self._unread[: found.end()])
        del self._unread[: found.end()]
        self._searched = 0
        return block

    def end(self) -> bytes:
        """Take the end; unless there is a `failure`, the `rest` may go on."""
        if not self.said:
            held = self._unread if self._intake.streamed else self._kept
            self._look([*self._intake.feed(bytes(held)), *self._intake.close()])
        self._closed = True
        return b""

    @property
    def rest(self) -> bytes:
        """Give what is held."""
        return bytes(self._kept + self._unread)

    def failure(self, opened: Opened) -> Failure | None:
        """Say what is wrong with the reply, as far as it has come."""
        intake = self._intake
        if self.said:
            return None
        if intake.problem:
            found = of_problem(intake.problem, opened, b"")
            return found if found.kind in MENDED else None
        if not self._closed or intake.garbled:
            return None
        if intake.streamed and not intake.finish and not intake.done:
            return Failure("cut", "the stream ended without a finish reason", opened=opened)
        lost = intake.stop.get(0) == HARMONY_CALL or intake.finish.get(0) in CALL_REASONS
        if lost or self._empty():
            return Failure("swallowed", "an answer without content", opened=opened, lost=lost)
        return None

    def _look(self, deltas: Sequence[Delta]) -> bool:
        for delta in deltas:
            self._thought = self._thought or bool(delta.reasoning)
            self.said = self.said or bool(delta.content.strip() or delta.tool_calls or delta.refusal)
        return self.said

    def _ends(self) -> bool:
        intake = self._intake
        return bool(intake.problem or intake.finish or intake.done)

    def _empty(self) -> bool:
        if not self._swallows or set(self._intake.finish.values()) - {"stop"}:
            return False
        spent = as_int((self._intake.usage or {}).get("completion_tokens"))
        return self._thought or (spent is not None and spent > FEW)


def pass_on(ledger: Ledger, body: bytes, watch: Watch) -> Steps[Failure | None]:
    """Send `body` and hand on what comes; gives a failure that the fallback may mend, with no content gone on yet."""
    opened = yield from ledger.send(body, ledger.front.path)
    if isinstance(opened, Failed):
        return of_link(opened)
    head = Head(opened.status, opened.headers)
    if not 200 <= opened.status < 300:
        answer = yield from ledger.read_all(HELD)
        refused = of_status(opened, answer)
        if refused.kind in MENDED:
            return refused
        yield from ledger.emit(answer, lambda: head)
        while len(answer) > HELD and isinstance(piece := (yield from ledger.read()), bytes):
            yield from ledger.emit(piece, lambda: head)
        return None
    while True:
        piece = yield from ledger.read()
        if isinstance(piece, Failed):
            return of_link(piece, opened)
        data = watch.end() if piece is None else watch.feed(piece)
        over = piece is None or watch.over
        if over and piece is not None:
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
