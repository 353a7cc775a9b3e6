"""Split a Harmony reply into messages: turn each item of the Harmony parser into a segment for the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

from promptools.errors import clip
from promptools.harmony.header import Header, Known
from promptools.harmony.items import ItemParser
from promptools.harmony.machine import Aside, Begin, Finish, Item, Words
from promptools.harmony.names import FUNCTIONS
from promptools.harmony.scan import Piece
from promptools.parsing.segments import Beside, Ended, Opened, Said, Segment
from promptools.types import Fix


class HarmonyCutter:
    """Splits a reply of the assistant into segments."""

    def __init__(self, known: Known | None) -> None:
        self._items = ItemParser("assistant", known=known)

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that are certain."""
        return [segment_of(item) for item in self._items.feed(text)]

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces that already tell control tokens from text; return the segments that are certain."""
        return [segment_of(item) for item in self._items.feed_pieces(pieces)]

    def close(self) -> list[Segment]:
        """Return the remaining segments at the end of the text."""
        return [segment_of(item) for item in self._items.close()]


def segment_of(item: Item) -> Segment:
    """Return the segment for an item of the Harmony parser."""
    match item:
        case Begin(header, raw):
            return _opened(header, raw)
        case Words(raw):
            return Said(raw)
        case Finish(by, raw):
            unexpected = by in {"end", "return"}  # if it is a call, whose own end token is <|call|>
            fixes = (_fix(f"the call ends with <|{by}|>"),) if unexpected else ()
            return Ended(raw, whole=by not in {"cut", "header"}, headless=by == "header", fixes=fixes)
        case Aside(kind, raw):
            notes = {"token": f"{clip(raw, 40)!r} begins and ends nothing", "debris": "words that belong to no message"}
            return Beside("markup" if kind == "token" else kind, raw, (_fix(notes[kind]),) if kind in notes else ())
        case _:
            assert_never(item)


def _opened(header: Header, raw: str) -> Opened:
    fixes = tuple(map(_fix, header.repairs))
    exact = raw.endswith("<|message|>")
    if header.role != "assistant":
        return Opened("other", raw, fixes=fixes, exact=exact)
    if header.is_call:
        return Opened("call", raw, header.recipient.removeprefix(f"{FUNCTIONS}."), fixes, exact=exact)
    kind: Literal["thoughts", "words"] = "thoughts" if header.channel == "analysis" else "words"
    return Opened(kind, raw, fixes=fixes, final=header.channel == "final", vague=not header.channel, exact=exact)


def _fix(what: str) -> Fix:
    return Fix("marker", f"harmony: {what}")
