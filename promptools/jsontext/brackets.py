"""Find the end of a bracketed value while its text arrives in chunks.

Before a value is parsed, only its start is known. The scan finds the bracket that closes the value, in one pass and
without copying the text. The JSON reader then needs to run only once, on a complete value. The scan considers only
brackets, strings and comments. A well-formed value ends exactly where a JSON reader says; any other value ends where
its brackets balance.

Between two chunks the scan is in one of four states: outside strings (`depth` brackets are open), in a string (`_quote`
is the quote, or the three quotes, that close it), in a comment (`_comment` is the text that ends it), or just after a
slash that may open a comment (`_slash_pending`). `_last_character` is the last character that is not white space. It
distinguishes a quote that opens a single-quoted string from an apostrophe. No character is looked at twice.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from promptools.patterns import lazy_pattern

MAX_DEPTH: Final = 200
"""Maximum nesting of a value, in levels of brackets."""

_SHORT_STRING = r"{0}(?!{0})[^{0}\\]{{0,80}}+(?:\\.[^{0}\\]{{0,80}}+){{0,8}}+{0}|{0}{0}(?!{0}|\Z)"  # not triple quotes
_DOUBLE, _SINGLE = (_SHORT_STRING.format(quote) for quote in "\"'")
_PLAIN = rf"[^\"'‘’“”/#\[\]{{}}]++|{_DOUBLE}|(?:(?<=[{{\[,:])|(?<=[{{\[,:][ \n]))(?:{_SINGLE})"
_FLAT = rf"\{{(?:{_PLAIN})*+\}}|\[(?:{_PLAIN})*+\]"
_SKIP = rf"(?:{_PLAIN}|\{{(?:{_PLAIN}|{_FLAT})*+\}}|\[(?:{_PLAIN}|{_FLAT})*+\])*+"
"""Matches text that one regex match can skip: plain text, short strings, and up to two levels of brackets.

The end of a longer string is found with `str.find` instead.
"""
_DELIMITERS = lazy_pattern(r"[\[{]+|[\]}]+|\"|['‘’“”/#]+")
_COMMENTS = lazy_pattern(r"(?:\s|(?:#|//)[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)++")
_SMART = {"“": lazy_pattern("[“”]"), "‘": lazy_pattern("[‘’]")}
_OPENERS = {"'": "'", "‘": "‘", "’": "‘", "“": "“", "”": "“"}
_IN_TRIPLE = {quote: lazy_pattern(rf"[^\\{quote}]*+(?:\\.[^\\{quote}]*+)*+", re.DOTALL) for quote in "\"'"}
_BEFORE_VALUE = "{[,:"
"""The characters after which a key or a value may start.

Only there does a single quote open a string; elsewhere it is an apostrophe.
"""


@cache
def _skip_pattern() -> re.Pattern[str]:
    return re.compile(_SKIP, re.DOTALL)


class BracketScanner:
    """Finds the end of one value that starts with `{` or `[`.

    O(n) in characters, with O(1) calls of the regex engine per bracket and per string.
    """

    def __init__(self) -> None:
        self.depth = 0
        """The number of open brackets."""
        self._closed = False
        """Whether the bracket that ends the value has been found."""
        self.too_deep = False
        """Whether the value is nested deeper than `MAX_DEPTH`. If so, the scan stops, because no reader accepts it."""
        self._quote = ""
        self._string_opened = False
        """Whether a string has just been opened where a key or a value may start."""
        self._empty_quote = ""
        """The quote of an empty string that has just ended; one more such quote opens a triple-quoted string."""
        self._quote_run = 0
        """Number of consecutive quotes just read in a triple-quoted string."""
        self._escaped = False
        self._comment = ""
        self._slash_pending = False
        self._last_character = ""

    @property
    def in_string(self) -> bool:
        """Whether the next character is inside a string."""
        return bool(self._quote)

    @property
    def quote(self) -> str:
        """The quote, or three quotes, that will close the open string; empty outside strings."""
        return self._quote

    def feed(self, piece: str, start: int = 0) -> int | None:
        """Scan `piece[start:]`; return the index just past the value's last bracket, or None if it has not come."""
        at = start
        if self._slash_pending and at < len(piece):
            at = self._scan_after_slash(piece, at)
        while at < len(piece) and not self.too_deep:
            if self._quote:
                at = self._scan_string(piece, at)
            elif self._comment:
                at = self._scan_comment(piece, at)
            else:
                at = self._scan_outside(piece, at)
                if self._closed:
                    return at
        return None

    def _scan_string(self, piece: str, at: int) -> int:
        """Return the index past the closing quote, or the end of the piece if the string is still open."""
        if self._escaped:
            self._escaped = False
            at += 1
        quote = self._quote
        if len(quote) > 1:
            return self._scan_triple_quoted(piece, at)
        fresh, self._string_opened = self._string_opened, False
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
                self._last_character = quote
                self._empty_quote = quote if fresh and end == begin and quote in "\"'" else ""
                return at

    def _scan_triple_quoted(self, piece: str, at: int) -> int:
        """Return the index past the quotes that close a triple-quoted string, or the end of the piece.

        More than three quotes may close the string, since its text may end with a quote.
        """
        quote = self._quote[0]
        while at < len(piece):
            if piece[at] == quote:
                self._quote_run += 1
                at += 1
            elif self._quote_run >= len(self._quote):
                self._quote, self._last_character, self._quote_run = "", quote, 0
                return at
            else:
                self._quote_run = 0
                match = _IN_TRIPLE[quote].match(piece, at)
                assert match is not None
                at = match.end()
                if at < len(piece) and piece[at] == "\\":  # this escapes the first character of the next piece
                    self._escaped = True
                    return len(piece)
        return at

    def _scan_outside(self, piece: str, at: int) -> int:
        """Return the index past the next bracket, quote or comment opener, or the end of the piece."""
        if self._empty_quote:
            quote, self._empty_quote = self._empty_quote, ""
            if piece[at] == quote:
                self._quote = quote * 3
                return at + 1
        skipped = _skip_pattern().match(piece, at) if self.depth else None  # the value's own bracket must be counted
        match = _DELIMITERS.match(piece, skipped.end() if skipped else at)
        if match is None:
            self._remember_last(piece, at, len(piece))
            return len(piece)
        begin, end = match.span()
        char = piece[begin]
        if char in "[{]}":
            return self._count_brackets(char, begin, end)
        self._remember_last(piece, at, begin)
        if char == '"':
            self._quote, self._string_opened = char, self._last_character in _BEFORE_VALUE
            return begin + 1
        if self._last_character not in _BEFORE_VALUE:
            self._last_character = char
            return end
        if char in _OPENERS:
            self._quote, self._string_opened = _OPENERS[char], True
            return begin + 1
        return self._open_comment(piece, begin)

    def _count_brackets(self, char: str, begin: int, end: int) -> int:
        """Count a run of opening or of closing brackets.

        Return the index past the run or, if the run closes the value, past the value's last bracket.
        """
        self._last_character = char
        if char in "[{":
            self.depth += end - begin
            self.too_deep = self.too_deep or self.depth > MAX_DEPTH
            return end
        closed = min(end - begin, self.depth)
        self.depth -= closed
        self._closed = not self.depth
        return begin + closed

    def _open_comment(self, piece: str, at: int) -> int:
        """Return the index after the comments at `piece[at]`, or after the opener of a comment that is still open."""
        comments = _COMMENTS.match(piece, at)
        if comments:
            return comments.end()
        if piece[at] == "#":
            self._comment = "\n"
            return at + 1
        self._slash_pending = True
        return self._scan_after_slash(piece, at + 1) if at + 1 < len(piece) else at + 1

    def _scan_after_slash(self, piece: str, at: int) -> int:
        """Open a comment if a slash or a star follows the slash; return the index at which to continue."""
        self._slash_pending = False
        char = piece[at]
        if char in "/*":
            self._comment = "\n" if char == "/" else "*/"
            return at + 1
        self._last_character = "/"
        return at

    def _scan_comment(self, piece: str, at: int) -> int:
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

    def _remember_last(self, piece: str, start: int, end: int) -> None:
        """Remember the last character of `piece[start:end]` that is not white space."""
        while end > start:
            end -= 1
            if not piece[end].isspace():
                self._last_character = piece[end]
                return
