"""Read the arguments of a Python call incrementally, and convert them to the members of a JSON object.

Python literals and JSON literals may be mixed freely. Nothing is evaluated, so a name, an operator, a call or an
f-string is rejected.

The reader works on the tokens of `LiteralLexer`. It has a stack with a `_PythonBracket` for each open bracket, which
holds the finished values in the bracket as JSON. The closing bracket of the call empties the stack. `members` holds the
keyword arguments, and `positional` the positional arguments. `LiteralError` says where the unreadable text begins, and
whether that text is code, has bad quotes, or is too large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Literal, NamedTuple

from promptools.errors import clip
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.jsontext.text import FixLog, dump
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import unescape_name

# Patterns of names in Python calls as models write them, such as `book\_seat` with Markdown's escapes.


PROGRAM_LABELS: Final = ("python", "py", "python3")
"""Labels of a code fence around a program.

The program is read as calls only if the fence is the whole reply and contains nothing but calls.
"""
ESCAPE_PATTERN: Final = r"\\(?:[_.-]|\Z)"
"""The pattern of an escaped character in a name, or of its backslash alone at the end of the text."""
CONTINUED_LINE: Final = r"\\\r?\n"
"""The pattern of a backslash at the end of a line, by which the line continues on the next line."""
SPACE: Final = lazy_pattern(rf"(?:[\s\ufeff\u200b]|{CONTINUED_LINE})*+")
"""Matches white space between the parts of a call."""
_MAX_ESCAPES = "{0,16}+"


def may_continue_line(text: str, at: int) -> bool:
    """Return whether `text[at:]` is the beginning of a `CONTINUED_LINE` that the end of the text cuts short.

    O(1), because this is called before each part of a call.
    """
    return len(text) - at <= 2 and text[at:] in ("\\", "\\\r")


def name_pattern(first: str, rest: str, most: int) -> str:
    """Return the pattern of a name, which may contain escapes: one match of `first`, then up to `most` of `rest`."""
    more = f"{rest}{{0,{most}}}+"
    return rf"{first}{more}(?:{ESCAPE_PATTERN}{rest}{{0,32}}+){_MAX_ESCAPES}"


# Tokens of the literals that models write as arguments of Python calls, read from text that comes in pieces.
#
# A quote ends a string only if the argument, or the list, may go on after the quote. A quote that looks like an
# apostrophe or like the beginning of a quotation (`'sed -n '1,9p' f'`) is part of the string, which is then doubtful:
# the reader of the tokens decides whether another end is possible. Every token ends at the same place however the text
# is cut into pieces. No character of a string is looked at twice, except for the few after a quote.


LiteralKind = Literal["string", "number", "name", "key", "dict", "mark"]
TokenPosition = Literal["argument", "value", "item"]
"""The position of the next token: "argument" where a key may come, "value" after a key of the call, else "item"."""

_CLOSING = lazy_pattern(r"\s*+\)")
_KEYWORD = name_pattern(r"[^\W\d]", r"[\w.-]", 127)
_KEY = lazy_pattern(rf"({_KEYWORD})\s{{0,64}}+(?:\Z|[=:](?:\Z|(?!=)))")
_NAME = lazy_pattern(name_pattern(r"[^\W\d]", r"[\w.]", 127))
_NUMBER_TOKEN = lazy_pattern(r"[+-]?\.?\d(?:[eE][+-](?=\d|\Z)|[\w.]){0,600}+|[+-]?\.?\Z")
_PREFIX = lazy_pattern(r"[rRuU](?=['\"])")
_QUOTES: Final = {"'": "'", '"': '"', "“": "”", "‘": "’"}
_INSIDE: Final = {
    close: lazy_pattern(rf"[^\\{close}]*+(?:\\.[^\\{close}]*+)*+", re.DOTALL) for close in _QUOTES.values()
}

_GAP = r"\s{0,256}+"
_NEXT_KEY = rf",{_GAP}(?:\Z|\)|\*(?:\Z|\*)|{_KEYWORD}\s{{0,64}}+(?:\Z|:|=(?:\Z|(?!=))))"
_MORE = r"\#|[rRuU]?(?:\Z|['\"“‘])"
_AFTER: Final[dict[tuple[bool, bool], re.Pattern[str]]] = {
    # the keys: whether the string is the value of a key, and whether it is doubtful
    (True, False): lazy_pattern(rf"{_GAP}(?:\Z|\)|{_NEXT_KEY}|{_MORE})"),
    (True, True): lazy_pattern(rf"{_GAP}(?:\Z|\)[ \t]{{0,64}}+(?:\Z|[,\]);<`\r\n])|{_NEXT_KEY})"),
    (False, False): lazy_pattern(rf"{_GAP}(?:\Z|[,\])}}:]|{_MORE})"),
    (False, True): lazy_pattern(rf"{_GAP}(?:\Z|[,\]}}:]|\)[ \t]{{0,64}}+(?:\Z|[,\]);<`\r\n]))"),
}
_BRACKET = lazy_pattern(r"[)\]}]|(?:([^\W\d][\w.:/-]{0,127}+)[ \t]{0,8}+)?\(|[\[{]")
_QUOTATION = lazy_pattern(
    r"(?!(?:if|else|for|in|is|or|and|not)\b)\w|[/$~{^\\-]|\*\.|\./|<(?:[|｜/<]|[A-Za-z_]{3})|\[(?:/?[A-Z_]{4}|unused)|\]<\]"
)
"""Matches text that shows that the quote before it opens a quotation, and does not end the string.

The text is a word that is not an operator or keyword of Python, the beginning of a path or an option, or a marker.
"""
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
    """A token of a call's arguments. `text`: for a string, the text between its quotes; for a key, its name."""

    kind: LiteralKind
    text: str
    start: int = 0
    """The offset in the current text at which the token begins; for a string, the offset of its closing quote."""
    quote: str = ""
    """The quote that opened a string, or the sign after a key."""
    uncertain: bool = False
    """Whether quotes inside the string are not escaped, so that the end of the string is doubtful."""
    raw: bool = False
    adjacent: bool = False
    """Whether nothing separates a string from the string before it."""


class StringOverrun(Exception):
    """Raised if a string without its closing quote runs into the next call.

    `overrun`: how many characters of the string follow the bracket that closes the broken call; -1 if the string would
    contain the beginning of a call but not the end of this call.
    """

    def __init__(self, overrun: int) -> None:
        super().__init__(overrun)
        self.overrun = overrun


class LiteralLexer:
    """Splits text into tokens, in O(n). `is_tool` returns whether a name before a bracket is the name of a tool."""

    def __init__(self, is_tool: Callable[[str], bool]) -> None:
        self._is_tool = is_tool
        self.at = 0
        """The offset up to which the current text has been consumed."""
        self._comment = False
        self._quote = ""
        self._raw = False
        self._uncertain = False
        self._string_ended = False
        """Whether a string has ended, and nothing has come since."""
        self._is_adjacent = False
        self._body: list[str] = []
        self._searched_pieces = 0
        """How many pieces of the open string were searched for the beginning of the next call."""
        self._searched_size = 0
        """How many characters the searched pieces have together."""
        self._opened: list[str] = []
        """One entry for each bracket left open in the searched pieces.

        The entry is the bracket with the name before it, such as `f(`, or "" if no name precedes the bracket.
        """
        self._first_unmatched = -1
        """The offset of the first closing bracket that no bracket in the string opened; -1 if there is none."""

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
        number = _NUMBER_TOKEN.match(text, at)
        if number is not None:
            self.at = number.end()
            return LiteralToken("number", number[0], at)
        self.at = at + (2 if text.startswith("**", at) else 1)
        return LiteralToken("mark", text[at : self.at], at)

    def _open_string(
        self, text: str, at: int, *, final: bool, position: TokenPosition, raw: bool
    ) -> LiteralToken | NeedMore:
        """Consume the opening quote, which is one character or three."""
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
        """Raise `StringOverrun` if the next call begins inside the string, before a quote that did not end the string.

        A call begins at a tool's name and a bracket, but only after a closing bracket whose opening bracket is not in
        the string. Such a closing bracket shows that the string has ended, because quoted code closes only brackets
        that it opens.
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
        """Raise `StringOverrun` if a string that ends at `end` contains the beginning, but not the end, of a call.

        For a call to a tool, the error is always raised, as for the inner call in `[f(a="x, [f(a="y")]`. For a call to
        any other function, it is raised only if a closing bracket follows the string. In `f(a="g("x")`, this bracket
        closes `g(`, so the string would contain only the `g("x` of the code `g("x")`.
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
        # LFM2 puts quotes of the same kind into a string; vLLM 0.32's parser repairs such a string.
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


# The reader of the tokens.


MAX_BRACKET_DEPTH: Final = 100
"""The maximum depth of nested brackets in the arguments."""
MAX_NUMBER_LENGTH: Final = 512

UNCERTAIN_END: Final = "quotes inside a string are not escaped, and its end is not certain"
MARKDOWN_DETAIL: Final = "Markdown's escapes dropped"
_ALL_ESCAPED = lazy_pattern(r"(?:[^_\\]|\\.)*+", re.DOTALL)
"""Matches text in which every underscore has a backslash."""
_RUNS_INTO_CALL: Final = "a string without its closing quote runs into the next call"
_NEXT_CALL = lazy_pattern(r"\)[\s,;]{0,64}+([^\W\d][\w.-]{0,127}+)[ \t]{0,8}+\(")
_LITERALS: Final = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
}  # fmt: skip
_CLOSERS: Final = {"call": ")", "dict": ")", "(": ")", "[": "]", "{": "}"}
_JSON_NUMBER = lazy_pattern(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_NUMBER = lazy_pattern(
    r"([+-]?)(?:0[xX][\da-fA-F_]++|0[oO][0-7_]++|0[bB][01_]++|(\d[\d_]*+)?(\.[\d_]*+)?([eE][+-]?\d++)?)"
)

_MEMBER = lazy_pattern(r"[)\]}]|[(\[{]|,\s*+([^\W\d]\w*+)\s*+=(?!=)")

LiteralErrorKind = Literal["code", "quotes", "limit"]


class LiteralError(Exception):
    """Raised if the text cannot be read as arguments.

    `kind` is "code" for text that would have to be evaluated, "quotes" for quotes that are not escaped, and "limit" for
    text that exceeds a limit.
    """

    def __init__(self, reason: str, kind: LiteralErrorKind = "code", start: int = -1, overrun: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind: LiteralErrorKind = kind
        self.start = start
        """The offset at which the unreadable text begins; -1 stands for the end of the consumed text."""
        self.overrun = overrun
        """How many characters at the end of the consumed text belong to the next call; -1 if none do."""


@dataclass(slots=True)
class _PythonBracket:
    """Holds an open bracket, and the bracket's content so far."""

    kind: str
    items: list[str] = field(default_factory=list[str])
    """Finished content as JSON: members of an object, or values."""
    key: str | None = None
    """The key whose value comes next; `**` before a dictionary whose members are to be merged."""
    value: str | None = None
    """The value read since the last comma, as JSON; None if no value has been read, or if the value is a string."""
    string_pieces: list[str] | None = None
    """The pieces of the value read since the last comma, if this value is a string."""
    commas: int = 0
    has_keys: bool | None = None
    """Whether the braces contain keys, and so enclose a dictionary, not a set; None if this is not known yet."""

    @property
    def has_value(self) -> bool:
        """Whether a value has been read since the last comma."""
        return self.value is not None or self.string_pieces is not None

    def take_value(self) -> str:
        """Return the value read since the last comma, as JSON, and clear it."""
        value = dump("".join(self.string_pieces)) if self.string_pieces is not None else self.value
        assert value is not None
        self.value = self.string_pieces = None
        return value


class PythonArguments:
    """Reads the arguments of a call, up to its closing bracket. O(n) in characters for each level of brackets."""

    def __init__(
        self,
        parameters: Sequence[str] | None,
        string_parameters: frozenset[str] = frozenset(),
        *,
        is_tool: Callable[[str], bool],
        markdown_escaped: bool = False,
    ) -> None:
        self._parameters = parameters
        self._string_parameters = string_parameters
        self._is_tool = is_tool
        self._markdown_escaped = markdown_escaped
        """Whether the call's name or a key has Markdown's escapes, so that the strings may have such escapes, too."""
        self._lexer = LiteralLexer(is_tool)
        self._stack = [_PythonBracket("call")]
        self._uncertain_quote = ""
        self._key_sign = ""
        """The sign after the last key: `=` or `:`."""
        self._last: LiteralToken | None = None
        self.fix_log = FixLog()
        self.members: list[str] = []
        """Each finished argument, as a member of a JSON object."""
        self.keys: list[str] = []
        self.positional: list[str] = []
        """Arguments without a key, as JSON."""
        self.at = 0

    def feed(self, text: str, at: int, *, final: bool = False) -> bool:
        """Consume `text` from `at` on; return whether the call is closed.

        Sets `self.at` to the offset up to which the text has been consumed. Raises `LiteralError` for unreadable text.
        """
        self.at = at
        while self._stack:
            try:
                token = self._lexer.next(text, self.at, final=final, position=self._position())
            except StringOverrun as crossed:
                self.at = self._lexer.at
                raise LiteralError(_RUNS_INTO_CALL, "quotes", overrun=crossed.overrun) from None
            self.at = self._lexer.at
            if token is NEED_MORE:
                return False
            try:
                self._consume(token)
            except LiteralError as refused:
                refused.start = -1 if token.kind == "string" else token.start
                raise
            self._last = token if self._stack else self._last
        return True

    @property
    def has_arguments(self) -> bool:
        """Whether there is an argument, or the beginning of one."""
        root = self._stack[0] if self._stack else None
        return bool(self.members or self.positional or (root and (root.key or root.has_value))) or self._lexer.in_string

    @property
    def expects_value(self) -> bool:
        """Whether a key with `=` has been read, and its value is missing or may continue."""
        return bool(self._stack) and self._stack[0].key is not None and self._key_sign == "="

    @property
    def last_quote(self) -> str:
        """The quote of the string with which the arguments end; empty if they do not end in a string."""
        return self._last.quote[:1] if self._last is not None and self._last.kind == "string" else ""

    def close_missing_bracket(self) -> bool:
        """Close a call that lacks only its closing bracket; return whether that was possible."""
        certain = self._last is not None and (self._last.kind == "string" or self._last.text in ("]", "}", ")"))
        if len(self._stack) != 1 or self._lexer.in_string or not certain or self._uncertain_quote:
            return False
        self._close(self._stack[-1])
        return True

    def _position(self) -> TokenPosition:
        frame = self._stack[-1]
        if frame.kind == "call" and frame.key is not None:
            return "value"
        keyed = frame.kind in ("call", "dict") and frame.key is None and not frame.has_value
        return "argument" if keyed else "item"

    # --- tokens ----------------------------------------------------------------------------------------------------

    def _consume(self, token: LiteralToken) -> None:
        frame = self._stack[-1]
        if frame.has_value:
            self._after_value(frame, token)
        elif token.kind == "key":
            self._on_key(frame, token)
        elif token.kind == "mark":
            self._on_bracket(frame, token.text)
        elif token.kind == "dict":
            self._open("dict")
        elif token.kind == "string":
            frame.string_pieces = [self._string_text(token)]
        elif token.kind == "number":
            frame.value = self._number_json(token.text, frame)
        elif token.text in _LITERALS:
            frame.value = _LITERALS[token.text]
        else:
            raise LiteralError(f"{clip(token.text, 40)!r} is not a literal")

    def _after_value(self, frame: _PythonBracket, token: LiteralToken) -> None:
        if token.kind == "string" and frame.string_pieces is not None:
            if any(self._is_tool(match[1]) for match in _NEXT_CALL.finditer(frame.string_pieces[-1])):
                raise LiteralError(
                    _RUNS_INTO_CALL, "quotes"
                )  # Python joins strings side by side; here a quote is missing
            if token.adjacent and self._last is not None and token.quote == self._last.quote:
                raise LiteralError("two quotes are in a string, or two strings side by side", "quotes")
            frame.string_pieces.append(self._string_text(token))
        elif token.kind != "mark":
            raise LiteralError(f"{clip(token.text, 40)!r} follows a value")
        elif token.text == ",":
            self._store(frame)
            frame.commas += 1
        elif token.text == _CLOSERS[frame.kind]:
            self._close(frame)
        elif token.text == ":" and frame.kind == "{" and frame.key is None and frame.has_keys is not False:
            frame.key = self._json_key(frame)
        else:
            raise LiteralError(f"{clip(token.text, 40)!r} follows a value")

    def _on_bracket(self, frame: _PythonBracket, mark: str) -> None:
        """Consume a bracket, or the stars before a dictionary."""
        if mark in ("[", "{", "("):
            self._open(mark)
        elif mark == "**" and frame.key is None and frame.kind != "[":
            frame.key = "**"
        elif mark == _CLOSERS[frame.kind] and frame.key is None:
            self._close(frame)
        else:
            raise LiteralError(f"{mark!r} was found where a value was expected")

    def _on_key(self, frame: _PythonBracket, token: LiteralToken) -> None:
        if token.text in _LITERALS:
            raise LiteralError(f"{token.text!r} is not a parameter")
        if frame.kind == "call" and self._parameters is not None and unescape_name(token.text) in self._parameters:
            self._uncertain_quote = self._uncertain_quote if unescape_name(token.text) in self.keys else ""
        if token.quote == ":":
            self.fix_log.add("':' for '='")
        self._key_sign = token.quote
        frame.key = unescape_name(token.text)
        if frame.key != token.text:
            self._markdown_escaped = True
            self.fix_log.add(MARKDOWN_DETAIL)

    def _string_text(self, token: LiteralToken) -> str:
        if self._uncertain_quote and token.quote == self._uncertain_quote:
            raise LiteralError(UNCERTAIN_END, "quotes")
        if token.uncertain:
            if self._hides_parameter(token.text):
                raise LiteralError("a string without its closing quote runs into the next argument", "quotes")
            self._uncertain_quote = token.quote
            self.fix_log.add(UNESCAPED_QUOTES)
        if self._markdown_escaped and not token.raw and _ALL_ESCAPED.fullmatch(token.text) and "\\_" in token.text:
            self.fix_log.add(MARKDOWN_DETAIL)
            token = token._replace(text=token.text.replace("\\_", "_"))
        return string_value(token, self.fix_log)

    def _hides_parameter(self, text: str) -> bool:
        """Return whether a string contains, outside of brackets, the name of a parameter that is still missing."""
        depth = 0
        for match in _MEMBER.finditer(text):
            if match[1] is None:
                depth = max(0, depth + (1 if match[0] in "([{" else -1))
            elif (
                not depth
                and self._parameters is not None
                and match[1] in self._parameters
                and match[1] not in self.keys
            ):
                return True
        return False

    def _number_json(self, text: str, frame: _PythonBracket) -> str:
        """Return a Python number as JSON.

        If JSON would write the number differently, and the number's parameter takes only strings, return a string with
        the number as the model wrote it.
        """
        match = _NUMBER.fullmatch(text)
        digits = text.replace("_", "").lstrip("+")
        if match is None or not re.search(r"\d", text):
            raise LiteralError(f"{clip(text, 40)!r} is not a number")
        real = match[3] is not None or match[4] is not None
        if len(text) > MAX_NUMBER_LENGTH or (real and not isfinite(float(digits))):
            raise LiteralError("a number is too long or out of range", "limit")
        if _JSON_NUMBER.fullmatch(text):
            return text
        if frame.kind == "call" and frame.key in self._string_parameters:
            self.fix_log.add("number kept as it is spelled", "coerce")
            return dump(text)
        if real:
            return repr(float(digits))
        if match[2] is not None and digits.lstrip("-").startswith("0"):
            self.fix_log.add("leading zeros")
        return str(int(digits, 0 if match[2] is None else 10))

    # --- brackets --------------------------------------------------------------------------------------------------

    def _open(self, kind: str) -> None:
        if len(self._stack) > MAX_BRACKET_DEPTH:
            raise LiteralError(f"more than {MAX_BRACKET_DEPTH} levels of brackets", "limit")
        self._stack.append(_PythonBracket(kind))

    def _store(self, frame: _PythonBracket) -> None:
        """Add the value read since the last comma to the content of the bracket."""
        value, key, frame.key = frame.take_value(), frame.key, None
        if key == "**":
            self._merge(frame, value)
        elif frame.kind == "call":
            self._argument(key, value)
        elif frame.kind == "dict":
            if key is None:
                raise LiteralError("an argument of dict() has no key")
            frame.items.append(f"{dump(key)}: {value}")
        elif frame.kind == "{":
            if frame.has_keys is not None and frame.has_keys != (key is not None):
                raise LiteralError("braces hold keys and values without a key")
            frame.has_keys = key is not None
            frame.items.append(f"{key}: {value}" if key is not None else value)
        else:
            frame.items.append(value)

    def _argument(self, key: str | None, value: str) -> None:
        if key is None:
            if self.members:
                raise LiteralError("an argument without a key follows one with a key")
            most = max(len(self._parameters), 1) if self._parameters is not None else int(value[0] == "{")
            if len(self.positional) >= most:
                raise LiteralError("an argument has no key")
            self.positional.append(value)
            return
        self.keys.append(key)
        self.members.append(f"{dump(key)}: {value}")

    def _merge(self, frame: _PythonBracket, value: str) -> None:
        """Add the members of a dictionary after `**` to the call's arguments, or to the enclosing dictionary."""
        if value[0] != "{":
            raise LiteralError("'**' precedes something that is not a dictionary")
        members = value[1:-1].strip()
        if not members:
            return
        if frame.kind == "call":
            self.keys += json.loads(value)
            self.members.append(members)
        else:
            frame.has_keys = True
            frame.items.append(members)

    def _close(self, frame: _PythonBracket) -> None:
        """Make a value from the content of a bracket, and add it to the enclosing bracket."""
        alone = frame.kind == "(" and not frame.commas
        pieces = frame.string_pieces if alone else None
        if frame.has_value:
            self._store(frame)
        self._stack.pop()
        if not self._stack:
            return
        outer = self._stack[-1]
        inner = ", ".join(frame.items)
        if frame.kind == "dict" or (frame.kind == "{" and frame.has_keys is not False):
            outer.value = f"{{{inner}}}"
        elif alone and frame.items:
            outer.value, outer.string_pieces = (inner, None) if pieces is None else (None, pieces)
        else:
            if frame.kind != "[":
                self.fix_log.add("tuple or set taken as a list")
            outer.value = f"[{inner}]"

    def _json_key(self, frame: _PythonBracket) -> str:
        """Return the key of a dictionary as JSON: a string, or a number converted to a string."""
        named = frame.string_pieces is not None
        key = frame.take_value()
        if named:
            return key
        if not _JSON_NUMBER.fullmatch(key):
            raise LiteralError("a key of a dictionary is not a string")
        self.fix_log.add("number as a key")
        return dump(key)
