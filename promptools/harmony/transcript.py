"""Parse Harmony into messages: a reply or a conversation, in chunks or as a whole, from text or from token ids.

Lenient parsing accepts any text that a model or a server produced, and names each repair. Strict parsing raises an
error for any deviation. This module assembles the items of `ItemParser` into messages; `promptools.parse` uses the
items directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.messages import NO_CHANNEL, Aside, ContentChunk, HarmonyEnd, HarmonyStart, IsTool, Item
from promptools.harmony.parser import ItemParser
from promptools.harmony.renderer import Message
from promptools.harmony.tokens import Role
from promptools.json_values import try_json
from promptools.types import Span

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message that was parsed from text, and how it was parsed."""

    message: Message
    ended: str
    """What ended the message: the name of a token, such as `end`, or one of these words.

    `start`, `channel`: the next message began with this token. `cut`: the text ended inside the content. `header`: the
    message ended before its `<|message|>`.
    """
    span: Span
    """The span of the message in the text, including the header."""
    repairs: tuple[str, ...] = ()
    """Deviations from the format that were repaired."""

    @property
    def complete(self) -> bool:
        """Whether the message reached its end: `ended` is neither `cut` nor `header`."""
        return self.ended not in {"cut", "header"}


OTHER_TURN = "somebody else's turn after it"
"""The repair that is recorded for a message if the model went on to write a message of another role."""


class Parsed(NamedTuple):
    """The messages of a text, and the text outside of messages: the span and kind of each piece.

    The kind `debris` is what is left of an unfinished header, or text after the end of the reply. `imagined` is what a
    model wrote for others: in a completion, a message of another role and everything after it. `words` is other text.
    """

    messages: tuple[ParsedMessage, ...]
    asides: tuple[tuple[Span, str], ...] = ()


class StreamParser:
    """Parses Harmony as it streams: `feed` chunks, then call `close`. O(n) in characters.

    `parsed` holds what has been parsed so far, and can be read at any time.

    `role`: the role in the first message's header if the text is a completion, because a completion begins after this
    role; None if the text begins with a whole message.
    `known` returns whether a recipient is an offered tool. With `broken`, line ends inside a control token are ignored.
    `decode` returns the bytes of a token; `feed_ids` needs it. With `strict`, `feed` and `close` raise
    `MissingSentinel` and `BadHeader`.
    """

    def __init__(
        self,
        role: Role | None = None,
        *,
        strict: bool = False,
        known: IsTool | None = None,
        broken: bool = False,
        decode: Decode | None = None,
    ) -> None:
        self._item_parser = ItemParser(role, strict=strict, known=known, broken=broken, decode=decode)
        self._messages: list[ParsedMessage] = []
        self._asides: list[tuple[Span, str]] = []
        self._begin: HarmonyStart | None = None
        self._start = 0
        self._content: list[str] = []
        self._offset = 0
        self._is_completion = role is not None and not strict
        """Whether the text is a model's completion, in which a message of another role is the model's invention."""
        self._other_role = False

    def feed(self, text: str) -> list[Item]:
        """Feed a chunk of text, and return the items that can no longer change."""
        return self._assemble(self._item_parser.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Feed token ids, and return the items that can no longer change.

        Ordinary tokens that spell a control token, such as `<|end|>`, are text.
        """
        return self._assemble(self._item_parser.feed_ids(ids))

    def close(self) -> list[Item]:
        """Signal the end of the text, and return the remaining items."""
        return self._assemble(self._item_parser.close())

    @property
    def parsed(self) -> Parsed:
        """The messages and the text outside of messages, as parsed so far. After `close`, nothing is missing."""
        return Parsed(tuple(self._messages), tuple(self._asides))

    def _assemble(self, items: list[Item]) -> list[Item]:
        for item in items:
            start, self._offset = self._offset, self._offset + len(item.raw)
            if (
                self._is_completion
                and self._messages
                and isinstance(item, HarmonyStart)
                and item.header.role != self._messages[0].message.role
            ):
                self._other_role = True
                self._messages[-1] = replace(self._messages[-1], repairs=(*self._messages[-1].repairs, OTHER_TURN))
            if self._other_role:
                self._add_aside("imagined", start)
                continue
            match item:
                case HarmonyStart():
                    self._begin, self._start, self._content = item, start, []
                case ContentChunk(text):
                    self._content.append(text)
                case HarmonyEnd(by):
                    self._finish(by)
                case Aside("words" | "debris" as kind, _):
                    self._add_aside(kind, start)
                case _:
                    pass
        return items

    def _add_aside(self, kind: str, start: int) -> None:
        """Add the span of text outside of messages; adjacent spans of one kind are merged."""
        if self._asides and self._asides[-1][0].end == start and self._asides[-1][1] == kind:
            start = self._asides.pop()[0].start
        self._asides.append((Span(start, self._offset), kind))

    def _finish(self, by: str) -> None:
        assert self._begin is not None  # only an open message is finished
        header = self._begin.header
        message = Message(
            header.role, "".join(self._content), header.name, header.channel, header.recipient, header.content_type
        )
        self._messages.append(ParsedMessage(message, by, Span(self._start, self._offset), header.repairs))
        self._begin, self._content = None, []


def parse(text: str, role: Role | None = None, *, strict: bool = False, known: IsTool | None = None) -> Parsed:
    """Parse a whole text; see `StreamParser` for the options."""
    parser = StreamParser(role, strict=strict, known=known)
    parser.feed(text)
    parser.close()
    return parser.parsed


def parse_ids(ids: Sequence[int], decode: Decode, role: Role | None = None, *, strict: bool = False) -> Parsed:
    """Parse token ids in the same way as `parse` parses text; `decode` comes from `load_decode`."""
    parser = StreamParser(role, strict=strict, decode=decode)
    parser.feed_ids(ids)
    parser.close()
    return parser.parsed


def parse_trace(chunks: Iterable[str]) -> list[dict[str, Any]]:
    """Parse a transcript strictly; return a dict for each message. Raises `MissingSentinel` and `BadHeader`.

    The dict of a call has the keys `role, channel, to, constraint, args`; the dict of a result has `role` ("tool"),
    `name, channel, content`; the dict of any other message has `role, channel, content`. Empty fields are left out.
    Arguments and results that are JSON are decoded. Line ends inside a control token are ignored, so the transcript may
    be split anywhere.
    """
    parser = StreamParser(strict=True, broken=True)
    for chunk in chunks:
        parser.feed(chunk)
    parser.close()
    return [_as_dict(parsed.message) for parsed in parser.parsed.messages]


def _as_dict(message: Message) -> dict[str, Any]:
    assert isinstance(message.content, str)
    content = message.content
    if message.role == "tool":
        return _without_empty(
            role="tool", name=message.name, channel=message.channel, content=try_json(content, content)
        )
    if not message.recipient:
        return _without_empty(role=message.role, channel=message.channel) | {"content": content}
    constraint = message.content_type.removeprefix("<|constrain|>")
    fields = _without_empty(role=message.role, channel=message.channel, to=message.recipient, constraint=constraint)
    return {**fields, "args": try_json(content, content)}


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value != ""}


# How far a reply follows the format: its messages, every deviation, and the error of strict parsing.
#
# Strict parsing stops at the first deviation. Lenient parsing names each deviation that it repairs, and also some that
# the format allows but no model should write, such as a turn of the user. Both are combined here. A message without a
# channel is a deviation but not an error: the format has such messages.


ASIDES = {
    "words": "text outside of messages",
    "debris": "text outside of messages",
    "imagined": "messages of somebody else",
}
"""Maps each kind of text outside of messages to its description in a `Deviation`."""


class Deviation(NamedTuple):
    """A deviation from the format: a description, and the span of the message or other text that has it."""

    what: str
    span: Span


class Examination(NamedTuple):
    """The result of examining a reply of the assistant."""

    messages: tuple[ParsedMessage, ...]
    """The messages of strict parsing; if it fails, the messages of lenient parsing, with their repairs."""
    deviations: tuple[Deviation, ...] = ()
    error: MissingSentinel | BadHeader | None = None
    """Why strict parsing fails; None if it succeeds, or fails only because of messages without a channel."""


def examine(text: str, *, known: IsTool | None = None) -> Examination:
    """Examine how far the text of a reply follows the format. O(n).

    The text must be as the model wrote it, with control tokens, and must begin inside the header of its first message.
    The last message may lack the token that ends it, which servers omit. `known` returns whether a recipient is an
    offered tool.
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
    """Yield a deviation for each control token that neither begins nor ends a message."""
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
    """Return the examination of a text for which strict parsing raised an error."""
    if not isinstance(failure, BadHeader) or failure.deviations != (NO_CHANNEL,):
        deviations = deviations or (Deviation(str(failure), Span(0, size)),)
        return Examination(messages, deviations, failure)
    allowed = {NO_CHANNEL, OTHER_TURN, ASIDES["imagined"]}
    other = next((deviation for deviation in deviations if deviation.what not in allowed), None)
    error = None if other is None else BadHeader(f"{other.what}, at character {other.span.start}")
    return Examination(messages, deviations, error)
