"""What Harmony text is parsed into: a message is `HarmonyStart`, any number of `ContentChunk`, and `HarmonyEnd`.

`Aside` belongs to no message. The raw text of all items tiles what was parsed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from promptools.harmony.parsing.header import Header


class HarmonyStart(NamedTuple):
    """The beginning of a message."""

    header: Header
    raw: str


class ContentChunk(NamedTuple):
    """A chunk of the message's content, verbatim."""

    raw: str


class HarmonyEnd(NamedTuple):
    """The end of a message: by a token, by the next message (`start`, `channel`), or by the end of the text.

    `cut`: the text ended in its content; `header`: it ended before that.
    """

    reason: Literal["end", "call", "return", "endoftext", "start", "channel", "cut", "header"]
    raw: str


class Aside(NamedTuple):
    """Text that belongs to no message."""

    kind: Literal["space", "token", "debris", "words"]
    raw: str


Item: TypeAlias = "HarmonyStart | ContentChunk | HarmonyEnd | Aside"
