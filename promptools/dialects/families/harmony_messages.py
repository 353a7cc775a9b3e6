"""Split a Harmony reply into messages: turn the items of the Harmony parser into segments for the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, assert_never

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import read_calls
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.errors import clip
from promptools.harmony.messages import Aside, ContentChunk, HarmonyEnd, HarmonyStart, Header, IsTool, Item
from promptools.harmony.parser import ItemParser
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.tokens import Piece
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.strict import read_members
from promptools.parsing.parts import Content, MessageEnd, MessageStart, Outside, Segment
from promptools.types import Fix

# JSON at the beginning of a message for the user, with words after it: the arguments of a call that names no tool.
#
#     <|channel|>commentary <|constrain|>json<|message|>{"city": "Oslo"}<|call|>It is sunny.
#
# gpt-oss leaves the recipient out and, if `<|call|>` does not stop it, continues. Nobody can tell which tool was
# meant. If words follow, the JSON is left out, so that the user does not see it joined to the words. Otherwise the
# JSON is content: it may be all that the model had to say.


_FIX = Fix("marker", "harmony: JSON that addresses no tool was left out before words")


class UnaddressedJson:
    """Leaves out a JSON object at the start of a message for the user, if the object names no tool and text follows it.

    The object is held back until it is clear what follows. All other segments are passed on. O(n) in characters.
    """

    def __init__(self, options: ParseOptions) -> None:
        self._options = options
        self._held: list[Segment] = []
        """The held segments: those of the JSON object, and those after it."""
        self._scanner: BracketScanner | None = None
        """Finds the end of the JSON; None if no JSON is open."""
        self._may_begin = False
        """Whether a JSON object may begin, since a message for the user has just begun."""

    def filter(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """Yield the segments that can be passed on now."""
        for segment in segments:
            if self._scanner is not None:
                yield from self._in_json(segment, self._scanner)
            elif self._held:
                yield from self._after_json(segment)
            elif self._may_begin and isinstance(segment, Content):
                yield from self._first_content(segment)
            else:
                self._may_begin = isinstance(segment, MessageStart) and _is_commentary(segment)
                yield segment

    def close(self) -> Iterator[Segment]:
        """Yield the held segments unchanged, so that the JSON stays in the reply."""
        held, self._held, self._scanner = self._held, [], None
        yield from held

    def _first_content(self, segment: Content) -> Iterator[Segment]:
        bare = segment.raw.lstrip()
        self._may_begin = not bare
        if not bare.startswith("{"):
            yield segment
            return
        if len(bare) < len(segment.raw):
            yield Content(segment.raw[: -len(bare)])
        self._scanner = BracketScanner()
        yield from self._in_json(Content(bare), self._scanner)

    def _in_json(self, segment: Segment, scanner: BracketScanner) -> Iterator[Segment]:
        end = scanner.feed(segment.raw) if isinstance(segment, Content) else None
        if isinstance(segment, Content) and end is None:
            self._held.append(segment)
            return
        self._held.append(Content(segment.raw[:end]) if end is not None else segment)
        text = "".join(held.raw for held in self._held if isinstance(held, Content))
        if end is None or not self._names_no_tool(text):
            yield from self.close()
            if end is not None and end < len(segment.raw):
                yield Content(segment.raw[end:])
            return
        self._held, self._scanner = [Content(text)], None
        if end < len(segment.raw):
            yield from self._after_json(Content(segment.raw[end:]))

    def _after_json(self, segment: Segment) -> Iterator[Segment]:
        words = isinstance(segment, Content) or (isinstance(segment, Outside) and segment.kind == "words")
        if words and segment.raw.strip() and not segment.raw.lstrip().startswith("{"):
            yield from self._leave_out(segment)
        elif (words and segment.raw.strip()) or (isinstance(segment, MessageStart) and segment.kind != "words"):
            yield from self.close()
            yield segment
        else:
            self._held.append(segment)

    def _leave_out(self, words: Segment) -> Iterator[Segment]:
        """Yield the held JSON as debris, then the other held segments, and then `words`, the text after the JSON.

        The reply leaves debris out.
        """
        found, *rest = self._held
        self._held = []
        yield Outside("debris", found.raw, (_FIX,))
        bare = words.raw.lstrip()
        space = words.raw[: -len(bare)]
        for held in (*rest, Content(space)) if space else rest:
            yield Outside("space", held.raw) if isinstance(held, Content) else held
        yield words._replace(raw=bare)

    def _names_no_tool(self, text: str) -> bool:
        """Return whether a text is a JSON object that names no tool, and so is not a whole call."""
        _, _, end = read_members(text)
        if end != len(text):
            return False
        try:
            read_calls(text, self._options, Evidence("harmony", wrapped=False, expected=False))
        except NotACall:
            return True
        return False


def _is_commentary(opened: MessageStart) -> bool:
    """Return whether a message is commentary: text for the user that is not the answer."""
    return opened.kind == "words" and not (opened.final or opened.ambiguous)


# The splitter.


class HarmonySplitter:
    """Splits a reply of the assistant into segments. `known` returns True for a recipient that is an offered tool."""

    def __init__(self, known: IsTool | None, options: ParseOptions) -> None:
        self._items = ItemParser("assistant", known=known)
        tools_offered = options.tools is None or bool(options.tools.names)
        self._unaddressed = UnaddressedJson(options) if tools_offered and not options.json_answer else None

    def feed(self, text: str) -> list[Segment]:
        """Read a piece of text; return the segments that later text cannot change."""
        return self._segments(self._items.feed(text))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Segment]:
        """Read pieces that are either text or control tokens; return the segments that later text cannot change."""
        return self._segments(self._items.feed_pieces(pieces))

    def close(self, *, cut: bool) -> list[Segment]:
        """Return the remaining segments at the end of the text. `cut` says that the server cut the text off."""
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
            unexpected = by in {"end", "return"}  # for a call, which should end with <|call|>
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
