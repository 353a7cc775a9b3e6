"""What a dialect's reader makes of the text it reads: parts of a block of calls, or segments of messages.

A candidate's text becomes parts that tile it. A format whose messages have headers is split into segments instead.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from promptools.types import Call, DiscardWhy, Fix, Malformed

# The result of a candidate: the text that it consumed, as parts that tile it.


SPACE: Final = " \t\r\n\ufeff\u200b"
"""White space around parts."""
PartKind = Literal["text", "call", "malformed"] | DiscardWhy


class NeedMore(enum.Enum):
    """The type of `NEED_MORE`."""

    NEED_MORE = "more text is needed"

    def __bool__(self) -> Literal[False]:
        """Return False: nothing is decided."""
        return False


NEED_MORE: Final = NeedMore.NEED_MORE
"""Returned, in place of a decision or an offset, where only more text can decide."""


@dataclass(slots=True)
class Part:
    """A piece of the model's text and its meaning; ids, indexes and spans are assigned when it is emitted."""

    kind: PartKind
    raw: str
    call: Call | None = None
    malformed: Malformed | None = None
    """Of text: why a call of an offered tool in it cannot be read."""


def total_length(parts: Sequence[Part]) -> int:
    """Return the number of characters in `parts`."""
    size = 0
    for part in parts:
        size += len(part.raw)
    return size


def add_fix(parts: Iterable[Part], fix: Fix) -> None:
    """Add a fix to the first call of `parts`."""
    for part in parts:
        if part.call is not None:
            part.call = replace(part.call, fixes=(*part.call.fixes, fix))
            return


class EarlyCallStart(NamedTuple):
    """A call whose name is certain while its arguments are incomplete."""

    name: str


class EarlyArguments(NamedTuple):
    """A fragment of such a call's arguments that no later fix can change."""

    text: str


class TriedStrategy(NamedTuple):
    """A strategy that was tried on a candidate's text, from its beginning; the engine knows the offset."""

    strategy: str
    outcome: Literal["call", "malformed", "text"]
    why: str
    cost: int
    """Characters that were examined."""


EarlyOutput: TypeAlias = "Part | EarlyCallStart | EarlyArguments"
"""What a candidate emits before its end: parts that are settled, and the call that comes after them."""


class CandidateBase:
    """The attributes that every `Candidate` has from the start."""

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
        """Whether a Python comment may follow on the same line."""
        return False

    def _emit_early(self, parts: Sequence[Part]) -> None:
        """Emit parts before the end; nothing can revoke them."""
        self.early += parts
        self._emitted += parts


class Candidate(Protocol):
    """Text that may be a call, fed until that is decided.

    `feed` takes `piece[start:]` and returns None while more text is needed, then the index just past what it consumed.
    From then on `parts` tile what it consumed, except for the last `len(unread)` characters, which it only looked at.

    `definite`: the parts are final no matter what follows; otherwise they are tentative.
    `early`: what may be emitted before the end. The engine drains it; it then emits `head`, the markup before the
    calls, first, empties it and removes it from `parts`. Parts in `early` are settled: afterwards `parts` hold only
    what comes after them, and none of it is text. `tries`: the strategies that were tried, for the trace.
    """

    parts: list[Part]
    unread: str
    definite: bool
    early: list[EarlyOutput]
    head: str
    tries: list[TriedStrategy]

    def feed(self, piece: str, start: int) -> int | None:
        """Consume more text."""
        ...

    def close(self, finish_reason: str | None) -> None:
        """Decide, since the text has ended."""
        ...


# The segments of a reply in a format whose messages have headers.
#
# Such a format, Harmony for one, covers the whole reply: reasoning, text for the user and calls are separate
# messages. A splitter for it yields the header, the content and the end of each message, and what lies outside
# messages.


class MessageStart(NamedTuple):
    """The header of a message."""

    kind: Literal["thoughts", "words", "call", "other"]
    """`other`: a message of another role, such as an imagined user."""
    raw: str
    name: str = ""
    """The name of the tool that is called, or whose result another role's message is."""
    fixes: tuple[Fix, ...] = ()
    final: bool = False
    """Whether it is the answer: text before it whose header did not say what it is was reasoning."""
    ambiguous: bool = False
    """Whether its header does not say what the content is."""
    delimited: bool = True
    """Whether markers enclose the content, so that white space is part of it."""
    text_only: bool = False
    """Whether its content is never a call, even if it looks like one."""


class Content(NamedTuple):
    """A piece of a message's content."""

    raw: str


class MessageEnd(NamedTuple):
    """The end of a message. Not `complete`: the text ended inside it; `in_header`: inside its header."""

    raw: str
    complete: bool
    in_header: bool = False
    fixes: tuple[Fix, ...] = ()
    """Fixes to this end, if the message is a call."""


class Outside(NamedTuple):
    """Text outside of messages."""

    kind: Literal["space", "markup", "debris", "words"]
    raw: str
    fixes: tuple[Fix, ...] = ()


Segment: TypeAlias = "MessageStart | Content | MessageEnd | Outside"
