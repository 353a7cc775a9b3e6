"""The arguments of a Python call, read as they come: literals in, the members of a JSON object out.

Python's literals and JSON's are accepted in any mixture. Nothing is evaluated, and what would have to be is refused: a
name, an operator, a call, an f-string.

The reader is a stack of `_PythonBracket`, one for each open bracket, over the tokens of `LiteralLexer`; each frame
writes its finished values as JSON. The closing bracket of the call empties the stack. `members` and `positional` hold
the arguments with and without a key. `LiteralError` carries where the unreadable text begins, and whether it is code,
bad quotes, or too large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Literal

from promptools.dialects.readers.literals.literal_lexer import (
    LiteralLexer,
    LiteralToken,
    StringOverrun,
    TokenPosition,
    string_value,
)
from promptools.errors import clip
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.jsontext.text import FixLog, dump
from promptools.parsing.parts import NEED_MORE
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import unescape_name

MAX_BRACKET_DEPTH: Final = 100
"""Deepest nesting of brackets inside the arguments."""
MAX_NUMBER_LENGTH: Final = 512

UNCERTAIN_END: Final = "quotes inside a string are not escaped, and its end is not certain"
MARKDOWN_DETAIL: Final = "Markdown's escapes dropped"
_ALL_ESCAPED = lazy_pattern(r"(?:[^_\\]|\\.)*+", re.DOTALL)
"""Text in which every underscore has a backslash."""
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
    """Raised where the text cannot be arguments; `kind`: code to evaluate, quotes that are not escaped, or a limit."""

    def __init__(self, reason: str, kind: LiteralErrorKind = "code", start: int = -1, overrun: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind: LiteralErrorKind = kind
        self.start = start
        """Where the unreadable text begins; -1 for the end of what was taken."""
        self.overrun = overrun
        """Characters at the end of what was taken that belong to the next call; -1 for none."""


@dataclass(slots=True)
class _PythonBracket:
    """An open bracket, and what it holds so far."""

    kind: str
    items: list[str] = field(default_factory=list[str])
    """Finished content as JSON: members of an object, or values."""
    key: str | None = None
    """A key whose value comes next; `**` for an object whose members are merged."""
    value: str | None = None
    """JSON of the value that was read last, until a comma."""
    string_pieces: list[str] | None = None
    """The pieces of that value, if it is a string."""
    commas: int = 0
    has_keys: bool | None = None
    """Braces: whether they hold keys; None if unknown yet."""

    @property
    def has_value(self) -> bool:
        """Whether a value has been read since the last comma."""
        return self.value is not None or self.string_pieces is not None

    def take_value(self) -> str:
        """Return that value as JSON, and clear it."""
        value = dump("".join(self.string_pieces)) if self.string_pieces is not None else self.value
        assert value is not None
        self.value = self.string_pieces = None
        return value


class PythonArguments:
    """Reads from after a call's opening bracket to its closing one. O(n) in characters, for each level of brackets."""

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
        """Its name or a key has Markdown's escapes, so its strings may have them too."""
        self._lexer = LiteralLexer(is_tool)
        self._stack = [_PythonBracket("call")]
        self._uncertain_quote = ""
        self._key_sign = ""
        """The sign after the last key."""
        self._last: LiteralToken | None = None
        self.fix_log = FixLog()
        self.members: list[str] = []
        """Each finished argument, as a member of a JSON object."""
        self.keys: list[str] = []
        self.positional: list[str] = []
        """Arguments without a key, as JSON."""
        self.at = 0

    def feed(self, text: str, at: int, *, final: bool = False) -> bool:
        """Consume `text[at:]` up to `self.at`; return whether the call is closed. Raise `LiteralError`."""
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
        """Whether what comes next is a value, or more of one, of a key with `=`."""
        return bool(self._stack) and self._stack[0].key is not None and self._key_sign == "="

    @property
    def last_quote(self) -> str:
        """The quote of the string that the arguments end in; empty if they do not end in one."""
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
            raise LiteralError(f"{clip(token.text, 40)!r} is no literal")

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
            raise LiteralError(f"{mark!r} is in the place of a value")

    def _on_key(self, frame: _PythonBracket, token: LiteralToken) -> None:
        if token.text in _LITERALS:
            raise LiteralError(f"{token.text!r} is no parameter")
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
        """Return whether a string holds, outside of brackets, a parameter that is still missing."""
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
        """Return a number as JSON, or as a string if its parameter takes only strings and JSON spells it otherwise."""
        match = _NUMBER.fullmatch(text)
        digits = text.replace("_", "").lstrip("+")
        if match is None or not re.search(r"\d", text):
            raise LiteralError(f"{clip(text, 40)!r} is no number")
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
        """Add the value that was read to the finished content."""
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
        """Merge the members of a dictionary."""
        if value[0] != "{":
            raise LiteralError("'**' precedes something that is no dictionary")
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
        """Make a value of the content of a bracket, and add it to the bracket around."""
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
        """Return the key of a dictionary as JSON: a string, or a number converted to one."""
        named = frame.string_pieces is not None
        key = frame.take_value()
        if named:
            return key
        if not _JSON_NUMBER.fullmatch(key):
            raise LiteralError("a key of a dictionary is no string")
        self.fix_log.add("number as a key")
        return dump(key)
