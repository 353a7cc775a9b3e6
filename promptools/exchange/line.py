"""The commit point: what of one choice's events goes to a streaming client now, and what is held back.

A choice is open until its first content character or its first complete, valid call has gone out; reasoning and the
role do not count. While it is open a failed attempt can be forgotten (`drop`) and another one take its place. What may
yet be found wrong is held: blank text before anything else, all text while a call is required or a certain form of the
answer, everything with `hold="all"`, and whatever follows a malformed call until it is known whether a good one comes.
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
    """Turns the events of one choice into the shapes of the client's API."""

    def role(self, content: str | None = "") -> dict[str, Any] | None:
        """Write what opens a stream; None where the API has nothing of the kind."""
        ...

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Write what `event` shows to the client, a text with its log probabilities."""
        ...

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Write what ends the choice."""
        ...


class Line:
    """One choice of a stream, on its way to the client; `writer` makes its writer."""

    def __init__(self, ask: Ask, writer: Callable[[Envelope], Writer], *, begun: bool = False) -> None:
        self.committed = False
        self.broken: Malformed | None = None
        """The live call that failed: its JSON stays open and an error has to follow.

        One that was cut off is none: the finish reason may say so as well.
        """
        self._ask = ask
        self._make = writer
        self._writer: Writer | None = None
        self._begun = begun
        self._held: list[Event] = []
        self._doubt = False
        self._thought = -1
        """Where the last thought ended in the text."""
        self._thinking = False
        """Its closer has not come."""
        self._live: set[int] = set()
        self._given: set[str] = set()
        self._logprobs: list[Any] = []

    @property
    def unfinished(self) -> bool:
        """Whether a call has gone out in part."""
        return bool(self._live)

    def take(self, events: Iterable[Event], envelope: Envelope, logprobs: Any = None) -> list[dict[str, Any]]:
        """Give the chunks that may go out now."""
        if logprobs:
            self._logprobs.append(logprobs)
        return [chunk for event in events for chunk in self._one(event, envelope)]

    def drop(self) -> None:
        """Forget what the failed attempt left behind."""
        self._held.clear()
        self._logprobs.clear()
        self._doubt = False

    def finish(self, reply: Reply, envelope: Envelope, *, good: bool = True) -> list[dict[str, Any]]:
        """Give the last chunks: what was held, calls that were not handed over yet, the finish reason.

        `good` is false where nothing valid came of it and the model's own words are the content.
        """
        chunks = self._rest(good, envelope) if self.committed else self._whole(reply, envelope)
        for place, call in enumerate(reply.calls):
            if call.id not in self._given:
                chunks += self._write(CallEnd(-1 - place, call, call.span), envelope)
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
                self._thinking = self._thinking and event.why != "markup"  # the tag that closed the thought
            case Discarded():
                self._held.append(event)
            case _:
                pass
        return []

    def _think(self, event: Reasoning, envelope: Envelope) -> list[dict[str, Any]]:
        """Send a thought; the tags around it are none of the words that a failed call gives back."""
        start = event.span.start
        while self._held and isinstance(last := self._held[-1], Discarded) and last.span.end == start:
            start = -1 if last.why == "markup" else last.span.start
            self._held.pop()
        self._thought, self._thinking = event.span.end, True
        return self._write(event, envelope)

    def _text(self, event: Text, envelope: Envelope) -> list[dict[str, Any]]:
        self._thinking = False
        waits = (self._ask.choice.forced or self._ask.checks_form or self._doubt) and not self._given
        if waits or (not self.committed and not event.text.strip()):
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
        """Send held text on as the reasoning that it was; what has gone out has gone out."""
        held, self._held = self._held, []
        thought = "".join(each.text for each in held if isinstance(each, Text))
        thought = thought.lstrip(SPACE) if self._thought < 0 else thought
        return self._write(Reasoning(thought, _NOWHERE), envelope) if thought else []

    # -- writing

    def _commit(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        """Send held text, then `event`: from here on there is no way back."""
        self.committed = True
        held, self._held = self._held, []
        texts = [each for each in held if isinstance(each, Text)]
        return [chunk for each in (*texts, event) for chunk in self._write(each, envelope)]

    def _rest(self, good: bool, envelope: Envelope) -> list[dict[str, Any]]:
        """Send what was held after the commit: the text alone, or every word in its order."""
        held, self._held = self._held, []
        words = [
            each.text if isinstance(each, Text) else _raw(each)
            for each in sorted(held, key=lambda event: event.span)
            if isinstance(each, Text) or not good
        ]
        text = "".join(words)
        return self._write(Text(text, _NOWHERE), envelope) if text else []

    def _whole(self, reply: Reply, envelope: Envelope) -> list[dict[str, Any]]:
        """Send a reply of which nothing but reasoning has gone out, if that."""
        events: list[Event] = []
        if self._ask.options.hold == "all" and reply.reasoning:
            events.append(Reasoning(reply.reasoning, _NOWHERE))
        if reply.content:
            events.append(Text(reply.content, _NOWHERE))
        self._held = []
        return [chunk for each in events for chunk in self._write(each, envelope)]

    def _write(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        writer = self._writer_for(envelope)
        chunks = writer.write(event, self._take_logprobs() if isinstance(event, Text) else None)
        if chunks and not self._begun:
            self._begun = True
            role = writer.role("" if isinstance(event, Text) else None)
            return [role, *chunks] if role else chunks
        return chunks

    def _writer_for(self, envelope: Envelope) -> Writer:
        """Give the writer; the first attempt that sends anything lends its envelope to the whole stream."""
        if self._writer is None:
            self._writer = self._make(envelope)
        return self._writer

    def _take_logprobs(self) -> Any:
        """Give the log probabilities that came since the last text, as one object."""
        taken, self._logprobs = self._logprobs, []
        if len(taken) < 2:
            return taken[0] if taken else None
        keys = dict.fromkeys(key for each in taken for key in each)
        return {key: [item for each in taken for item in as_list(each.get(key))] for key in keys}


def _raw(event: Event) -> str:
    return event.raw if isinstance(event, (Malformed, Discarded)) else ""
