"""The part of a reply that has been emitted: its events, and the resulting `Reply`.

Everything that is recorded is final. `Emitter` decides what is emitted, and in which order. Each character of the input
is recorded once, so that the spans tile the input; `offset` is the offset of the next character.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Event, Reasoning, Text, WasReasoning
from promptools.types import Call, Discarded, DiscardWhy, Fix, Malformed, NewId, ParseAttempt, Reply, Span, Trace

if TYPE_CHECKING:
    import hashlib

    from promptools.parsing.parts import EarlyArguments, EarlyCallStart

MAX_TRIES = 256
"""Maximum number of attempts to read a call that are kept in a trace.

A reply with a thousand code fences should not carry a thousand attempts.
"""
ID_LENGTH = 9
"""Number of characters of a call id; all are letters or digits.

All servers accept such ids, and Mistral's templates need them (vllm#9019). Profiles call this form `alnum9`. The digest
in `promptools.modes.history.alnum9_id` has enough bits for up to ten characters.
"""

Zone = Literal["text", "reasoning"]


class ReplyRecord:
    """Records the events and the reply so far.

    `new_id` makes the ids of calls. If it is None, the ids are digests of the text so far.
    """

    def __init__(self, new_id: NewId | None) -> None:
        self._new_id = new_id
        self._digest: hashlib.blake2b | None = None
        self._unhashed: list[str] = []
        self._events: list[Event] = []
        self.emits_events = True
        """Whether events are recorded in addition to the reply."""
        self.offset = 0
        """The offset up to which the input has been emitted."""
        self.pieces: dict[Zone, list[str]] = {"text": [], "reasoning": []}
        """The pieces of text of the answer (`text`) and of the reasoning."""
        self._calls: list[Call] = []
        self._dialects: set[str] = set()
        self._call_keys: set[tuple[str, str, str]] = set()
        self._keyed_calls = 0
        self._malformed: list[Malformed] = []
        self._discarded: list[list[Discarded]] = []
        self._tries: list[ParseAttempt] = []
        self._refusals: dict[tuple[str, int], ParseAttempt] = {}
        self._fixes: list[Fix] = []
        self.call_count = 0
        """Number of calls that have ended, malformed ones included; also the index of the next call."""
        self._early_call: CallStart | None = None
        self._early_length = 0
        self._finish_reason: str | None = None

    def drain(self) -> list[Event]:
        """Return and remove the events recorded since the last call to `drain`."""
        events, self._events = self._events, []
        return events

    def advance(self, raw: str) -> Span:
        """Advance `offset` past `raw`, the next characters of the input; return their span."""
        start = self.offset
        self.offset = start + len(raw)
        return Span(start, self.offset)

    # --- text ----------------------------------------------------------------------------------------------------

    def add_text(self, text: str, zone: Zone, span: Span) -> None:
        """Record `text` as a part of the answer or of the reasoning."""
        self._unhashed.append(text)
        self.pieces[zone].append(text)
        if self.emits_events:
            self._events.append(Text(text, span) if zone == "text" else Reasoning(text, span))

    def add_line_break(self, zone: Zone) -> None:
        """Record a line break, which is not in the input, as a part of the answer or of the reasoning."""
        self.pieces[zone].append("\n")
        if self.emits_events:
            here = Span(self.offset, self.offset)
            self._events.append(Text("\n", here) if zone == "text" else Reasoning("\n", here))

    def discard(self, raw: str, why: DiscardWhy) -> None:
        """Record the next characters of the input as neither text nor a call."""
        if raw:
            self.add_discarded(raw, why, self.advance(raw))

    def add_discarded(self, raw: str, why: DiscardWhy, span: Span) -> None:
        """Record a piece of the input that is neither text nor a call. The reply joins adjacent pieces of one kind."""
        event = Discarded(raw, why, span)
        if self.emits_events:
            self._events.append(event)
        last = self._discarded[-1] if self._discarded else None
        if last is None or last[-1].why != why or last[-1].span.end != event.span.start:
            self._discarded.append([event])
        else:
            last.append(event)

    def turn_into_reasoning(self, space: str) -> None:
        """Turn all content so far into reasoning.

        If there was no reasoning before, any characters in `space` at the beginning of the content are discarded.
        """
        self._events.append(WasReasoning(Span(0, self.offset)))
        content, before = "".join(self.pieces["text"]), self.pieces["reasoning"]
        bare = content if before else content.lstrip(space)
        if bare:
            before.append(bare)
        if len(bare) < len(content):
            leading = content[: len(content) - len(bare)]
            self._discarded.insert(0, [Discarded(leading, "space", Span(0, len(leading)))])
        self.pieces["text"] = []

    # --- calls ---------------------------------------------------------------------------------------------------

    def start_call(self, early: EarlyCallStart) -> None:
        """Record the start of a call whose arguments are incomplete."""
        self._early_call = CallStart(self.call_count, self._next_id(), early.name, Span(self.offset, self.offset))
        if self.emits_events:
            self._events.append(self._early_call)

    def add_arguments(self, early: EarlyArguments) -> None:
        """Record a fragment of the arguments of the call that was started."""
        if self.emits_events:
            assert self._early_call is not None
            self._early_length += len(early.text)
            self._events.append(CallArgs(self.call_count, early.text, self._early_call.span))

    def add_call(self, raw: str, call: Call) -> bool:
        """Record a call; return whether it was recorded.

        A call that repeats an earlier call is discarded instead, unless its start has been emitted.
        """
        repeats = self._is_repeat(call)  # even if the call was started early: later calls may repeat it
        if repeats and self._early_call is None:
            self.discard(raw, "repeat")
            return False
        span = self.advance(raw)
        live, self._early_call = self._early_call, None
        call = _with_id_and_span(call, live.id if live else self._next_id(), span)
        if self.emits_events:
            start = Span(span.start, span.start)
            if live is None:
                self._events.append(CallStart(self.call_count, call.id, call.name, start))
            self._events.append(CallArgs(self.call_count, call.arguments_json[self._early_length :], start))
            self._events.append(CallEnd(self.call_count, call, span))
        self._calls.append(call)
        self._end_call(raw)
        return True

    def add_malformed(self, raw: str, malformed: Malformed) -> None:
        """Record text that the model intended as a call, but that cannot be returned as a call."""
        span = self.advance(raw)
        call = malformed.call
        live, self._early_call = self._early_call, None
        if call is not None:
            call = _with_id_and_span(call, live.id if live else self._next_id(), span)
        event = replace(malformed, index=self.call_count, raw=raw, span=span, call=call)
        self._events.append(event)
        self._malformed.append(event)
        self._end_call(raw)

    def _end_call(self, raw: str) -> None:
        self._unhashed.append(raw)
        self.call_count += 1
        self._early_length = 0

    def _is_repeat(self, call: Call) -> bool:
        """Return whether `call` repeats an earlier call in another dialect.

        An equal call in the same dialect is a further call, not a repeat.
        """
        self._dialects.add(call.dialect)
        if len(self._dialects) < 2:
            return False
        for earlier in self._calls[self._keyed_calls :]:
            self._call_keys.add((earlier.name, json.dumps(earlier.arguments, sort_keys=True), earlier.dialect))
        self._keyed_calls = len(self._calls)
        key = json.dumps(call.arguments, sort_keys=True)
        return any((call.name, key, other) in self._call_keys for other in self._dialects if other != call.dialect)

    def _next_id(self) -> str:
        if self._new_id is not None:
            return self._new_id()
        if self._digest is None:
            import hashlib  # only when a call needs an id, since the import takes time

            self._digest = hashlib.blake2b(digest_size=8)
        if self._unhashed:
            self._digest.update("".join(self._unhashed).encode("utf-8", "surrogatepass"))
            self._unhashed = []
        digest = self._digest.copy()
        digest.update(self.call_count.to_bytes(4, "big"))
        return digest.hexdigest()[:ID_LENGTH]

    # --- the trace -----------------------------------------------------------------------------------------------

    def add_fix(self, fix: Fix) -> None:
        """Record a fix that concerns the whole reply, not one call."""
        if len(self._fixes) < MAX_TRIES:
            self._fixes.append(fix)

    def add_try(self, attempt: ParseAttempt) -> None:
        """Record an attempt to read a call."""
        if len(self._tries) < MAX_TRIES:
            self._tries.append(attempt)

    def retract_tries(self, start: int, end: int) -> None:
        """Correct the trace: record that the attempts to read calls between offsets `start` and `end` found only text.

        These attempts must be the most recent ones. O(n) in their number.
        """
        for index in reversed(range(len(self._tries))):
            attempt = self._tries[index]
            if attempt.span.start < start:
                break
            if attempt.span.end <= end and attempt.outcome != "text":
                self._tries[index] = replace(attempt, outcome="text", why="text follows it: it is talked about")

    def add_refusal(self, attempt: ParseAttempt) -> None:
        """Record a text that looked like the beginning of a call but was not.

        For each strategy and offset, at most one such text is kept.
        """
        if len(self._refusals) < MAX_TRIES:
            self._refusals[attempt.strategy, attempt.span.start] = attempt

    @property
    def refusals(self) -> list[ParseAttempt]:
        """The texts that only looked like the beginning of a call, except those that `add_try` recorded later."""
        tried = {(attempt.strategy, attempt.span.start) for attempt in self._tries}
        return [refusal for key, refusal in self._refusals.items() if key not in tried]

    # --- the end -------------------------------------------------------------------------------------------------

    def end(self, finish_reason: str | None) -> None:
        """Record the end of the reply."""
        self._finish_reason = finish_reason
        if self.emits_events:
            self._events.append(End(finish_reason, Span(self.offset, self.offset)))

    @property
    def reply(self) -> Reply:
        """A `Reply` with everything that has been emitted so far."""
        return Reply(
            calls=tuple(self._calls),
            content="".join(self.pieces["text"]),
            reasoning="".join(self.pieces["reasoning"]),
            malformed=tuple(self._malformed),
            discarded=tuple(sorted(map(_join_discarded, self._discarded), key=lambda piece: piece.span)),
            finish_reason=self._finish_reason,
            fixes=tuple(self._fixes),
            trace=Trace(tries=tuple(self._tries)),
        )


def _with_id_and_span(call: Call, new_id: str, span: Span) -> Call:
    """Return a copy of the call with this id and span; `dataclasses.replace` would take three times as long."""
    return Call(
        new_id,
        call.name,
        call.arguments,
        call.arguments_json,
        call.fixes,
        span,
        call.dialect,
        call.unknown_tool,
    )


def _join_discarded(pieces: list[Discarded]) -> Discarded:
    if len(pieces) == 1:
        return pieces[0]
    span = Span(pieces[0].span.start, pieces[-1].span.end)
    return Discarded("".join(piece.raw for piece in pieces), pieces[0].why, span)
