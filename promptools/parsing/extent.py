"""Where a bracketed value ends, told as its text comes in piece by piece.

The scan knows strings and comments and nothing else of JSON: a value that is well formed ends exactly where a JSON
reader says, one that is not ends where its brackets balance. No character is looked at twice.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

DEEPEST: Final = 200
"""Levels of brackets that a value may have."""

_PLAIN = r"[^\"'‘’“”/#\[\]{}]++|\"(?!\")[^\"\\]{0,80}+(?:\\.[^\"\\]{0,80}+){0,8}+\"|\"\"(?!\"|\Z)"  # three open another
_FLAT = rf"\{{(?:{_PLAIN})*+\}}|\[(?:{_PLAIN})*+\]"
_SKIP = rf"(?:{_PLAIN}|\{{(?:{_PLAIN}|{_FLAT})*+\}}|\[(?:{_PLAIN}|{_FLAT})*+\])*+"
"""Short strings and two levels of brackets at the speed of the regex engine; a long string is left to `str.find`."""
_EVENT = re.compile(r"[\[{]+|[\]}]+|\"|['‘’“”/#]+")
_COMMENTS = re.compile(r"(?:\s|(?:#|//)[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)++")
_SMART = {"“": re.compile("[“”]"), "‘": re.compile("[‘’]")}
_OPENERS = {"'": "'", "‘": "‘", "’": "‘", "“": "“", "”": "“"}
_IN_TRIPLE = {quote: re.compile(rf"[^\\{quote}]*+(?:\\.[^\\{quote}]*+)*+", re.DOTALL) for quote in "\"'"}
_STARTERS = "{[,:"
"""A key or a value may start after these; anywhere else a single quote is an apostrophe."""


@cache
def _skip() -> re.Pattern[str]:
    return re.compile(_SKIP, re.DOTALL)


class Extent:
    """Find the end of one value that starts with `{` or `[`.

    Cost: O(1) calls of the regex engine per bracket and per string, O(n) characters in all.
    """

    __slots__ = ("_comment", "_empty", "_escaped", "_fresh", "_last", "_quote", "_run", "_slash", "deep", "depth")

    def __init__(self) -> None:
        self.depth = 0
        """Brackets open now."""
        self.deep = False
        """The value went deeper than `DEEPEST` levels: no end is looked for any more, since `read` refuses it."""
        self._quote = ""
        self._fresh = False
        """A value's string has just been opened."""
        self._empty = ""
        """The quote of a value's string that has just ended, and was empty: a third quote opens a longer one."""
        self._run = 0
        """Quotes that stand last in a string in triple quotes."""
        self._escaped = False
        self._comment = ""
        self._slash = False
        self._last = ""

    @property
    def in_string(self) -> bool:
        """Tell whether the next character stands inside a string."""
        return bool(self._quote)

    def feed(self, piece: str, start: int = 0) -> int | None:
        """Take `piece[start:]`; give the index just past the value's last bracket, None while it is open."""
        at = start
        if self._slash and at < len(piece):
            at = self._after_slash(piece, at)
        while at < len(piece) and not self.deep:
            if self._quote:
                at = self._string(piece, at)
            elif self._comment:
                at = self._skip(piece, at)
            else:
                at = self._outside(piece, at)
                if at < 0:
                    return -at
        return None

    def _string(self, piece: str, at: int) -> int:
        """Go past the closing quote, or to the end of the piece."""
        if self._escaped:
            self._escaped = False
            at += 1
        quote = self._quote
        if len(quote) > 1:
            return self._triple(piece, at)
        fresh, self._fresh = self._fresh, False
        begin = at
        while True:
            if quote in _SMART:
                found = _SMART[quote].search(piece, at)
                end = found.start() if found else -1
            else:
                end = piece.find(quote, at)
            stop = end if end >= 0 else len(piece)
            if stop > at and piece[stop - 1] == "\\":
                body = piece[at:stop]
                odd = (len(body) - len(body.rstrip("\\"))) & 1
            else:
                odd = 0
            if end < 0:
                self._escaped = odd == 1
                return len(piece)
            at = end + 1
            if not odd:
                self._quote = ""
                self._last = quote
                self._empty = quote if fresh and end == begin and quote in "\"'" else ""
                return at

    def _triple(self, piece: str, at: int) -> int:
        """Go past the quotes that close a string in triple quotes: a run of three or more, so it may end in a quote."""
        quote = self._quote[0]
        while at < len(piece):
            if piece[at] == quote:
                self._run += 1
                at += 1
            elif self._run >= len(self._quote):
                self._quote, self._last, self._run = "", quote, 0
                return at
            else:
                self._run = 0
                found = _IN_TRIPLE[quote].match(piece, at)
                assert found is not None
                at = found.end()
                if at < len(piece) and piece[at] == "\\":  # it escapes what comes in the next piece
                    self._escaped = True
                    return len(piece)
        return at

    def _outside(self, piece: str, at: int) -> int:
        """Go past the next bracket, quote or comment opener; minus the end if that was the last bracket."""
        if self._empty:
            quote, self._empty = self._empty, ""
            if piece[at] == quote:
                self._quote = quote * 3
                return at + 1
        skipped = _skip().match(piece, at) if self.depth else None  # the value itself is no part to skip
        found = _EVENT.match(piece, skipped.end() if skipped else at)
        if found is None:
            self._note(piece, at, len(piece))
            return len(piece)
        where, end = found.span()
        char = piece[where]
        if char == '"':
            self._note(piece, at, where)
            self._quote, self._fresh = char, self._last in _STARTERS
            return where + 1
        if char in "[{":
            self.depth += end - where
            self.deep = self.deep or self.depth > DEEPEST
            self._last = char
            return end
        if char in "]}":
            if end - where >= self.depth:
                end, self.depth = where + self.depth, 0
                return -end
            self.depth -= end - where
            self._last = char
            return end
        self._note(piece, at, where)
        if self._last not in _STARTERS:
            self._last = char
            return end
        if char in _OPENERS:
            self._quote, self._fresh = _OPENERS[char], True
            return where + 1
        comments = _COMMENTS.match(piece, where)
        if comments:
            return comments.end()
        if char == "#":
            self._comment = "\n"
            return where + 1
        self._slash = True
        return self._after_slash(piece, where + 1) if where + 1 < len(piece) else end

    def _after_slash(self, piece: str, at: int) -> int:
        """Tell a comment from a stray slash."""
        self._slash = False
        char = piece[at]
        if char in "/*":
            self._comment = "\n" if char == "/" else "*/"
            return at + 1
        self._last = "/"
        return at

    def _skip(self, piece: str, at: int) -> int:
        """Go past the end of the comment, or to the end of the piece."""
        if self._comment == "/":  # a star ended the piece before
            self._comment = "*/"
            if piece[at] == "/":
                self._comment = ""
                return at + 1
        end = piece.find(self._comment, at)
        if end >= 0:
            end += len(self._comment)
            self._comment = ""
            return end
        if self._comment == "*/" and piece[-1] == "*":
            self._comment = "/"
        return len(piece)

    def _note(self, piece: str, start: int, end: int) -> None:
        """Remember the last character before `end` that is no white space."""
        while end > start:
            end -= 1
            if not piece[end].isspace():
                self._last = piece[end]
                return
