"""Define what a dialect's reader turns text into: parts of a block of calls, or segments of messages.

A candidate (text that may be a call) is turned into parts, which cover its text without gaps or overlaps. A reply in a
format whose messages have headers is split into segments.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from promptools.types import Call, DiscardWhy, Fix, Malformed

# The result of a candidate: parts that tile the text that it consumed.


SPACE: Final = " \t\r\n\ufeff\u200b"
"""The characters that count as white space around text, calls and markup."""
PartKind = Literal["text", "call", "malformed"] | DiscardWhy


class NeedMore(enum.Enum):
    """The type of `NEED_MORE`, the result of a function that cannot decide before more text arrives."""

    NEED_MORE = "more text is needed"

    def __bool__(self) -> Literal[False]:
        """Return False, since the answer is not known yet."""
        return False


NEED_MORE: Final = NeedMore.NEED_MORE
"""Returned instead of a decision or an offset when more text is needed to decide."""


@dataclass(slots=True)
class Part:
    """A piece of the model's text with its meaning; ids, indexes and spans are assigned when the part is emitted."""

    kind: PartKind
    raw: str
    call: Call | None = None
    malformed: Malformed | None = None
    """What is wrong with a malformed call or, in a part that is text, with an unreadable call to an offered tool."""


def total_length(parts: Sequence[Part]) -> int:
    """Return the number of characters in `parts`."""
    size = 0
    for part in parts:
        size += len(part.raw)
    return size


def add_fix(parts: Iterable[Part], fix: Fix) -> None:
    """Add a fix to the first part that is a call."""
    for part in parts:
        if part.call is not None:
            part.call = replace(part.call, fixes=(*part.call.fixes, fix))
            return


class EarlyCallStart(NamedTuple):
    """A call whose name is certain while its arguments are incomplete."""

    name: str


class EarlyArguments(NamedTuple):
    """A fragment of the arguments of a call that has started; no later fix can change it."""

    text: str


class TriedStrategy(NamedTuple):
    """A way of reading that was tried on a text that may be a call, and its outcome.

    The text was examined from its first character on. The engine adds the offset of the text.
    """

    strategy: str
    outcome: Literal["call", "malformed", "text"]
    why: str
    cost: int
    """Number of characters that were examined."""


EarlyOutput: TypeAlias = "Part | EarlyCallStart | EarlyArguments"
"""What may be emitted before a call ends: parts that are final, then the call's start and pieces of its arguments."""


class CandidateBase:
    """Base class that sets the initial attributes of a `Candidate`."""

    def __init__(self, *, definite: bool, head: str = "") -> None:
        self.definite = definite
        self.head = head
        self.parts: list[Part] = []
        self.unread = ""
        self.early: list[EarlyOutput] = []
        self.tries: list[TriedStrategy] = []
        self._emitted: list[Part] = []

    @property
    def comments_follow(self) -> bool:
        """Whether a Python comment may follow the candidate on the same line."""
        return False

    def _emit_early(self, parts: Sequence[Part]) -> None:
        """Emit parts before the end of the candidate; they cannot be taken back."""
        self.early += parts
        self._emitted += parts


class Candidate(Protocol):
    """Reads text that may be a call, until it is clear whether the text is a call.

    `feed` takes `piece[start:]`. It returns None while more text is needed. Once the candidate has decided, `feed`
    returns the index just past the consumed text. From then on `parts` cover the consumed text without gaps, except for
    the last `len(unread)` characters, which the candidate only looked at.

    `definite`: whether the parts are final no matter what follows; if not, they are tentative. `early`: output that may
    be emitted before the end; the engine takes it from this list. If `early` has parts, they are settled: `parts` then
    hold only what comes after them, and none of it is text. `head`: the markup before the calls. Before anything in
    `early`, the engine emits `head`, empties it and removes it from `parts`. `tries`: the strategies that were tried,
    for the trace.
    """

    parts: list[Part]
    unread: str
    definite: bool
    early: list[EarlyOutput]
    head: str
    tries: list[TriedStrategy]

    def feed(self, piece: str, start: int) -> int | None:
        """Consume `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        ...

    def close(self, finish_reason: str | None) -> None:
        """Decide without more text, because the text has ended."""
        ...


# The segments of a reply in a format whose messages have headers.
#
# Such a format, for example Harmony, covers the whole reply: reasoning, text for the user and calls are separate
# messages. The splitter of the format yields the header, the content and the end of each message, and the text outside
# messages.


class MessageStart(NamedTuple):
    """The header of a message."""

    kind: Literal["thoughts", "words", "call", "other"]
    """What the message is: reasoning (`thoughts`), text (`words`), a call, or a message of another role (`other`).

    Another role is any but the assistant's: for example, a user message that the model made up is `other`.
    """
    raw: str
    name: str = ""
    """The name of the called tool; in a message that is a tool's result, the name of that tool."""
    fixes: tuple[Fix, ...] = ()
    final: bool = False
    """Whether this message is the answer. If so, the text of earlier `ambiguous` messages was reasoning."""
    ambiguous: bool = False
    """Whether the header leaves open what the content is, as a Harmony header without a channel does."""
    delimited: bool = True
    """Whether markers enclose the content. If so, white space inside the markers is part of the content."""
    text_only: bool = False
    """Whether the content is never read as a call, even if it looks like one."""


class Content(NamedTuple):
    """A piece of a message's content."""

    raw: str


class MessageEnd(NamedTuple):
    """The end of a message.

    `complete`: whether the message has ended; if False, the whole text ended inside the message. `in_header`: whether
    the text ended inside the header of the message.
    """

    raw: str
    complete: bool
    in_header: bool = False
    fixes: tuple[Fix, ...] = ()
    """Fixes to the marker that ends the message, if the message is a call."""


class Outside(NamedTuple):
    """Text outside of messages."""

    kind: Literal["space", "markup", "debris", "words"]
    raw: str
    fixes: tuple[Fix, ...] = ()


Segment: TypeAlias = "MessageStart | Content | MessageEnd | Outside"
