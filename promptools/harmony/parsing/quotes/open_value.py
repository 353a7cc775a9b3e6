"""Control tokens inside the arguments of a call, before the brackets of their JSON are closed.

    {"path": "a.md", "content": "A call ends with <|call|>; ..."}<|call|>

The first token is in a string that is closed after it: it is content. Where the first quote after it can close no
string, or no string is open, the JSON is broken, and tokens are in it whether the model ended the call there or forgot
to escape the quotes of a text about calls. Then a token counts only if nothing but whole messages follow it
(`is_rest_of_reply`): in a text about calls the rest of the text follows. What is left is broken arguments, and no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from promptools.harmony.parsing.header import Header
from promptools.harmony.parsing.header_text import HEADER_WORDS
from promptools.harmony.parsing.items import Aside, ContentChunk, HarmonyEnd, HarmonyStart, Item
from promptools.harmony.parsing.quotes.open_quotes import Settled
from promptools.harmony.parsing.tokenizer import MESSAGE_ENDS, HarmonyToken, Piece
from promptools.jsontext.brackets import BracketScanner
from promptools.patterns import lazy_pattern

_AFTER_STRING = lazy_pattern(r"\s*+(\S?)")


class OpenValue:
    """Tracks the arguments of one call, as far as a token follows. O(n)."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._scanner: BracketScanner | None = BracketScanner()
        """Follows the JSON; None: it is closed, or the arguments are no JSON."""
        self._begun = False

    def doubt(self, tail: str, token: HarmonyToken) -> StringDoubt | None:
        """Return the doubt about a token after the arguments so far; None if their JSON is not open."""
        del tail, token  # they open and close nothing
        text, self.unread = "".join(self.unread), []
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
            if not text.startswith("{"):
                self._scanner = None if text else self._scanner
        scanner = self._scanner
        if scanner is not None and text and scanner.feed(text) is not None:
            self._scanner = scanner = None
        return StringDoubt(scanner.quote) if scanner is not None and self._begun else None


class StringDoubt:
    """A token in a string that `quote` closes; without one, it is among broken JSON."""

    def __init__(self, quote: str) -> None:
        self.quote = quote
        self._end = re.compile(rf"\\(?:.|\Z)|{re.escape(quote)}", re.DOTALL) if quote else None
        self._escaped = False
        self._closed = False
        """The quote has come; what follows it shows whether it can be the string's end."""

    @property
    def may_go_on(self) -> bool:
        """Whether it is in a string; see `Doubt`."""
        return self.quote != ""

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece; see `Doubt`. Of all quotes, only the first may close the string."""
        if isinstance(piece, HarmonyToken):
            if self._closed and self._end is not None and piece.name in MESSAGE_ENDS:
                return Settled(is_content=True, taken=0)
            self._end = None if self._closed else self._end
            return None
        at = 0
        if self._escaped:
            self._escaped, at = False, 1
        if not self._closed:
            at = self._find_quote(piece, at)
        if not self._closed:
            return None
        following = _AFTER_STRING.match(piece, at)
        assert following is not None
        if not following[1]:
            return None
        if following[1] in ",:]}" and self._end is not None:
            return Settled(is_content=True, taken=following.start(1))
        self._end = None
        return None

    def _find_quote(self, piece: str, at: int) -> int:
        """Return the offset after the quote, or after the piece."""
        for match in self._end.finditer(piece, at) if self._end is not None else ():
            if match[0] == self.quote:
                self._closed = True
                return match.end()
            self._escaped = match[0] == "\\"
        return len(piece)

    def close(self) -> bool:
        """Whether the text ended right after the string."""
        return self._closed and self._end is not None


def is_rest_of_reply(items: Iterable[Item]) -> bool:
    """Whether these items, from the end of a call on, are nothing but whole messages, calls with strict JSON. O(n)."""
    header: Header | None = None
    content: list[str] = []
    for item in items:
        match item:
            case HarmonyStart(header):
                content = []
            case ContentChunk(raw):
                content.append(raw)
            case HarmonyEnd(reason) if header is not None:
                called = header.is_call
                if reason == "header" or (called and not _is_object("".join(content))):
                    return False
                if reason == "call" and not called and header.role == "assistant":
                    return False
            case Aside("words" | "debris", raw) if raw.strip() not in HEADER_WORDS:
                return False
            case _:
                pass
    return True


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
