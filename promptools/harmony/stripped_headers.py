"""Find headers of Harmony whose control tokens a server has stripped, so that their words run into other text.

    analysisNeed the weather.assistantcommentary to=functions.get_weather json{"city": "Oslo"}

This is a reasoning message and a call. Without tokens, a header is recognized by words that no sentence has in that
form: `assistant` glued to a channel, or `to=` and a tool's name before a bracket. `StrippedHeaderFinder` replaces each
such header by the pieces of a complete header, with tokens whose raw text is empty. So the state machine handles both
kinds of headers alike, and the raw texts still add up to the text that was fed. A suffix that may become a header is
held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from promptools.harmony.messages import MAX_HEADER, IsTool
from promptools.harmony.recipients import FUNCTIONS
from promptools.harmony.tokens import CHANNELS, MESSAGE_ENDS, HarmonyToken, Piece
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.parsing.scanner import RareLiteralMarker
from promptools.patterns import lazy_pattern

_CHANNEL = "(?:analysis|commentary|final)"
_SPEAKER = "(?:assistant){1,2}"
_PREAMBLE = rf"(?:{_SPEAKER} ?)?(?:{_CHANNEL} ?)?"
_TO = r"to= ?(?P<to>[A-Za-z_][\w.\-]{0,127})"
_MARKS = ("<|channel|>", "<|constrain|>", "<|message|>")
_MARK = f"(?:{'|'.join(map(re.escape, _MARKS))})"
_HEADER_START = lazy_pattern(
    rf"{_SPEAKER}(?={_CHANNEL}|{_MARK}| ?(?:{_CHANNEL} ?)?to=)|\s(?:{_CHANNEL} ?)?to=(?= ?[A-Za-z_])"
)
"""Matches the beginning of a header: the word `assistant` glued to what follows, or a recipient after white space.

`assistant` with a space after it may be English: "an assistant finally".
"""
_TOKENED = lazy_pattern(rf"\s?(?:{_PREAMBLE}{_TO}|assistant)\s{{0,4}}{_MARK}")
"""Matches the beginning of a header that has kept some of its tokens."""
_CALL = lazy_pattern(rf"\s?(?P<before>{_PREAMBLE}){_TO}(?:\s{{0,4}}(?:json|code|{_CHANNEL}))*\s{{0,4}}(?=[{{\[])")
_TURN = lazy_pattern(rf"{_SPEAKER}{_CHANNEL}(?:\s?(?:json|code)(?=\s{{0,4}}[{{\[]))?")
_OPENS = lazy_pattern(rf"(?:{_SPEAKER})?(?:analysis(?=[^\W\d_])|(?:commentary|final)(?=[^\Wa-z_]|[\n{{\"']))")
"""Matches a channel's name right before the content at the beginning of a reply, as in `analysisNeed the weather`.

English text does not begin like this.
"""
_CONTENT_START = lazy_pattern(r"[\w{\[*#<$|-]|[^\x00-\x7f]|[ \t]{0,2}(?:\n|[A-Z0-9{\[*#])")
"""Matches the beginning of a message's content, after the name of the channel."""
_UNFINISHED = lazy_pattern(
    rf"\s?{_PREAMBLE}(?:\s{{0,4}}(?:t|to|to=\s?[\w.\-]{{0,128}}(?:\s{{1,4}}\w{{1,12}}){{0,4}}\s{{0,4}})?"
    rf"|\s?(?:j|js|jso|c|co|cod|(?:json|code)\s{{0,4}}))?(?:<(?:\|\w{{0,9}}\|?)?)?\Z"
)
"""Matches text at the end of the input that may become a header."""
_MUSE_HEADER = lazy_pattern(rf"\s?{_PREAMBLE}{_TO}<\|message\|>\s{{0,8}}(?:<(?:a(?:t(?:e(?:m(?P<atem>:)?)?)?)?)?)?")
"""Matches text that may be a header of Muse Glimmer, whose calls begin with `<atem:`."""
_SPACES = (" ", "\n", "\t", "\r")


def _header_prefixes(before: Iterable[str]) -> frozenset[str]:
    """Return all prefixes of headers without tokens. Each of these headers begins with a text in `before`.

    Prefixes of headers that have kept a token after `assistant`, such as `assistant<|channel|>`, are included.
    """
    channels = ("", *CHANNELS, *(f"{channel} " for channel in CHANNELS))
    beginnings = [f"{first}{channel}to= " for first, channel in product(before, channels)]
    beginnings += [f"{first}{mark}" for first, mark in product(_SPEAKERS, _MARKS)]
    return frozenset(word[:size] for word in beginnings for size in range(1, len(word) + 1))


_SPEAKERS = ("assistant", "assistant ", "assistantassistant", "assistantassistant ")
_START_PREFIXES = _header_prefixes(("", *_SPEAKERS))
"""Prefixes of a header at the very beginning of the text."""
_PREFIXES = _header_prefixes((*_SPACES, *_SPEAKERS))
"""Prefixes of a header after other text."""
_LONGEST = max(map(len, _PREFIXES))


_FIRST_WORDS = ("assistant", *CHANNELS, "to=")
"""The words that a header without tokens may begin with."""
STRIPPED_HEADER = RareLiteralMarker(
    "harmony_bare",
    search_literals=("assistant<|", "assistantassistant", *(f"assistant{channel}" for channel in CHANNELS), "to="),
    pattern=lazy_pattern(f"(?P<harmony_bare>{_HEADER_START.pattern})"),
    max_before=_LONGEST,
    max_after=64,
    prefixes=_PREFIXES,
    first_characters=frozenset(prefix[0] for prefix in _START_PREFIXES),
)
"""The marker by which a `MarkerScanner` finds headers without tokens in prose."""


def stripped_header_begins(text: str, at: int, known: IsTool | None, *, first: bool, final: bool) -> bool | NeedMore:
    """Return whether a header without tokens begins at `text[at]`; `NEED_MORE` if this is not clear yet.

    `first` says that no text precedes the header, `final` that no more text will come. A header like `assistantfinal`
    counts only if the content of a message follows directly, since it may also be a word in a sentence about Harmony.
    """
    if first and not text[at].isspace() and not text.startswith(_FIRST_WORDS, at):
        return NEED_MORE if not final and text[at:] in _START_PREFIXES else False
    window = text[at : at + MAX_HEADER]
    whole = final or len(text) - at > MAX_HEADER
    if first and _OPENS.match(window) and window.startswith(("analysis", "assistant")):
        return True
    if first and not whole and window in _START_PREFIXES:
        return NEED_MORE
    other = _MUSE_HEADER.match(window)
    if other is not None and (other["atem"] or (not whole and other.end() == len(window))):
        return False if other["atem"] else NEED_MORE
    if _TOKENED.match(window):
        return True
    call = _CALL.match(window)
    if call is not None:
        return _is_tool(call["to"], known)
    if not whole and _UNFINISHED.match(window):
        return NEED_MORE
    turn = _TURN.match(window)
    return turn is not None and _CONTENT_START.match(window, turn.end()) is not None


class StrippedHeaderFinder:
    """Finds headers without tokens in text, and puts a token with empty raw text before and after each of them.

    The search stops at the first control token of a header, since text with tokens needs no guessing. O(n) in
    characters, of which at most `MAX_HEADER` are held back.
    """

    def __init__(self, known: IsTool | None = None) -> None:
        self._known = known
        self._held = ""
        self._at_start = True
        self.done = False
        """Whether a control token of a header was read. If so, the search has stopped."""

    def feed(self, piece: Piece) -> Iterator[Piece]:
        """Read a piece, and yield it with tokens before and after each header. A suffix may be held back."""
        if isinstance(piece, HarmonyToken):
            yield from self.close()
            self._at_start = False
            self.done = self.done or piece.name not in MESSAGE_ENDS
            yield piece
        elif self.done:
            yield piece
        else:
            yield from self._split(self._held + piece, final=False)

    def close(self) -> Iterator[Piece]:
        """Yield the pieces for the text that was held back, since no more text follows."""
        held, self._held = self._held, ""
        if held:
            yield from self._split(held, final=True)

    def _split(self, text: str, *, final: bool) -> Iterator[Piece]:
        at, self._held = 0, ""
        if self._at_start:
            stripped = text.lstrip()
            if len(stripped) < len(text):
                yield text[: len(text) - len(stripped)]
                text = stripped
            if not final and len(text) <= MAX_HEADER and (_UNFINISHED.match(text) or text in _START_PREFIXES):
                self._held = text
                return
            self._at_start = False
            opens = _OPENS.match(text)
            head = opens[0] if opens is not None else self._match_header(text, 0, final=final)
            if head is not None:
                yield from _header_pieces(head)
                at = len(head)
        begin = at
        while (match := _HEADER_START.search(text, at)) is not None:
            start = match.start()
            head = self._match_header(text, start, final=final)
            if head is not None:
                if start > begin:
                    yield text[begin:start]
                yield from _header_pieces(head)
                begin = at = start + len(head)
            elif not final and len(text) - start <= MAX_HEADER and _UNFINISHED.match(text, start):
                break
            else:
                at = start + 1
        else:
            start = len(text) if final else _held_from(text, begin)
        if start > begin:
            yield text[begin:start]
        self._held = text[start:]

    def _match_header(self, text: str, at: int, *, final: bool) -> str | None:
        """Return the complete header at `text[at]`; None if there is none, or if it may be incomplete."""
        call = _CALL.match(text, at)
        if call is not None and (call["before"].strip() or _is_tool(call["to"], self._known)):
            return call[0]
        turn = _TURN.match(text, at)
        if turn is None or (not final and _UNFINISHED.match(text, at)):
            return None
        ends = final and not text[turn.end() :].strip()
        return turn[0] if ends or _CONTENT_START.match(text, turn.end()) else None


def _is_tool(name: str, known: IsTool | None) -> bool:
    return name.startswith(f"{FUNCTIONS}.") or known is None or known(name)


def _header_pieces(raw: str) -> Iterator[Piece]:
    yield HarmonyToken("start", "")
    yield raw
    yield HarmonyToken("message", "")


def _held_from(text: str, at: int) -> int:
    """Return the offset of the longest suffix of `text[at:]` that may become a header; `len(text)` if no suffix may."""
    for size in range(min(_LONGEST, len(text) - at), 0, -1):
        if text[len(text) - size :] in _PREFIXES:
            return len(text) - size
    return len(text)
