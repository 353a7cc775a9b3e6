"""A reply in a format whose messages have headers, cut into segments: what each word is part of.

Formats with channels own the whole reply: thoughts, words for the user and calls are messages of their own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias

from promptools.types import Fix


class Opened(NamedTuple):
    """A message begins with a header."""

    kind: Literal["thoughts", "words", "call", "other"]
    """`other`: somebody else speaks."""
    raw: str
    name: str = ""
    """The tool that is called."""
    fixes: tuple[Fix, ...] = ()
    final: bool = False
    """It is the answer: words before it of which no header said what they are were thoughts."""
    vague: bool = False
    """Its header does not say what its words are."""
    exact: bool = True
    """Markers enclose the content, so white space is part of it."""
    plain: bool = False
    """Its words call nothing, whatever they look like."""


class Said(NamedTuple):
    """A piece of the message's content."""

    raw: str


class Ended(NamedTuple):
    """The message is over; not `whole`: the text ended in it. `headless`: in its header."""

    raw: str
    whole: bool
    headless: bool = False
    fixes: tuple[Fix, ...] = ()
    """Liberties with this end, if it is a call that it ends."""


class Beside(NamedTuple):
    """What is part of no message."""

    kind: Literal["space", "markup", "debris", "words"]
    raw: str
    fixes: tuple[Fix, ...] = ()


Segment: TypeAlias = "Opened | Said | Ended | Beside"


class Cutter(Protocol):
    """Cuts a reply into segments, which tile it."""

    def feed(self, text: str) -> list[Segment]:
        """Take a piece of text; give what became certain."""
        ...

    def close(self) -> list[Segment]:
        """Say that the text is over; give the rest."""
        ...
