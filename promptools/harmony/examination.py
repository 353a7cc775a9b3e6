"""How far a reply follows the format: its messages, every deviation, and the error of strict parsing.

Strict parsing stops at the first deviation; lenient parsing names all that it repairs, and knows some that the format
allows but no model should write, such as a turn of the user. Both are combined here. A message without a channel is a
deviation but no error: the format has such messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.parsing.header import NO_CHANNEL, IsTool
from promptools.harmony.parsing.items import Aside, Item
from promptools.harmony.transcript import OTHER_TURN, ParsedMessage, StreamParser, parse
from promptools.types import Span

ASIDES = {
    "words": "text outside of messages",
    "debris": "text outside of messages",
    "imagined": "messages of somebody else",
}
"""What each kind of text that belongs to no message is."""


class Deviation(NamedTuple):
    """One deviation from the format: what it is, and the span of its message or of text outside of messages."""

    what: str
    span: Span


class Examination(NamedTuple):
    """A reply of the assistant, examined."""

    messages: tuple[ParsedMessage, ...]
    """The messages, as strict parsing has them where it succeeds, and else as they were repaired."""
    deviations: tuple[Deviation, ...] = ()
    error: MissingSentinel | BadHeader | None = None
    """Why strict parsing fails; None if it does not, or only finds a message without a channel."""


def examine(text: str, *, known: IsTool | None = None) -> Examination:
    """Examine the text of a reply, which begins inside the header of its first message. O(n).

    The text is as the model wrote it, with its control tokens; the last message may lack its end, which servers leave
    out. `known` tells whether a recipient is an offered tool.
    """
    parser = StreamParser("assistant", known=known)
    items = [*parser.feed(text), *parser.close()]
    lenient = parser.parsed
    repairs = [Deviation(what, message.span) for message in lenient.messages for what in message.repairs]
    asides = [Deviation(ASIDES[kind], span) for span, kind in lenient.asides]
    imagined = min((span.start for span, kind in lenient.asides if kind == "imagined"), default=len(text))
    tokens = [deviation for deviation in _stray_tokens(items) if deviation.span.start < imagined]
    deviations = tuple(sorted((*repairs, *asides, *tokens), key=lambda deviation: deviation.span.start))
    try:
        strict = parse(text, "assistant", strict=True)
    except (MissingSentinel, BadHeader) as failure:
        return _with_error(lenient.messages, deviations, failure, len(text))
    return Examination(strict.messages, deviations)


def _stray_tokens(items: list[Item]) -> Iterator[Deviation]:
    """Yield control tokens that begin and end nothing."""
    start = 0
    for item in items:
        end = start + len(item.raw)
        if isinstance(item, Aside) and item.kind == "token":
            yield Deviation(f"{clip(item.raw, 40)!r} begins and ends nothing", Span(start, end))
        start = end


def _with_error(
    messages: tuple[ParsedMessage, ...],
    deviations: tuple[Deviation, ...],
    failure: MissingSentinel | BadHeader,
    size: int,
) -> Examination:
    """Return the examination of a text that strict parsing fails on."""
    if not isinstance(failure, BadHeader) or failure.deviations != (NO_CHANNEL,):
        deviations = deviations or (Deviation(str(failure), Span(0, size)),)
        return Examination(messages, deviations, failure)
    allowed = {NO_CHANNEL, OTHER_TURN, ASIDES["imagined"]}
    other = next((deviation for deviation in deviations if deviation.what not in allowed), None)
    error = None if other is None else BadHeader(f"{other.what}, at character {other.span.start}")
    return Examination(messages, deviations, error)
