"""The segments of a reply in a format whose messages have headers.

Such a format, Harmony for one, covers the whole reply: reasoning, text for the user and calls are separate messages.
A splitter for it yields the header, the content and the end of each message, and what lies outside messages.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias

from promptools.types import Fix


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
    """Whether its content is no call, whatever it looks like."""


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
    """Text outside any message."""

    kind: Literal["space", "markup", "debris", "words"]
    raw: str
    fixes: tuple[Fix, ...] = ()


Segment: TypeAlias = "MessageStart | Content | MessageEnd | Outside"


class MessageSplitter(Protocol):
    """Splits a reply into segments, which tile it."""

    def feed(self, text: str) -> list[Segment]:
        """Consume a chunk of text; return the segments that became certain."""
        ...

    def close(self, *, cut: bool) -> list[Segment]:
        """End the text; return the remaining segments. `cut`: the server cut it off."""
        ...
