"""Harmony whose control tokens a server has stripped: the words of the headers are glued to the text around them.

    analysisNeed the weather.assistantcommentary to=functions.get_weather json{"city": "Oslo"}

is a message of reasoning and a call. Without tokens a header is recognised by words that no sentence has in that form:
`assistant` glued to a channel, or `to=` and a tool's name before a bracket. `BareWords` replaces each such header by
the pieces of a complete one, with tokens whose raw text is empty, so that the state machine needs no second path and
the raw text still tiles what was fed. A suffix that may become a header is held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from promptools.harmony.front import LIMIT
from promptools.harmony.header import Known
from promptools.harmony.names import FUNCTIONS
from promptools.harmony.scan import ENDS, Piece, Token
from promptools.harmony.tokens import CHANNELS
from promptools.parsing.scanner import RareMarker

_CHANNEL = "(?:analysis|commentary|final)"
_SPEAKER = "(?:assistant){1,2}"
_BEFORE = rf"(?:{_SPEAKER} ?)?(?:{_CHANNEL} ?)?"
_TO = r"to= ?(?P<to>[A-Za-z_][\w.\-]{0,127})"
_MARKS = ("<|channel|>", "<|constrain|>", "<|message|>")
_MARK = f"(?:{'|'.join(map(re.escape, _MARKS))})"
_START = re.compile(rf"{_SPEAKER}(?={_CHANNEL}|{_MARK}| ?(?:{_CHANNEL} ?)?to=)|\s(?:{_CHANNEL} ?)?to=(?= ?[A-Za-z_])")
"""The word `assistant`, glued to what follows ("an assistant finally" is English), or a recipient after white space."""
_TOKENED = re.compile(rf"\s?(?:{_BEFORE}{_TO}|assistant)\s{{0,4}}{_MARK}")
"""The beginning of a header that has kept some of its tokens."""
_CALL = re.compile(rf"\s?(?P<before>{_BEFORE}){_TO}(?:\s{{0,4}}(?:json|code|{_CHANNEL}))*\s{{0,4}}(?=[{{\[])")
_TURN = re.compile(rf"{_SPEAKER}{_CHANNEL}(?:\s?(?:json|code)(?=\s{{0,4}}[{{\[]))?")
_OPENS = re.compile(rf"(?:{_SPEAKER})?(?:analysis(?=[^\W\d_])|(?:commentary|final)(?=[^\Wa-z_]|[\n{{\"']))")
"""How such a text begins: no English word continues `analysis`, and no sentence ends in `final`."""
_SAID = re.compile(r"[\w{\[*#<$|-]|[^\x00-\x7f]|[ \t]{0,2}(?:\n|[A-Z0-9{\[*#])")
"""What an answer begins with, after the name of its channel."""
_MORE = re.compile(
    rf"\s?{_BEFORE}(?:\s{{0,4}}(?:t|to|to=\s?[\w.\-]{{0,128}}(?:\s{{1,4}}\w{{1,12}}){{0,4}}\s{{0,4}})?"
    rf"|\s?(?:j|js|jso|c|co|cod|(?:json|code)\s{{0,4}}))?(?:<(?:\|\w{{0,9}}\|?)?)?\Z"
)
"""What may become a header, at the end of the text."""
_OTHER = re.compile(rf"\s?{_BEFORE}{_TO}<\|message\|>\s{{0,8}}(?:<(?:a(?:t(?:e(?:m(?P<atem>:)?)?)?)?)?)?")
"""What may be a header of Muse Glimmer, whose calls begin with `<atem:`."""
_SPACES = (" ", "\n", "\t", "\r")


def _prefixes(before: Iterable[str]) -> frozenset[str]:
    """Return all prefixes of the beginning of a header whose first word is one of `before`."""
    channels = ("", *CHANNELS, *(f"{each} " for each in CHANNELS))
    beginnings = [f"{first}{channel}to= " for first, channel in product(before, channels)]
    beginnings += [f"{first}{mark}" for first, mark in product(_SPEAKERS, _MARKS)]
    return frozenset(word[:size] for word in beginnings for size in range(1, len(word) + 1))


_SPEAKERS = ("assistant", "assistant ", "assistantassistant", "assistantassistant ")
_FIRST = _prefixes(("", *_SPEAKERS))
"""Prefixes of a header at the very beginning of the text."""
_PREFIXES = _prefixes((*_SPACES, *_SPEAKERS))
"""Prefixes of a header after other text."""
_LONGEST = max(map(len, _PREFIXES))


_WORDS = ("assistant", *CHANNELS, "to=")
"""The words that such a header may begin with."""
HEADER = RareMarker(
    "harmony_bare",
    words=("assistant<|", "assistantassistant", *(f"assistant{each}" for each in CHANNELS), "to="),
    pattern=re.compile(f"(?P<harmony_bare>{_START.pattern})"),
    back=_LONGEST,
    ahead=64,
    holds=_PREFIXES,
    firsts=frozenset(each[0] for each in _FIRST),
)
"""The marker of such a header, for the scanners of prose."""


def begins(text: str, at: int, known: Known | None, *, first: bool, final: bool) -> bool | None:
    """Whether a header without tokens begins at `text[at]`; None: more text is needed.

    `first`: no text precedes it. A turn (`assistantfinal`) counts only if it cannot be a word of a sentence about it.
    """
    if first and not text[at].isspace() and not text.startswith(_WORDS, at):
        return None if not final and text[at:] in _FIRST else False
    window = text[at : at + LIMIT]
    whole = final or len(text) - at > LIMIT
    if first and _OPENS.match(window) and window.startswith(("analysis", "assistant")):
        return True
    if first and not whole and window in _FIRST:
        return None
    other = _OTHER.match(window)
    if other is not None and (other["atem"] or (not whole and other.end() == len(window))):
        return False if other["atem"] else None
    if _TOKENED.match(window):
        return True
    call = _CALL.match(window)
    if call is not None:
        return _is_tool(call["to"], known)
    if not whole and _MORE.match(window):
        return None
    turn = _TURN.match(window)
    return turn is not None and _SAID.match(window, turn.end()) is not None


class BareWords:
    """Finds such headers in text, and replaces each by pieces whose tokens are empty.

    It stops at the first control token of a header: text that has its tokens needs no guess. O(n) in characters; holds
    back at most `LIMIT` of them.
    """

    def __init__(self, known: Known | None = None) -> None:
        self._known = known
        self._held = ""
        self._first = True
        self.done = False
        """A token of a header came: nothing is searched for any more."""

    def feed(self, piece: Piece) -> Iterator[Piece]:
        """Yield the pieces that a piece becomes."""
        if isinstance(piece, Token):
            yield from self.close()
            self._first = False
            self.done = self.done or piece.name not in ENDS
            yield piece
        elif self.done:
            yield piece
        else:
            yield from self._read(self._held + piece, final=False)

    def close(self) -> Iterator[Piece]:
        """Yield what was held back."""
        held, self._held = self._held, ""
        if held:
            yield from self._read(held, final=True)

    def _read(self, text: str, *, final: bool) -> Iterator[Piece]:
        at, self._held = 0, ""
        if self._first:
            stripped = text.lstrip()
            if len(stripped) < len(text):
                yield text[: len(text) - len(stripped)]
                text = stripped
            if not final and len(text) <= LIMIT and (_MORE.match(text) or text in _FIRST):
                self._held = text
                return
            self._first = False
            opens = _OPENS.match(text)
            head = opens[0] if opens is not None else self._header(text, 0, final=final)
            if head is not None:
                yield from _header(head)
                at = len(head)
        begin = at
        while (found := _START.search(text, at)) is not None:
            head = self._header(text, found.start(), final=final)
            if head is None and not final and len(text) - found.start() <= LIMIT and _MORE.match(text, found.start()):
                if found.start() > begin:
                    yield text[begin : found.start()]
                self._held = text[found.start() :]
                return
            if head is None:
                at = found.start() + 1
                continue
            if found.start() > begin:
                yield text[begin : found.start()]
            yield from _header(head)
            begin = at = found.start() + len(head)
        cut = len(text) if final else _hold(text, begin)
        if cut > begin:
            yield text[begin:cut]
        self._held = text[cut:]

    def _header(self, text: str, at: int, *, final: bool) -> str | None:
        """Return the complete header at `text[at]`, if there is one."""
        call = _CALL.match(text, at)
        if call is not None and (call["before"].strip() or _is_tool(call["to"], self._known)):
            return call[0]
        turn = _TURN.match(text, at)
        if turn is None or (not final and _MORE.match(text, at)):
            return None
        ends = final and not text[turn.end() :].strip()
        return turn[0] if ends or _SAID.match(text, turn.end()) else None


def _is_tool(name: str, known: Known | None) -> bool:
    return name.startswith(f"{FUNCTIONS}.") or known is None or known(name)


def _header(raw: str) -> Iterator[Piece]:
    yield Token("start", "")
    yield raw
    yield Token("message", "")


def _hold(text: str, at: int) -> int:
    """Return the offset of the suffix of `text[at:]` that may become a header."""
    for size in range(min(_LONGEST, len(text) - at), 0, -1):
        if text[len(text) - size :] in _PREFIXES:
            return len(text) - size
    return len(text)
