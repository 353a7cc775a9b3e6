"""What a parser made of each character of a reply, and all that it tried: for `parse --explain` and the inspector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from promptools.parsing.events import CallEnd, Event, Reasoning, Text, WasReasoning, join
from promptools.types import Discarded, Malformed, ParseAttempt, Reply, Span

if TYPE_CHECKING:
    from promptools.engine.parser import ExplainingParser

PartKind = Literal["content", "reasoning", "call", "malformed", "discarded"]
_KINDS: dict[type, PartKind] = {
    Text: "content",
    Reasoning: "reasoning",
    CallEnd: "call",
    Malformed: "malformed",
    Discarded: "discarded",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole reply as it was parsed."""

    text: str
    reply: Reply
    parts: tuple[tuple[Span, PartKind], ...]
    """The kind of every part of the text, in order; together the parts cover it."""
    tries: tuple[ParseAttempt, ...]
    """All strategies in the order of the text, those that found no call included."""


def explain(parser: ExplainingParser, text: str, finish_reason: str | None = None) -> Explanation:
    """Feed a whole reply to a new parser, close it, and return what it did."""
    events = [*parser.feed(text), *parser.close(finish_reason)]
    tries = sorted((*parser.reply.trace.tries, *parser.refusals), key=lambda attempt: attempt.span)
    return Explanation(text, parser.reply, tuple(spans(events)), tuple(tries))


def spans(events: Iterable[Event]) -> list[tuple[Span, PartKind]]:
    """Return the kind of every part of the text, in order; together the parts cover it."""
    parts: list[tuple[Span, PartKind]] = []
    for event in join(events):
        if isinstance(event, WasReasoning):
            taken = event.span
            parts = [(s, "reasoning" if k == "content" and s.end <= taken.end else k) for s, k in parts]
        elif isinstance(event, Text | Reasoning | CallEnd | Malformed | Discarded):
            parts.append((event.span, _KINDS[type(event)]))
    return sorted(parts)


def describe_place(text: str, span: Span) -> str:
    """Return what an attempt began at: a fence, the whole reply, the beginning of a line, or the middle of one."""
    tried = text[span.start : span.end]
    if tried.lstrip().startswith(("```", "~~~")):
        return "a fence"
    if tried.strip() == text.strip():
        return "the whole reply"
    before = text[: span.start].rpartition("\n")[2]
    return "amid a line" if before.strip() else "a line's beginning"
