"""Find the end of a bracketed value while its text arrives in chunks.

Before a candidate is parsed it is only known where it starts. This scan finds the bracket that closes it, in one pass
and without a copy of the text, so that the JSON reader runs once, on a value that is all there. It knows strings and
comments and nothing else of JSON: a well-formed value ends exactly where a JSON reader says, any other one where its
brackets balance.

Between two chunks the scan is in one of four states: outside strings (`depth` brackets are open), in a string (`_quote`
tells which quote closes it, or which three), in a comment (`_comment` is what ends it), or just after a slash that may
open a comment (`_slash`). `_last`, the last character that is not white space, tells a quote that opens a single-quoted
string from an apostrophe. No character is looked at twice.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

DEEPEST: Final = 200
"""Levels of nesting that a value may have."""

_PLAIN = r"[^\"'‘’“”/#\[\]{}]++|\"(?!\")[^\"\\]{0,80}+(?:\\.[^\"\\]{0,80}+){0,8}+\"|\"\"(?!\"|\Z)"  # not a triple quote
_FLAT = rf"\{{(?:{_PLAIN})*+\}}|\[(?:{_PLAIN})*+\]"
_SKIP = rf"(?:{_PLAIN}|\{{(?:{_PLAIN}|{_FLAT})*+\}}|\[(?:{_PLAIN}|{_FLAT})*+\])*+"
"""Short strings and two levels of brackets, skipped by the regex engine; a long string is left to `str.find`."""
_EVENT = re.compile(r"[\[{]+|[\]}]+|\"|['‘’“”/#]+")
_COMMENTS = re.compile(r"(?:\s|(?:#|//)[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)++")
_SMART = {"“": re.compile("[“”]"), "‘": re.compile("[‘’]")}
_OPENERS = {"'": "'", "‘": "‘", "’": "‘", "“": "“", "”": "“"}
_IN_TRIPLE = {quote: re.compile(rf"[^\\{quote}]*+(?:\\.[^\\{quote}]*+)*+", re.DOTALL) for quote in "\"'"}
_STARTERS = "{[,:"
"""A key or a value may start after one of these; anywhere else a single quote is an apostrophe."""


@cache
def _skip() -> re.Pattern[str]:
    return re.compile(_SKIP, re.DOTALL)


class Extent:
    """Find the end of one value that starts with `{` or `[`.

    O(n) in characters, with O(1) calls of the regex engine per bracket and per string.
    """

    __slots__ = ("_comment", "_empty", "_escaped", "_fresh", "_last", "_quote", "_run", "_slash", "deep", "depth")

    def __init__(self) -> None:
        self.depth = 0
        """Brackets that are open."""
        self.deep = False
        """Whether the value is nested deeper than `DEEPEST`: the scan stops, since the JSON reader rejects it."""
        self._quote = ""
        self._fresh = False
        """Whether a string that is a value has just been opened."""
        self._empty = ""
        """The quote of an empty string that has just ended: one more opens a triple-quoted string."""
        self._run = 0
        """Quotes at the end of what was read of a triple-quoted string."""
        self._escaped = False
        self._comment = ""
        self._slash = False
        self._last = ""

    @property
    def in_string(self) -> bool:
        """Whether the next character is inside a string."""
        return bool(self._quote)

    def feed(self, piece: str, start: int = 0) -> int | None:
        """Scan `piece[start:]`; return the index just past the value's last bracket, None while it is open."""
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
        """Return the index past the closing quote, or the end of the piece."""
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
                match = _SMART[quote].search(piece, at)
                end = match.start() if match else -1
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
        """Return the index past a triple-quoted string: three or more quotes close it, since it may end in a quote."""
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
                match = _IN_TRIPLE[quote].match(piece, at)
                assert match is not None
                at = match.end()
                if at < len(piece) and piece[at] == "\\":  # it escapes the first character of the next piece
                    self._escaped = True
                    return len(piece)
        return at

    def _outside(self, piece: str, at: int) -> int:
        """Return the index past the next bracket, quote or comment opener; negated if that bracket closed the value."""
        if self._empty:
            quote, self._empty = self._empty, ""
            if piece[at] == quote:
                self._quote = quote * 3
                return at + 1
        skipped = _skip().match(piece, at) if self.depth else None  # the value's own bracket must be counted
        match = _EVENT.match(piece, skipped.end() if skipped else at)
        if match is None:
            self._note(piece, at, len(piece))
            return len(piece)
        begin, end = match.span()
        char = piece[begin]
        if char == '"':
            self._note(piece, at, begin)
            self._quote, self._fresh = char, self._last in _STARTERS
            return begin + 1
        if char in "[{":
            self.depth += end - begin
            self.deep = self.deep or self.depth > DEEPEST
            self._last = char
            return end
        if char in "]}":
            if end - begin >= self.depth:
                end, self.depth = begin + self.depth, 0
                return -end
            self.depth -= end - begin
            self._last = char
            return end
        self._note(piece, at, begin)
        if self._last not in _STARTERS:
            self._last = char
            return end
        if char in _OPENERS:
            self._quote, self._fresh = _OPENERS[char], True
            return begin + 1
        comments = _COMMENTS.match(piece, begin)
        if comments:
            return comments.end()
        if char == "#":
            self._comment = "\n"
            return begin + 1
        self._slash = True
        return self._after_slash(piece, begin + 1) if begin + 1 < len(piece) else end

    def _after_slash(self, piece: str, at: int) -> int:
        """Open a comment if the character after the slash says so; return the index to go on from."""
        self._slash = False
        char = piece[at]
        if char in "/*":
            self._comment = "\n" if char == "/" else "*/"
            return at + 1
        self._last = "/"
        return at

    def _skip(self, piece: str, at: int) -> int:
        """Return the index past the end of the comment, or the end of the piece."""
        if self._comment == "/":  # the piece before ended in a star
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
        """Remember the last character of `piece[start:end]` that is not white space."""
        while end > start:
            end -= 1
            if not piece[end].isspace():
                self._last = piece[end]
                return
