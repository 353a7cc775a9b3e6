"""The commit point: which of one choice's events go to a streaming client now, and which are held back.

A stream cannot be taken back, so each choice has one point of no return, and two states:

    open        only the role and reasoning have been sent; a failed attempt can be dropped (`drop`) and replaced by
                another, whose reasoning follows in the same stream
    committed   the first content character, the first complete and valid call, or the start of a call that is
                streamed live has been sent; a failure is now an error inside the stream

Invariant: before the commit, nothing was sent that a later attempt could contradict. So whatever may still turn out to
be wrong is held: white space before anything else; all text while a call or an answer in a certain form is required
and no call has been sent; text after a malformed call, until a valid one comes; malformed calls and discarded text
themselves; everything under `hold="all"`. After a commit `finish` sends what is held: the text alone if the reply is
good, else all of the model's own text in its order. Without one it sends the whole reply.

A live call that turns out malformed cannot be held any more: its JSON is left open (`broken`), and an error follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text, WasReasoning
from promptools.parsing.output import SPACE
from promptools.types import Discarded, Malformed, Span
from promptools.wire.shapes import as_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.modes.ask import Ask
    from promptools.types import Call, Reply
    from promptools.wire.chat import Envelope

_NOWHERE = Span(0, 0)


class Writer(Protocol):
    """Encodes the events of one choice as chunks of the client's API."""

    def role(self, content: str | None = "") -> dict[str, Any] | None:
        """Return the chunk that opens a stream; None if the API has none."""
        ...

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Return the chunks for `event`, those of text with its log probabilities."""
        ...

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Return the chunk that ends the choice."""
        ...


class Line:
    """The stream of one choice to the client; `writer` makes its `Writer` from the envelope."""

    def __init__(self, ask: Ask, writer: Callable[[Envelope], Writer], *, begun: bool = False) -> None:
        self.committed = False
        self.broken: Malformed | None = None
        """The live call that failed: its JSON is left open, and an error has to follow.

        Not set for a call that was cut off, which the finish reason can signal too.
        """
        self._ask = ask
        self._make = writer
        self._writer: Writer | None = None
        self._begun = begun
        self._held: list[Event] = []
        self._doubt = False
        self._thought = -1
        """The offset in the text at which the last reasoning ended."""
        self._thinking = False
        """Whether the closing tag of the reasoning is yet to come."""
        self._live: set[int] = set()
        self._given: set[str] = set()
        self._logprobs: list[Any] = []

    @property
    def unfinished(self) -> bool:
        """Whether a call has been sent in part."""
        return bool(self._live)

    def take(self, events: Iterable[Event], envelope: Envelope, logprobs: Any = None) -> list[dict[str, Any]]:
        """Return the chunks that may be sent now."""
        if logprobs:
            self._logprobs.append(logprobs)
        return [chunk for event in events for chunk in self._one(event, envelope)]

    def drop(self) -> None:
        """Discard what is held of a failed attempt."""
        self._held.clear()
        self._logprobs.clear()
        self._doubt = False

    def finish(self, reply: Reply, envelope: Envelope, *, good: bool = True) -> list[dict[str, Any]]:
        """Return the last chunks: what was held, calls that were not sent yet, the finish reason.

        `good` is false if the reply has no valid call and the model's own text is the content.
        """
        chunks = self._rest(good, envelope) if self.committed else self._whole(reply, envelope)
        for position, call in enumerate(reply.calls):
            if call.id not in self._given:
                chunks += self._write(CallEnd(-1 - position, call, call.span), envelope)
        writer = self._writer_for(envelope)
        role = None if self._begun else writer.role()
        return [*chunks, *([role] if role else []), writer.finish(reply, logprobs=self._take_logprobs())]

    # -- one event

    def _one(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        if self._ask.options.hold == "all":
            return []
        match event:
            case Reasoning():
                return self._think(event, envelope)
            case Text():
                return self._text(event, envelope)
            case CallStart(index=index) if self._goes_live(event):
                self._live.add(index)
                self._given.add(event.id)
                return self._commit(event, envelope)
            case CallArgs(index=index) if index in self._live:
                return self._write(event, envelope)
            case CallEnd(index=index) if index in self._live:
                self._live.discard(index)
                return self._write(event, envelope)
            case CallEnd(call=call) if self._wanted(call):
                self._given.add(call.id)
                return self._commit(event, envelope)
            case Malformed():
                self._thinking = False
                self._fail(event)
            case WasReasoning():
                return self._take_back(envelope)
            case Discarded() if self._thinking or event.span.start == self._thought:
                self._thinking = self._thinking and event.why != "markup"  # markup here is the closing tag
            case Discarded():
                self._held.append(event)
            case _:
                pass
        return []

    def _think(self, event: Reasoning, envelope: Envelope) -> list[dict[str, Any]]:
        """Send reasoning; drop its held tags, which are no part of the text that a failed call falls back to."""
        start = event.span.start
        while self._held and isinstance(last := self._held[-1], Discarded) and last.span.end == start:
            start = -1 if last.why == "markup" else last.span.start
            self._held.pop()
        self._thought, self._thinking = event.span.end, True
        return self._write(event, envelope)

    def _text(self, event: Text, envelope: Envelope) -> list[dict[str, Any]]:
        self._thinking = False
        uncertain = (self._ask.choice.forced or self._ask.checks_form or self._doubt) and not self._given
        if uncertain or (not self.committed and not event.text.strip()):
            self._held.append(event)
            return []
        return self._commit(event, envelope)

    def _fail(self, event: Malformed) -> None:
        if event.index not in self._live:
            self._doubt = True
            self._held.append(event)
        elif event.reason != "truncated":
            self.broken = event

    def _goes_live(self, event: CallStart) -> bool:
        tool = self._ask.tools.get(event.name)
        live = event.early or self._ask.options.arguments == "live"
        if not live or self._ask.legacy or tool is None or tool.strict:
            return False
        return self._ask.choice.name in {None, event.name}

    def _wanted(self, call: Call) -> bool:
        return self._ask.choice.name in {None, call.name}

    def _take_back(self, envelope: Envelope) -> list[dict[str, Any]]:
        """Send held text as reasoning, which it turned out to be; what was already sent stays text."""
        held, self._held = self._held, []
        reasoning = "".join(event.text for event in held if isinstance(event, Text))
        reasoning = reasoning.lstrip(SPACE) if self._thought < 0 else reasoning
        return self._write(Reasoning(reasoning, _NOWHERE), envelope) if reasoning else []

    # -- writing

    def _commit(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        """Send held text, then `event`: the point of no return."""
        self.committed = True
        held, self._held = self._held, []
        texts = [held_event for held_event in held if isinstance(held_event, Text)]
        return [chunk for part in (*texts, event) for chunk in self._write(part, envelope)]

    def _rest(self, good: bool, envelope: Envelope) -> list[dict[str, Any]]:
        """Send what was held after the commit: the text alone, or if not `good` all of the model's text in order."""
        held, self._held = self._held, []
        parts = [
            event.text if isinstance(event, Text) else _raw(event)
            for event in sorted(held, key=lambda event: event.span)
            if isinstance(event, Text) or not good
        ]
        text = "".join(parts)
        return self._write(Text(text, _NOWHERE), envelope) if text else []

    def _whole(self, reply: Reply, envelope: Envelope) -> list[dict[str, Any]]:
        """Send a whole reply, of which at most the reasoning was sent before."""
        events: list[Event] = []
        if self._ask.options.hold == "all" and reply.reasoning:
            events.append(Reasoning(reply.reasoning, _NOWHERE))
        if reply.content:
            events.append(Text(reply.content, _NOWHERE))
        self._held = []
        return [chunk for event in events for chunk in self._write(event, envelope)]

    def _write(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        writer = self._writer_for(envelope)
        chunks = writer.write(event, self._take_logprobs() if isinstance(event, Text) else None)
        if chunks and not self._begun:
            self._begun = True
            role = writer.role("" if isinstance(event, Text) else None)
            return [role, *chunks] if role else chunks
        return chunks

    def _writer_for(self, envelope: Envelope) -> Writer:
        """Return the writer; the first attempt that sends anything sets the envelope of the whole stream."""
        if self._writer is None:
            self._writer = self._make(envelope)
        return self._writer

    def _take_logprobs(self) -> Any:
        """Return the log probabilities since the last text, merged into one object."""
        pending, self._logprobs = self._logprobs, []
        if len(pending) < 2:
            return pending[0] if pending else None
        keys = dict.fromkeys(key for logprobs in pending for key in logprobs)
        return {key: [item for logprobs in pending for item in as_list(logprobs.get(key))] for key in keys}


def _raw(event: Event) -> str:
    return event.raw if isinstance(event, (Malformed, Discarded)) else ""
