"""Split a Harmony reply into messages: turn each item of the Harmony parser into a segment for the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.families.harmony_unaddressed import UnaddressedJson
from promptools.errors import clip
from promptools.harmony.messages import Aside, ContentChunk, HarmonyEnd, HarmonyStart, Header, IsTool, Item
from promptools.harmony.parser import ItemParser
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.tokens import Piece
from promptools.parsing.parts import Content, MessageEnd, MessageStart, Outside, Segment
from promptools.types import Fix


class HarmonySplitter:
    """Splits a reply of the assistant into segments. `known` tells whether a recipient is an offered tool."""

    def __init__(self, known: IsTool | None, rules: ParseOptions) -> None:
        self._items = ItemParser("assistant", known=known)
        tools_offered = rules.tools is None or bool(rules.tools.names)
        self._unaddressed = UnaddressedJson(rules) if tools_offered and not rules.json_answer else None

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that are certain."""
        return self._segments(self._items.feed(text))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces that already tell control tokens from text; return the segments that are certain."""
        return self._segments(self._items.feed_pieces(pieces))

    def close(self, *, cut: bool) -> list[Segment]:
        """Return the remaining segments at the end of the text; `cut`: the server cut it off."""
        segments = self._segments(self._items.close(cut=cut))
        return [*segments, *self._unaddressed.close()] if self._unaddressed is not None else segments

    def _segments(self, items: list[Item]) -> list[Segment]:
        segments = map(segment_of, items)
        return list(segments if self._unaddressed is None else self._unaddressed.filter(segments))


def segment_of(item: Item) -> Segment:
    """Return the segment for an item of the Harmony parser."""
    match item:
        case HarmonyStart(header, raw):
            return _opened(header, raw)
        case ContentChunk(raw):
            return Content(raw)
        case HarmonyEnd(by, raw):
            unexpected = by in {"end", "return"}  # if it is a call, whose own end token is <|call|>
            fixes = (_marker_fix(f"the call ends with <|{by}|>"),) if unexpected else ()
            return MessageEnd(raw, complete=by not in {"cut", "header"}, in_header=by == "header", fixes=fixes)
        case Aside(kind, raw):
            notes = {"token": f"{clip(raw, 40)!r} begins and ends nothing", "debris": "text that belongs to no message"}
            return Outside(
                "markup" if kind == "token" else kind, raw, (_marker_fix(notes[kind]),) if kind in notes else ()
            )
        case _:
            assert_never(item)


def _opened(header: Header, raw: str) -> MessageStart:
    fixes = tuple(map(_marker_fix, header.repairs))
    exact = raw.endswith("<|message|>")
    if header.role != "assistant":
        author = header.name if header.role == "tool" else ""
        return MessageStart("other", raw, author, fixes, delimited=exact)
    if header.is_call:
        return MessageStart("call", raw, header.recipient.removeprefix(f"{FUNCTIONS}."), fixes, delimited=exact)
    kind: Literal["thoughts", "words"] = "thoughts" if header.channel == "analysis" else "words"
    return MessageStart(
        kind, raw, fixes=fixes, final=header.channel == "final", ambiguous=not header.channel, delimited=exact
    )


def _marker_fix(what: str) -> Fix:
    return Fix("marker", f"harmony: {what}")
