"""Harmony as messages: a reply or a whole conversation, in pieces or at once, as text or as token ids.

Lenient reads whatever a model or a server made of the format, and names each repair; strict raises where the format is
not kept. The items of `ItemParser` are put together here; `promptools.parse` has its own use for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.harmony.header import Known
from promptools.harmony.items import ItemParser
from promptools.harmony.machine import Aside, Begin, Finish, Item, Words
from promptools.harmony.render import Message
from promptools.harmony.tokens import Role
from promptools.types import Span

if TYPE_CHECKING:
    from promptools.harmony.vocabulary import Decode


@dataclass(frozen=True, slots=True)
class Heard:
    """One message as it was read."""

    message: Message
    ended: str
    """The token that ended it; `start` or `channel`: the next message did; `cut`, `header`: the text ended in it."""
    span: Span
    """Its place in the text, header and all."""
    repairs: tuple[str, ...] = ()
    """What had to be read otherwise than as it stands."""

    @property
    def complete(self) -> bool:
        """Tell whether the message came to its end."""
        return self.ended not in {"cut", "header"}


CUT = "somebody else's turn behind it"
"""The repair of a message after which a model spoke for others."""


class Parsed(NamedTuple):
    """The messages of a text, and what stands between them: places of words that belong to none.

    An aside is `words`, `debris`, or `imagined`: in a completion, what somebody else said, and all that follows.
    """

    messages: tuple[Heard, ...]
    asides: tuple[tuple[Span, str], ...] = ()


class StreamParser:
    """Reads Harmony as it comes. `feed` pieces, then `close`; `parsed` is there at any time. O(n) in characters.

    `role`: the text begins inside a header of this role, as a completion does; None: it begins with a message.
    `known` tells whether a recipient is an offered tool; `broken`: line ends inside a control token do not count.
    Strict, `feed` and `close` raise `MissingSentinel` and `BadHeader`.
    """

    def __init__(
        self,
        role: Role | None = None,
        *,
        strict: bool = False,
        known: Known | None = None,
        broken: bool = False,
        decode: Decode | None = None,
    ) -> None:
        self._items = ItemParser(role, strict=strict, known=known, broken=broken, decode=decode)
        self._heard: list[Heard] = []
        self._asides: list[tuple[Span, str]] = []
        self._open: Begin | None = None
        self._begun = 0
        self._said: list[str] = []
        self._at = 0
        self._alone = role is not None and not strict
        """Nobody but the one who completes the conversation speaks."""
        self._imagined = False

    def feed(self, text: str) -> list[Item]:
        """Take a piece of text; give what became certain."""
        return self._note(self._items.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Take tokens by their ids; text that only looks like a control token is text."""
        return self._note(self._items.feed_ids(ids))

    def close(self) -> list[Item]:
        """Say that the text is over; give the rest."""
        return self._note(self._items.close())

    @property
    def parsed(self) -> Parsed:
        """What has been read so far; whole after `close`."""
        return Parsed(tuple(self._heard), tuple(self._asides))

    def _note(self, items: list[Item]) -> list[Item]:
        """Put items together to messages."""
        for item in items:
            start, self._at = self._at, self._at + len(item.raw)
            if (
                self._alone
                and self._heard
                and isinstance(item, Begin)
                and item.header.role != self._heard[0].message.role
            ):
                self._imagined = True
                self._heard[-1] = replace(self._heard[-1], repairs=(*self._heard[-1].repairs, CUT))
            if self._imagined:
                self._beside("imagined", start)
                continue
            match item:
                case Begin():
                    self._open, self._begun, self._said = item, start, []
                case Words(text):
                    self._said.append(text)
                case Finish(by):
                    self._finish(by)
                case Aside("words" | "debris" as kind, _):
                    self._beside(kind, start)
                case _:
                    pass
        return items

    def _beside(self, kind: str, start: int) -> None:
        """Note words that belong to no message; those that stand side by side are one."""
        if self._asides and self._asides[-1][0].end == start and self._asides[-1][1] == kind:
            start = self._asides.pop()[0].start
        self._asides.append((Span(start, self._at), kind))

    def _finish(self, by: str) -> None:
        assert self._open is not None  # nothing else is finished
        header = self._open.header
        message = Message(
            header.role, "".join(self._said), header.name, header.channel, header.recipient, header.content_type
        )
        self._heard.append(Heard(message, by, Span(self._begun, self._at), header.repairs))
        self._open, self._said = None, []


def parse(text: str, role: Role | None = None, *, strict: bool = False, known: Known | None = None) -> Parsed:
    """Read a whole text: `StreamParser` fed once and closed."""
    parser = StreamParser(role, strict=strict, known=known)
    parser.feed(text)
    parser.close()
    return parser.parsed


def parse_ids(ids: Sequence[int], decode: Decode, role: Role | None = None, *, strict: bool = False) -> Parsed:
    """Read token ids, as `parse` reads text."""
    parser = StreamParser(role, strict=strict, decode=decode)
    parser.feed_ids(ids)
    parser.close()
    return parser.parsed


def parse_trace(chunks: Iterable[str]) -> list[dict[str, Any]]:
    """Read a transcript, strictly: one dict a message. Raises `MissingSentinel` and `BadHeader`.

    A call has `role, channel, to, constraint, args`; a result `role` ("tool"), `name, channel, content`; any other
    message `role, channel, content`. Arguments and results that are JSON are given parsed. Line ends inside a control
    token do not count, so a transcript may be cut anywhere.
    """
    parser = StreamParser(strict=True, broken=True)
    for chunk in chunks:
        parser.feed(chunk)
    parser.close()
    return [_traced(each.message) for each in parser.parsed.messages]


def _traced(message: Message) -> dict[str, Any]:
    assert isinstance(message.content, str)
    content = message.content
    if message.role == "tool":
        return _without_empty(role="tool", name=message.name, channel=message.channel, content=_loaded(content))
    if not message.recipient:
        return _without_empty(role=message.role, channel=message.channel) | {"content": content}
    constraint = message.content_type.removeprefix("<|constrain|>")
    said = _without_empty(role=message.role, channel=message.channel, to=message.recipient, constraint=constraint)
    return {**said, "args": _loaded(content)}


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value != ""}


def _loaded(text: str) -> Any:
    """Give the value of a text that is JSON, else the text."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text
