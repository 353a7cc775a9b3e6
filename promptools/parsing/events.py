"""What a parser says as text comes in.

`Text`, `Reasoning`, `Discarded`, `CallEnd` and `Malformed` tile the input: their spans, sorted, cover every character
once. `CallStart` and `CallArgs` are provisional and lie inside the span of the `CallEnd` or `Malformed` that ends the
call of the same index. `WasReasoning` takes back: the text up to `span.end` that went out as `Text` was reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from promptools.types import Call, Discarded, FinishReason, Malformed, Span


@dataclass(frozen=True, slots=True)
class Text:
    """Words for the user."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Words that the model thought."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class WasReasoning:
    """A closer without an opener: every `Text` inside `span` was reasoning."""

    span: Span


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; provisional until `CallEnd`."""

    index: int
    id: str
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class CallArgs:
    """A piece of the call's arguments; the pieces joined equal `Call.arguments_json`."""

    index: int
    fragment: str
    span: Span


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete and valid."""

    index: int
    call: Call
    span: Span


@dataclass(frozen=True, slots=True)
class End:
    """The reply is over."""

    reason: FinishReason | None
    span: Span


Event: TypeAlias = Text | Reasoning | WasReasoning | CallStart | CallArgs | CallEnd | Malformed | Discarded | End


def join(events: Iterable[Event]) -> list[Event]:
    """Merge neighbouring fragments of the same kind, so that two ways of cutting the input compare equal."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        merged: Event | None = None
        match last, event:
            case (Text(), Text()) | (Reasoning(), Reasoning()) if last.span.end == event.span.start:
                merged = replace(last, text=last.text + event.text, span=Span(last.span.start, event.span.end))
            case CallArgs(index=i), CallArgs(index=j) if i == j:
                merged = replace(
                    last, fragment=last.fragment + event.fragment, span=Span(last.span.start, event.span.end)
                )
            case Discarded(why=a), Discarded(why=b) if a == b and last.span.end == event.span.start:
                merged = replace(last, raw=last.raw + event.raw, span=Span(last.span.start, event.span.end))
            case _:
                pass
        if merged is None:
            joined.append(event)
        else:
            joined[-1] = merged
    return joined
