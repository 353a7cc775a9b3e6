"""One attempt: send the request in one mode, stream what is certain to the client, and judge the reply at its end.

`Sending.run` goes through these phases, and stops at the first that fails:

    send      no connection, or an HTTP error status                      -> Failure
    read      chunks -> deltas -> the mode's readers -> events -> client; ends at the end of the body, at the server's
              end marker, at a broken connection, an error in the body, the size limit, or a live call that failed
    judge     broken connection, error, size limit, garbled or cut body   -> Failure
    verify    each choice against the request                             -> its verdict

A failure before `verify` concerns all choices. Text that was held is then sent only for a choice past its commit point,
for which no retry is possible. Choices have two indexes: the server counts those of one request from 0, the client
those of its own request; `_places` maps the first to the second.
"""

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
"""The failure of the whole attempt, or the verdict on each choice; a choice that the server never sent is missing."""


OVER = f"the read was ended after a whole call and {BLANKS} characters of white space"
CALL_REASONS = frozenset({"tool_calls", "function_call"})


class Sending:
    """One attempt for some choices of a request."""

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
        # the server counts its choices from 0, whatever their index is for the client
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
        """Send the request, read the reply and judge it."""
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
        self._ledger.notes.extend(f"the server's JSON was read with a liberty: {fix}" for fix in self.intake.fixes)
        return (yield from self._judge(opened, broke))

    def head(self) -> Head:
        """Return the head of the response to the client, with the headers of this attempt."""
        opened = self._ledger.opened
        headers = opened.headers if opened and 200 <= opened.status < 300 else ()  # none of a failed attempt's
        sends = self._ledger.policy.state.attempt_number
        return Head(200, own_headers(headers, self._outlet.content_type, self._plan.mode, sends))

    def _read(self) -> Steps[Failed | None]:
        """Read to the end of the reply or an error, sending what is certain; return how it broke off, if it did."""
        while True:
            chunk = yield from self._ledger.read()
            if isinstance(chunk, Failed):
                return chunk
            for delta in self.intake.close() if chunk is None else self.intake.feed(chunk):
                index = self._places.get(delta.index or 0)
                if index is not None:
                    yield from self._hand_on(index, self.readers[index].feed(delta), delta.logprobs)
                if self.intake.streamed and self._over():
                    self._ledger.notes.append(OVER)
                    yield from self._ledger.abandon()
                    return None
            if chunk is None:
                return None
            if self.intake.problem or self.intake.garbled or self.intake.excess or self._spoiled():
                yield from self._ledger.abandon()
                return None
            yield from self._ledger.beat()  # all chunks so far may belong to a call that is not complete yet
            if self.intake.done:  # the server may keep the connection open: do not wait for it to close
                return None

    def _hand_on(self, index: int, events: list[Event], logprobs: Any = None) -> Steps[None]:
        data = self._outlet.take(index, events, self.intake.envelope, logprobs)
        if data:
            yield from self._ledger.emit(data, self.head)

    def _over(self) -> bool:
        """Whether every choice has ended, or continues with nothing but white space after a call."""
        if not any(reader.over for reader in self.readers.values()):
            return False
        return all(self.readers[index].over or sent in self.intake.finish for sent, index in self._places.items())

    def _spoiled(self) -> bool:
        return any(self._outlet.broken(index) for index in self.readers)

    def _judge(self, opened: Opened, broke: Failed | None) -> Steps[Outcome]:
        decoder = self.intake
        part = next(iter(self.readers.values())).reply
        if broke:
            yield from self._let_go()
            return of_link(broke, opened, part)
        if decoder.problem:
            yield from self._let_go()
            return of_problem(decoder.problem, opened, decoder.body, part, decoder.wire)
        if decoder.excess:
            yield from self._let_go()
            return Failure("too_large", decoder.excess, opened=opened, part=part)
        if decoder.garbled:
            yield from self._let_go()
            coding = header(opened.headers, "content-encoding")  # one that was decoded is no longer in the headers
            why = f"{decoder.garbled}; its content-encoding is {coding!r}" if coding else decoder.garbled
            return Failure("garbled", why, opened=opened, body=decoder.body, part=part)
        if decoder.streamed and not (self._plan.ask.stream or decoder.finish or decoder.done):
            # a server that streams although no stream was requested
            return Failure("cut", "the stream ended without a finish reason", opened=opened, part=part)
        verdicts: dict[int, Verdict] = {}
        for sent, index in self._sent().items():
            finish = decoder.finish.get(sent)
            if self.readers[index].over and finish in {None, "length"}:
                finish = "stop"  # only white space was cut off
            if finish is None and (decoder.done or not decoder.streamed):
                finish = "stop"  # some servers signal the end without a finish reason
            if finish in CALL_REASONS and self._plan.ask.choice.kind == "none":
                finish = "stop"  # Ollama ignores tool_choice none; its calls are left out, its text is kept
            rest = self.readers[index].close(finish)
            if finish is not None or self._outlet.committed(index):  # after a cut, the rest may be half a tag
                yield from self._hand_on(index, rest)
            verdicts[index] = self._verdict(sent, index)
        return verdicts

    def _sent(self) -> dict[int, int]:
        """Return the choices to judge: all, unless the server sent some of them complete and nothing of the others."""
        decoder = self.intake
        received = {sent: index for sent, index in self._places.items() if sent in decoder.came}
        complete = not decoder.streamed or decoder.done or bool(decoder.finish)  # else the others may have been cut off
        return received if received and complete else self._places

    def _let_go(self) -> Steps[None]:
        """Send the text that was held when the stream broke, for choices past their commit point; drop calls."""
        for index, reader in self.readers.items():
            if self._outlet.committed(index):
                yield from self._hand_on(index, [event for event in reader.close(None) if isinstance(event, Text)])

    def _verdict(self, said: int, index: int) -> Verdict:
        reader, decoder = self.readers[index], self.intake
        stop = decoder.stop.get(said)
        return verify(
            self._plan.ask,
            reader.reply,
            raw=reader.raw,
            stop_reason=stop,
            usage=decoder.usage,
            harmony=self._plan.mode == "harmony",
            names=self._names,
        )

    def lost(self, index: int) -> bool:
        """Whether the server signalled a call in this choice; False in harmony mode, where we parse the calls."""
        if self._plan.mode == "harmony":
            return False
        sent = next(server_index for server_index, own_index in self._places.items() if own_index == index)
        return self.intake.stop.get(sent) == HARMONY_CALL or self.intake.finish.get(sent) in CALL_REASONS
