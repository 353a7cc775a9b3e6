"""One send: ask in a mode, read the reply as it comes, hand on what is certain, judge what was read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.exchange.effects import Failed, Head, Opened
from promptools.exchange.failure import Failure, of_link, of_problem, of_status
from promptools.exchange.intake import Intake, header, is_stream
from promptools.exchange.letter import write_letter
from promptools.exchange.outlet import Outlet, dump, own_headers
from promptools.exchange.registry import mode_of
from promptools.modes.checks import HARMONY_CALL, Verdict, verify
from promptools.modes.reader import BLANKS
from promptools.parsing.events import Text
from promptools.wire.chat import Envelope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.ledger import Ledger, Steps
    from promptools.exchange.plan import Plan
    from promptools.modes.mode import Reader
    from promptools.parsing.events import Event

Outcome: TypeAlias = "Failure | dict[int, Verdict]"
"""The whole send failed, or this became of each choice; one that the server never sent is left out."""


OVER = f"the read was ended after a whole call and {BLANKS} characters of white space"
CALL_REASONS = frozenset({"tool_calls", "function_call"})


class Sending:
    """One send for some choices of a request."""

    def __init__(self, ledger: Ledger, plan: Plan, outlet: Outlet, indices: Sequence[int]) -> None:
        self._ledger = ledger
        self._plan = plan
        self._outlet = outlet
        upstream = mode_of(plan.mode).body(plan.ask)
        self._letter = write_letter(upstream, plan.ask)
        self._names = upstream.names
        self._notes = (*upstream.notes, *self._letter.notes)
        new_id = ledger.context.new_id
        self.readers: dict[int, Reader] = {
            index: mode_of(plan.mode).reader(plan.ask, upstream, new_id) for index in indices
        }
        self._places = dict(enumerate(indices))
        # the server counts its choices from 0, whichever of the client's they are
        self.intake = Intake(
            plan.ask.stream,
            self._letter.wire,
            self._spare,
            choices=len(self._places),
            limit=ledger.context.max_reply,
        )

    def _spare(self) -> Envelope:
        context = self._ledger.context
        created = int(context.wall().timestamp()) if context.wall is not None else 0
        return Envelope(f"chatcmpl-{context.new_id()}", self._plan.ask.model, created)

    def run(self) -> Steps[Outcome]:
        """Send, read and judge."""
        if self._letter.context_limit is not None:
            self._plan.asked_for_context()
        self._ledger.notes.extend((*self._plan.notes, *self._notes))
        self._plan.notes.clear()
        body = yield from self._ledger.compute(partial(dump, self._letter.body))
        opened = yield from self._ledger.send(body, self._letter.path)
        if isinstance(opened, Failed):
            return of_link(opened)
        if not 200 <= opened.status < 300:
            body = yield from self._ledger.read_all()
            if not body and self._ledger.policy.left(self._ledger.now) == 0:
                return Failure("timeout", f"the deadline passed before the text of an HTTP {opened.status} came")
            return replace(of_status(opened, body, self._letter.wire), limit=self._letter.context_limit)
        self.intake.streamed = is_stream(opened.headers, asked=self._plan.ask.stream)
        broke = yield from self._read()
        self._ledger.notes.extend(f"the server's JSON was read with a liberty: {each}" for each in self.intake.fixes)
        return (yield from self._judge(opened, broke))

    def head(self) -> Head:
        """Write the head of the answer, if this send is the one that gives it."""
        opened = self._ledger.opened
        headers = opened.headers if opened and 200 <= opened.status < 300 else ()  # not those of a failed attempt
        sends = self._ledger.policy.state.attempt_number
        return Head(200, own_headers(headers, self._outlet.content_type, self._plan.mode, sends))

    def _read(self) -> Steps[Failed | None]:
        """Read to the end, an error or a break, handing on what becomes certain."""
        while True:
            piece = yield from self._ledger.read()
            if isinstance(piece, Failed):
                return piece
            for delta in self.intake.close() if piece is None else self.intake.feed(piece):
                place = self._places.get(delta.index or 0)
                if place is not None:
                    yield from self._hand_on(place, self.readers[place].feed(delta), delta.logprobs)
                if self.intake.streamed and self._over():
                    self._ledger.notes.append(OVER)
                    yield from self._ledger.abandon()
                    return None
            if piece is None:
                return None
            if self.intake.problem or self.intake.garbled or self.intake.excess or self._spoiled():
                yield from self._ledger.abandon()
                return None
            yield from self._ledger.beat()  # pieces come, and may all be part of a call that is not whole yet
            if self.intake.done:  # the server may keep the connection open; what is left of it is not waited for
                return None

    def _hand_on(self, index: int, events: list[Event], logprobs: Any = None) -> Steps[None]:
        data = self._outlet.take(index, events, self.intake.envelope, logprobs)
        if data:
            yield from self._ledger.emit(data, self.head)

    def _over(self) -> bool:
        """Whether every choice has ended, or goes on with nothing but white space after a call."""
        if not any(reader.over for reader in self.readers.values()):
            return False
        return all(self.readers[index].over or said in self.intake.finish for said, index in self._places.items())

    def _spoiled(self) -> bool:
        return any(self._outlet.broken(index) for index in self.readers)

    def _judge(self, opened: Opened, broke: Failed | None) -> Steps[Outcome]:
        intake = self.intake
        part = next(iter(self.readers.values())).reply
        if broke:
            yield from self._let_go()
            return of_link(broke, opened, part)
        if intake.problem:
            yield from self._let_go()
            return of_problem(intake.problem, opened, intake.body, part, intake.wire)
        if intake.excess:
            yield from self._let_go()
            return Failure("too_large", intake.excess, opened=opened, part=part)
        if intake.garbled:
            yield from self._let_go()
            coding = header(opened.headers, "content-encoding")  # what we can undo is undone, and no longer named
            why = f"{intake.garbled}; its content-encoding is {coding!r}" if coding else intake.garbled
            return Failure("garbled", why, opened=opened, body=intake.body, part=part)
        if intake.streamed and not (self._plan.ask.stream or intake.finish or intake.done):
            # a server that streams though it was not asked to
            return Failure("cut", "the stream ended without a finish reason", opened=opened, part=part)
        verdicts: dict[int, Verdict] = {}
        for said, index in self._sent().items():
            finish = intake.finish.get(said)
            if self.readers[index].over and finish in {None, "length"}:
                finish = "stop"  # what was cut is white space
            if finish is None and (intake.done or not intake.streamed):
                finish = "stop"  # some servers never say why they ended, but say that they did
            if finish in CALL_REASONS and self._plan.ask.choice.kind == "none":
                finish = "stop"  # Ollama ignores tool_choice none; its calls are left out, what it said stands
            rest = self.readers[index].close(finish)
            if finish is not None or self._outlet.committed(index):  # what a cut leaves may be half a marker
                yield from self._hand_on(index, rest)
            verdicts[index] = self._verdict(said, index)
        return verdicts

    def _sent(self) -> dict[int, int]:
        """Give the choices to judge: all, unless the server sent some of them whole and of the others not a word."""
        intake = self.intake
        came = {said: index for said, index in self._places.items() if said in intake.came}
        whole = not intake.streamed or intake.done or bool(intake.finish)  # a cut may have kept the others from coming
        return came if came and whole else self._places

    def _let_go(self) -> Steps[None]:
        """Hand on the words that were held when the stream broke, where something before them is out; calls are not."""
        for index, reader in self.readers.items():
            if self._outlet.committed(index):
                yield from self._hand_on(index, [each for each in reader.close(None) if isinstance(each, Text)])

    def _verdict(self, said: int, index: int) -> Verdict:
        reader, intake = self.readers[index], self.intake
        stop = intake.stop.get(said)
        return verify(
            self._plan.ask,
            reader.reply,
            raw=reader.raw,
            stop_reason=stop,
            usage=intake.usage,
            harmony=self._plan.mode == "harmony",
            names=self._names,
        )

    def lost(self, index: int) -> bool:
        """Tell whether the server spoke of a call in this choice; in harmony mode it is we who read the calls."""
        if self._plan.mode == "harmony":
            return False
        said = next(place for place, each in self._places.items() if each == index)
        return self.intake.stop.get(said) == HARMONY_CALL or self.intake.finish.get(said) in CALL_REASONS
