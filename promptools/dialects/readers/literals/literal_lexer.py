r"""Tokens of the literals that models write as arguments of Python calls, as their text comes in pieces.

A quote ends a string only if its argument or its list may go on after it. A quote that looks like an apostrophe or like
the beginning of a quotation (`'sed -n '1,9p' f'`) is part of the string, which is then doubtful: the reader of the
tokens decides whether another end is possible. Every token ends at the same place however its text is cut, and no
character of a string is looked at twice, except for the few after a quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from promptools.dialects.readers.literals.python_names import SPACE, may_continue_line, name_pattern
from promptools.jsontext.text import FixLog
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

LiteralKind = Literal["string", "number", "name", "key", "dict", "mark"]
TokenPosition = Literal["argument", "value", "item"]
"""Position of the next token: where a key may come, after a key, or anywhere else."""

_CLOSING = lazy_pattern(r"\s*+\)")
_KEYWORD = name_pattern(r"[^\W\d]", r"[\w.-]", 127)
_KEY = lazy_pattern(rf"({_KEYWORD})\s{{0,64}}+(?:\Z|[=:](?:\Z|(?!=)))")
_NAME = lazy_pattern(name_pattern(r"[^\W\d]", r"[\w.]", 127))
_NUMBER = lazy_pattern(r"[+-]?\.?\d(?:[eE][+-](?=\d|\Z)|[\w.]){0,600}+|[+-]?\.?\Z")
_PREFIX = lazy_pattern(r"[rRuU](?=['\"])")
_QUOTES: Final = {"'": "'", '"': '"', "“": "”", "‘": "’"}
_INSIDE: Final = {
    close: lazy_pattern(rf"[^\\{close}]*+(?:\\.[^\\{close}]*+)*+", re.DOTALL) for close in _QUOTES.values()
}

_GAP = r"\s{0,256}+"
_NEXT_KEY = rf",{_GAP}(?:\Z|\)|\*(?:\Z|\*)|{_KEYWORD}\s{{0,64}}+(?:\Z|:|=(?:\Z|(?!=))))"
_MORE = r"\#|[rRuU]?(?:\Z|['\"“‘])"
_AFTER: Final[dict[tuple[bool, bool], re.Pattern[str]]] = {
    # after a key's value that is certain; that is doubtful; then the same for any other string
    (True, False): lazy_pattern(rf"{_GAP}(?:\Z|\)|{_NEXT_KEY}|{_MORE})"),
    (True, True): lazy_pattern(rf"{_GAP}(?:\Z|\)[ \t]{{0,64}}+(?:\Z|[,\]);<`\r\n])|{_NEXT_KEY})"),
    (False, False): lazy_pattern(rf"{_GAP}(?:\Z|[,\])}}:]|{_MORE})"),
    (False, True): lazy_pattern(rf"{_GAP}(?:\Z|[,\]}}:]|\)[ \t]{{0,64}}+(?:\Z|[,\]);<`\r\n]))"),
}
_BRACKET = lazy_pattern(r"[)\]}]|(?:([^\W\d][\w.:/-]{0,127}+)[ \t]{0,8}+)?\(|[\[{]")
_QUOTATION = lazy_pattern(
    r"(?!(?:if|else|for|in|is|or|and|not)\b)\w|[/$~{^\\-]|\*\.|\./|<(?:[|｜/<]|[A-Za-z_]{3})|\[(?:/?[A-Z_]{4}|unused)|\]<\]"
)
"""What follows the opening quote of a quotation, but never the end of a string: no operator, no keyword, a marker."""
_ESCAPE = lazy_pattern(
    r"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|x(?P<x>[0-9a-fA-F]{2})"
    r"|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<o>[0-7]{1,3})|(?P<one>.))",
    re.DOTALL,
)
_ONE: Final = {
    "\\": "\\", "'": "'", '"': '"', "\n": "", "/": "/", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v",
}  # fmt: skip
_PATH = lazy_pattern(r"[A-Za-z]:(?:\\[^\\/:*?\"<>|\n]++)++\\?+")
_NO_ESCAPE = lazy_pattern(r"\\(?![abfnrtvx0-7])(?!u[0-9a-fA-F]{4})\w")


class LiteralToken(NamedTuple):
    """One token. The text of a string is what is between its quotes; that of a key or a name is the name itself."""

    kind: LiteralKind
    text: str
    start: int = 0
    """Where it begins in the current text, unless it is a string."""
    quote: str = ""
    """What opened a string, or the sign after a key."""
    uncertain: bool = False
    """Quotes inside the string are not escaped."""
    raw: bool = False
    adjacent: bool = False
    """Nothing is between a string and the one before it."""


class StringOverrun(Exception):
    """Raised where a string without its closing quote runs into the next call, `overrun` characters earlier.

    `overrun` is -1 where the string holds the beginning of that call, and what looks like its end is the end of both.
    """

    def __init__(self, overrun: int) -> None:
        super().__init__(overrun)
        self.overrun = overrun


class LiteralLexer:
    """Splits text into tokens. O(n) in characters. `is_tool`: whether a name before a bracket is a tool's."""

    def __init__(self, is_tool: Callable[[str], bool]) -> None:
        self._is_tool = is_tool
        self.at = 0
        """How far the current text has been taken."""
        self._comment = False
        self._quote = ""
        self._raw = False
        self._uncertain = False
        self._string_ended = False
        """A string ended, and nothing has come since."""
        self._is_adjacent = False
        self._body: list[str] = []
        self._searched_pieces = 0
        """Pieces of the body that were searched for the next call."""
        self._searched_size = 0
        """Characters in them."""
        self._opened: list[str] = []
        """Brackets that are open at their end, each with the name before it; without one, the empty string."""
        self._first_unmatched = -1
        """Offset of the first closing bracket that closes one before the string."""

    @property
    def in_string(self) -> bool:
        """Whether a string is open."""
        return bool(self._quote)

    def next(self, text: str, at: int, *, final: bool, position: TokenPosition) -> LiteralToken | NeedMore:
        """Return the next token from `text[at]` on."""
        if self._quote:
            return self._read_string(text, at, final=final, position=position)
        begin = at
        at = self.at = self._skip_space(text, at)
        self._string_ended = self._string_ended and at == begin
        if at == len(text) or (not final and may_continue_line(text, at)):
            return NEED_MORE
        prefix = _PREFIX.match(text, at)
        if text[at] in _QUOTES or prefix is not None:
            return self._open_string(
                text, prefix.end() if prefix else at, final=final, position=position, raw=text[at] in "rR"
            )
        token = self._read_plain(text, at, position)
        self._string_ended = False
        end = self.at
        if end == len(text) and not final and (token.kind != "mark" or token.text == "*"):
            self.at = at
            return NEED_MORE
        return token

    def _skip_space(self, text: str, at: int) -> int:
        """Skip white space and comments."""
        while True:
            if self._comment:
                end = text.find("\n", at)
                if end < 0:
                    return len(text)
                self._comment, at = False, end
            space = SPACE.match(text, at)
            assert space is not None
            at = space.end()
            if not text.startswith("#", at):
                return at
            self._comment = True

    def _read_plain(self, text: str, at: int, position: TokenPosition) -> LiteralToken:
        """Consume a token that is not a string."""
        if position == "argument":
            match = _KEY.match(text, at)
            if match is not None and (match.end() == len(text) or text[match.end() - 1] in "=:"):
                self.at = match.end()
                if text[self.at - 1] in "=:":
                    return LiteralToken("key", match[1], at, text[self.at - 1])
        name = _NAME.match(text, at)
        if name is not None:
            self.at = max(self.at, name.end())
            if name[0] == "dict" and text.startswith("(", name.end()):
                self.at = name.end() + 1
                return LiteralToken("dict", "dict(", at)
            return LiteralToken("name", name[0], at)
        number = _NUMBER.match(text, at)
        if number is not None:
            self.at = number.end()
            return LiteralToken("number", number[0], at)
        self.at = at + (2 if text.startswith("**", at) else 1)
        return LiteralToken("mark", text[at : self.at], at)

    def _open_string(
        self, text: str, at: int, *, final: bool, position: TokenPosition, raw: bool
    ) -> LiteralToken | NeedMore:
        """Consume the opening quote, one character or three."""
        quote = text[at]
        size = 1
        if quote in "'\"":
            if len(text) - at < 3 and text[at:] in (quote, quote * 2) and not final:
                return NEED_MORE
            size = 3 if text.startswith(quote * 3, at) else 1
        self._quote, self._raw, self._uncertain, self._body = quote * size, raw, False, []
        self._is_adjacent, self._string_ended = self._string_ended, False
        self._searched_pieces = self._searched_size = 0
        self._opened, self._first_unmatched = [], -1
        self.at = at + size
        return self._read_string(text, self.at, final=final, position=position)

    def _read_string(self, text: str, at: int, *, final: bool, position: TokenPosition) -> LiteralToken | NeedMore:
        """Consume more of a string, up to the quote that ends it."""
        close = _QUOTES[self._quote[0]]
        size = len(self._quote)
        while True:
            inside = _INSIDE[close].match(text, at)
            assert inside is not None
            end = self.at = inside.end()
            if inside[0]:
                self._body.append(inside[0])
            if end == len(text) or text[end] != close:  # a backslash at the very end waits for what it escapes
                return NEED_MORE
            ends = (
                self._closes_triple(text, end, final)
                if size == 3
                else self._closes_string(text, end, final, position == "value")
            )
            if ends is NEED_MORE:
                return NEED_MORE
            if ends:
                if self._uncertain:
                    self._check_end(text, end)
                self.at = end + size
                body = "".join(self._body)
                token = LiteralToken("string", body, end, self._quote, self._uncertain, self._raw, self._is_adjacent)
                self._quote, self._string_ended = "", True
                return token
            if size == 1:
                self._uncertain = True
                self._look_for_call()
            self._body.append(close)
            at = self.at = end + 1

    def _look_for_call(self) -> None:
        """Raise `StringOverrun` if the next call begins before the quote that did not end the string.

        It begins where a tool's name comes before a bracket after more brackets were closed than opened: quoted code
        closes what it opens.
        """
        text = "".join(self._body[self._searched_pieces :])
        for match in _BRACKET.finditer(text):
            if self._first_unmatched >= 0 and match[1] and self._is_tool(match[1]):
                raise StringOverrun(self._searched_size + len(text) - self._first_unmatched - 1)
            if match[0][-1] in "([{":
                self._opened.append(match[0] if match[1] else "")
            elif self._opened:
                self._opened.pop()
            elif self._first_unmatched < 0:
                self._first_unmatched = self._searched_size + match.start()
        self._searched_pieces = len(self._body)
        self._searched_size += len(text)

    def _check_end(self, text: str, end: int) -> None:
        """Raise `StringOverrun` if the string would end inside a call that it opened: `[f(a="x, [f(a="y")]`.

        The bracket after it closes that call. In code of any kind, the string would be half of it: `f(a="g("x")`.
        """
        self._look_for_call()
        closes = _CLOSING.match(text, end + 1) is not None
        for opened in self._opened:
            name = opened[:-1].rstrip()
            if name and (self._is_tool(name) or (closes and len(name) == len(opened) - 1)):
                raise StringOverrun(-1)

    def _closes_triple(self, text: str, end: int, final: bool) -> bool | NeedMore:
        if text.startswith(self._quote, end):
            return True
        return NEED_MORE if len(text) - end < 3 and self._quote.startswith(text[end:]) and not final else False

    def _closes_string(self, text: str, end: int, final: bool, keyed: bool) -> bool | NeedMore:
        """Return whether the quote at `end` ends the string."""
        after = _AFTER[keyed, self._uncertain].match(text, end + 1)
        if after is not None:
            return True if after.end() < len(text) or final else NEED_MORE
        if self._uncertain:
            return False
        if len(text) - end < 8 and not final:
            return NEED_MORE
        before = self._body[-1][-1] if self._body else ""
        opens = not before or before in " \t\n=(:" or before.isalnum()
        return not (opens and _QUOTATION.match(text, end + 1))


def string_value(token: LiteralToken, fix_log: FixLog) -> str:
    """Decode the text between the quotes of a string. O(n)."""
    body = token.text
    if len(token.quote) == 1 and "\n" in body and "\n" in _ESCAPE.sub("", body):
        fix_log.add("line break in a string")
    if token.quote in ("“", "‘"):
        fix_log.add("smart quotes")
    if token.raw or "\\" not in body:
        return body
    if _PATH.fullmatch(body) and _NO_ESCAPE.search(body):
        fix_log.add("backslashes of a Windows path kept")
        return body

    def plain(match: re.Match[str]) -> str:
        if match["pair"]:
            high, low = match["pair"][1:5], match["pair"][7:]
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        code = match["x"] or match["u"] or match["U"]
        if code:
            return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else match[0]
        if match["o"]:
            return chr(int(match["o"], 8))
        if match["one"] == "/":
            fix_log.add("needless escape dropped")
        return _ONE.get(match["one"], match[0])

    return _ESCAPE.sub(plain, body)
