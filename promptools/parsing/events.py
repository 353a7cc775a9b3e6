"""The events that a parser yields while text arrives.

`Text`, `Reasoning`, `Discarded`, `CallEnd` and `Malformed` tile the input: their spans, sorted, cover every character
once. `CallStart` and `CallArgs` are provisional. Their spans lie inside the span of the `CallEnd` or `Malformed` that
ends the call with the same index. `WasReasoning` is a correction: all `Text` emitted up to `span.end` was reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from promptools.types import Call, Discarded, FinishReason, Malformed, Span


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text for the user."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class WasReasoning:
    """A correction: each `Text` inside `span` was reasoning.

    It follows a closing reasoning tag that has no opening tag, or a message header that shows that the text before it
    was reasoning. White space at the very beginning of the reply was not reasoning.
    """

    span: Span


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a call; provisional until `CallEnd` or `Malformed` ends the call."""

    index: int
    id: str
    name: str
    span: Span
    early: bool = False
    """Whether the call is sent to the client before the end of the call is known."""


@dataclass(frozen=True, slots=True)
class CallArgs:
    """A fragment of the call's arguments; the fragments joined equal `Call.arguments_json`."""

    index: int
    fragment: str
    span: Span


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a call that is complete and valid."""

    index: int
    call: Call
    span: Span


@dataclass(frozen=True, slots=True)
class End:
    """The end of the reply."""

    reason: FinishReason | None
    span: Span


Event: TypeAlias = Text | Reasoning | WasReasoning | CallStart | CallArgs | CallEnd | Malformed | Discarded | End


def join(events: Iterable[Event]) -> list[Event]:
    """Merge adjacent fragments of the same kind, so that the events do not depend on how the input was chunked."""
    joined: list[Event] = []
    for event in events:
        merged = _merged(joined[-1], event) if joined else None
        if merged is None:
            joined.append(event)
        else:
            joined[-1] = merged
    return joined


def _merged(last: Event, event: Event) -> Event | None:
    span = Span(last.span.start, event.span.end)
    # a line break inserted between two messages has an empty span
    touching = (
        last.span.end == event.span.start and last.span.start < last.span.end and event.span.start < event.span.end
    )
    match last, event:
        case (Text(text=before), Text(text=after)) if touching:
            return Text(before + after, span)
        case (Reasoning(text=before), Reasoning(text=after)) if touching:
            return Reasoning(before + after, span)
        case (CallArgs(index=index, fragment=before), CallArgs(index=same, fragment=after)) if index == same:
            return CallArgs(index, before + after, span)
        case (Discarded(raw=before, why=why), Discarded(raw=after, why=same)) if touching and why == same:
            return Discarded(before + after, why, span)
        case _:
            return None
