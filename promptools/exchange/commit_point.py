"""Decide which events of a choice go to a streaming client now, and which are held back.

Streamed data cannot be taken back. So each choice has a commit point, and two states:

    open        only the role and reasoning have been sent; a failed attempt can be dropped (`discard_attempt`) and
                replaced by another, whose reasoning follows in the same stream
    committed   the first content character, the first complete and valid call, or the start of a call that is
                streamed live has been sent; a failure is now an error inside the stream

Before the commit, nothing is sent that a later attempt could contradict. So the following events are held back, because
they may still turn out to be wrong:

- white space at the beginning;
- all text while a call or a formatted answer is required and no call has been sent;
- text after a malformed call, until a valid call comes;
- text that has so far only repeated the correction that was sent to the model;
- malformed calls and discarded text;
- everything, with the option `hold="all"`.

After a commit, `finish` sends what is held: only plain text if `valid` is true, else all that the model wrote, in the
original order. Without a commit, `finish` sends the whole reply.

A call that is streamed live cannot be held. If it turns out to be malformed, its JSON remains incomplete
(`failed_live_call`), and an error follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from promptools.modes.response_format import AnswerStream
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text, WasReasoning
from promptools.parsing.parts import SPACE
from promptools.types import Discarded, Malformed, Span
from promptools.wire.json_body import as_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.exchange.passthrough import Forwarded
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import Call, Reply
    from promptools.wire.chat_decoder import Envelope


_NO_SPAN = Span(0, 0)


class ChoiceWriter(Protocol):
    """Encodes the events of one choice as chunks of the client's API."""

    def role(self, content: str | None = "") -> dict[str, Any] | None:
        """Return the first chunk of a choice, which holds the role; None if the API has no such chunk."""
        ...

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Return the chunks for `event`; chunks of text include `logprobs`."""
        ...

    def discard_attempt(self) -> None:
        """Separate the next attempt's reasoning from the failed attempt's reasoning, which was already sent."""
        ...

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Return the chunk that ends the choice."""
        ...


class ChoiceStream:
    """Turns the events of one choice into chunks for the client, and holds back events that may turn out to be wrong.

    `writer` creates the `ChoiceWriter`, given the envelope of the reply (its id, model and time).
    """

    def __init__(
        self,
        request: ToolRequest,
        writer: Callable[[Envelope], ChoiceWriter],
        *,
        begun: bool = False,
        forwarded: Forwarded | None = None,
    ) -> None:
        self.committed = False
        self.failed_live_call: Malformed | None = None
        """The call that turned out to be malformed after a part of it was sent; None if there is none.

        Its JSON remains incomplete, so an error has to follow. A call that was cut off does not set this attribute,
        since the finish reason can signal that.
        """
        self._request = request
        self._make_writer = writer
        self._writer: ChoiceWriter | None = None
        self._role_sent = begun
        self._held: list[Event] = []
        self._after_malformed = False
        self._corrections: tuple[str, ...] = ()
        """The corrections sent to the model that its text may be repeating so far; empty if it repeats none."""
        self._answer = _new_answer(request)
        """Decides which part of an answer in a requested format may be sent; None if no such answer is streamed."""
        self._reasoning_left, self._text_left = forwarded or (0, 0)
        """How many characters of reasoning and of text to skip, because the client already has them."""
        self._reasoning_end = -1
        """The offset in the text at which the last reasoning ended; -1 if there was none."""
        self._in_reasoning = False
        """Whether reasoning has begun and its closing tag has not arrived."""
        self._text_end = 0
        """The offset at which the text received so far ends."""
        self._live_calls: set[int] = set()
        self._sent_call_ids: set[str] = set()
        self._logprobs: list[Any] = []

    @property
    def has_open_call(self) -> bool:
        """Whether a call has been sent only partly."""
        return bool(self._live_calls)

    def add_events(self, events: Iterable[Event], envelope: Envelope, logprobs: Any = None) -> list[dict[str, Any]]:
        """Add events, and return the chunks that may be sent now."""
        if logprobs:
            self._logprobs.append(logprobs)
        chunks: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, (Text, Discarded)):
                self._text_end = max(self._text_end, event.span.end)
            chunks += self._add_event(event, envelope)
        return chunks

    def discard_attempt(self, corrections: tuple[str, ...]) -> None:
        """Discard the events held from a failed attempt; the next attempt sends the model these `corrections`."""
        self._corrections = corrections
        self._held.clear()
        self._logprobs.clear()
        self._after_malformed = False
        self._answer = _new_answer(self._request)
        self._reasoning_left = self._text_left = 0
        if self._writer is not None:
            self._writer.discard_attempt()

    def finish(self, reply: Reply, envelope: Envelope, *, valid: bool = True) -> list[dict[str, Any]]:
        """Return the last chunks: held events, calls that were not sent yet, and the finish reason.

        `valid` is False if the reply failed the checks and has no call; the content is then all that the model wrote.
        """
        chunks: list[dict[str, Any]] = []
        if self.committed:
            if self._answer is not None and (rest := self._answer.rest(reply.content)):
                chunks += self._write(Text(rest, _NO_SPAN), envelope)
            chunks += self._send_held(valid, envelope)
        else:
            chunks += self._send_reply(reply, envelope)
        for position, call in enumerate(reply.calls):
            if call.id not in self._sent_call_ids:
                chunks += self._write(CallEnd(-1 - position, call, call.span), envelope)
        writer = self._writer_for(envelope)
        role = None if self._role_sent else writer.role()
        return [*chunks, *([role] if role else []), writer.finish(reply, logprobs=self._take_logprobs())]

    # -- one event

    def _add_event(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        if self._request.options.hold == "all":
            return []
        match event:
            case Reasoning():
                return self._send_reasoning(event, envelope)
            case Text():
                return self._add_text(event, envelope)
            case CallStart(index=index, early=True):
                self._live_calls.add(index)
                self._sent_call_ids.add(event.id)
                return self._commit(event, envelope)
            case CallArgs(index=index) if index in self._live_calls:
                return self._write(event, envelope)
            case CallEnd(index=index) if index in self._live_calls:
                self._live_calls.discard(index)
                return self._write(event, envelope)
            case CallEnd(call=call) if self._may_be_called(call):
                self._sent_call_ids.add(call.id)
                return self._commit(event, envelope)
            case Malformed():
                self._in_reasoning = False
                self._add_malformed(event)
            case WasReasoning():
                return self._send_held_as_reasoning(envelope)
            case Discarded() if self._in_reasoning or event.span.start == self._reasoning_end:
                self._in_reasoning = self._in_reasoning and event.why != "markup"  # markup here is the closing tag
            case Discarded():
                self._held.append(event)
            case _:
                pass
        return []

    def _send_reasoning(self, event: Reasoning, envelope: Envelope) -> list[dict[str, Any]]:
        """Send reasoning, and drop the tags that are held right before it, such as `<think>`.

        If the tags were kept, they would be sent as text when a call fails.
        """
        start = event.span.start
        while self._held and isinstance(last := self._held[-1], Discarded) and last.span.end == start:
            start = -1 if last.why == "markup" else last.span.start
            self._held.pop()
        self._reasoning_end, self._in_reasoning = event.span.end, True
        return self._write(event, envelope)

    def _add_text(self, event: Text, envelope: Envelope) -> list[dict[str, Any]]:
        self._in_reasoning = False
        uncertain = (
            self._request.choice.forced or self._request.checks_response_format or self._after_malformed
        ) and not self._sent_call_ids
        if uncertain or (not self.committed and not event.text.strip()) or self._may_repeat_correction(event.text):
            self._held.append(event)
            return []
        if self._answer is not None:
            ready = self._answer.feed(event.text)
            return self._commit(replace(event, text=ready), envelope) if ready else []
        return self._commit(event, envelope)

    def _may_repeat_correction(self, text: str) -> bool:
        """Return whether the model's text so far, including `text`, is the beginning of a correction sent to it."""
        if not self._corrections or self.committed or self._answer is not None:
            return False
        held = "".join(event.text for event in self._held if isinstance(event, Text))
        said = (held + text).strip()
        self._corrections = tuple(each for each in self._corrections if each.startswith(said))
        return bool(self._corrections)

    def _end_answer(self) -> list[Event]:
        """Stop holding back text for a formatted answer, and return the held text as events.

        This is done when a call is found, because a reply with a call has no formatted answer. It is also done when
        the text turns out to be reasoning.
        """
        answer, self._answer = self._answer, None
        held = answer.held if answer is not None else ""
        return [Text(held, Span(self._text_end, self._text_end))] if held else []

    def _add_malformed(self, event: Malformed) -> None:
        self._held += self._end_answer()
        if event.index not in self._live_calls:
            self._after_malformed = True
            if event.span == _NO_SPAN:  # the server's own call is not in the text: it came after the text so far
                event = replace(event, span=Span(self._text_end, self._text_end))
            self._held.append(event)
        elif event.reason != "truncated":
            self.failed_live_call = event

    def _may_be_called(self, call: Call) -> bool:
        return self._request.choice.name in {None, call.name}

    def _send_held_as_reasoning(self, envelope: Envelope) -> list[dict[str, Any]]:
        """Send the held text as reasoning, because it turned out to be reasoning. Text already sent remains text."""
        held, self._held = self._held, []
        reasoning = "".join(event.text for event in (*held, *self._end_answer()) if isinstance(event, Text))
        self._answer = _new_answer(self._request)
        reasoning = reasoning.lstrip(SPACE) if self._reasoning_end < 0 else reasoning
        return self._write(Reasoning(reasoning, _NO_SPAN), envelope) if reasoning else []

    # -- writing

    def _commit(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        """Return the chunks of the held text and of `event`. Once they are sent, no attempt can replace this one."""
        self.committed = True
        held, self._held = self._held, []
        if isinstance(event, (CallStart, CallEnd)):
            held += self._end_answer()
        texts = [held_event for held_event in held if isinstance(held_event, Text)]
        return [chunk for part in (*texts, event) for chunk in self._write(part, envelope)]

    def _send_held(self, valid: bool, envelope: Envelope) -> list[dict[str, Any]]:
        """Send what is held: only plain text if `valid`, else all that the model wrote, in the original order."""
        held, self._held = self._held, []
        parts = [
            event.text if isinstance(event, Text) else _raw_text(event)
            for event in sorted(held, key=lambda event: event.span)
            if isinstance(event, Text) or not valid
        ]
        text = "".join(parts)
        return self._write(Text(text, _NO_SPAN), envelope) if text else []

    def _send_reply(self, reply: Reply, envelope: Envelope) -> list[dict[str, Any]]:
        """Send a whole reply. Nothing of this reply has been sent, except perhaps its reasoning."""
        events: list[Event] = []
        if self._request.options.hold == "all" and reply.reasoning:
            events.append(Reasoning(reply.reasoning, _NO_SPAN))
        if reply.content:
            events.append(Text(reply.content, _NO_SPAN))
        self._held = []
        return [chunk for event in events for chunk in self._write(event, envelope)]

    def _write(self, event: Event, envelope: Envelope) -> list[dict[str, Any]]:
        if isinstance(event, (Text, Reasoning)) and (self._text_left or self._reasoning_left):
            event = self._without_forwarded(event)
            if not event.text:
                return []
        writer = self._writer_for(envelope)
        chunks = writer.write(event, self._take_logprobs() if isinstance(event, Text) else None)
        if chunks and not self._role_sent:
            self._role_sent = True
            role = writer.role("" if isinstance(event, Text) else None)
            return [role, *chunks] if role else chunks
        return chunks

    def _without_forwarded(self, event: Text | Reasoning) -> Text | Reasoning:
        """Return the event without the text that was already forwarded to the client."""
        if isinstance(event, Text):
            known = min(self._text_left, len(event.text))
            self._text_left -= known
        else:
            known = min(self._reasoning_left, len(event.text))
            self._reasoning_left -= known
        return replace(event, text=event.text[known:])

    def _writer_for(self, envelope: Envelope) -> ChoiceWriter:
        """Return the writer. It is created on first use, with the envelope of the first attempt that sends anything."""
        if self._writer is None:
            self._writer = self._make_writer(envelope)
        return self._writer

    def _take_logprobs(self) -> Any:
        """Remove and return the log probabilities collected since the last text, merged into one object."""
        pending, self._logprobs = self._logprobs, []
        if len(pending) < 2:
            return pending[0] if pending else None
        keys = dict.fromkeys(key for logprobs in pending for key in logprobs)
        return {key: [item for logprobs in pending for item in as_list(logprobs.get(key))] for key in keys}


def _new_answer(request: ToolRequest) -> AnswerStream | None:
    return AnswerStream(request.answer_schema) if request.streams_answer else None


def _raw_text(event: Event) -> str:
    return event.raw if isinstance(event, (Malformed, Discarded)) else ""
