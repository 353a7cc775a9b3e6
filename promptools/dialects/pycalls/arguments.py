"""The arguments of a Python call, read as they come: literals in, the members of a JSON object out.

Python's literals and JSON's are accepted in any mixture. Nothing is evaluated, and what would have to be is refused: a
name, an operator, a call, an f-string.

The reader is a stack of `_Frame`, one for each open bracket, over the tokens of `Lexer`; each frame writes its finished
values as JSON. The closing bracket of the call empties the stack. `members` and `given` hold the arguments with and
without a key. `Refused` carries where the unreadable text begins, and whether it is code, bad quotes, or too large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Literal

from promptools.dialects.pycalls.names import plain
from promptools.dialects.pycalls.tokens import Crossed, Lexer, Slot, Token, words_of
from promptools.dialects.settle import dump
from promptools.errors import clip
from promptools.parsing.guess import UNESCAPED
from promptools.parsing.strings import Liberties

DEEPEST: Final = 100
"""Deepest nesting of brackets inside the arguments."""
LONGEST_NUMBER: Final = 512

UNSURE: Final = "quotes inside a string are not escaped, and its end is not certain"
MARKDOWN: Final = "Markdown's escapes dropped"
_EVERY = re.compile(r"(?:[^_\\]|\\.)*+", re.DOTALL)
"""Text in which every underscore has a backslash."""
_CROSSED: Final = "a string without its closing quote runs into the next call"
_NEXT_CALL = re.compile(r"\)[\s,;]{0,64}+([^\W\d][\w.-]{0,127}+)[ \t]{0,8}+\(")
_LITERALS: Final = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
}  # fmt: skip
_CLOSERS: Final = {"call": ")", "dict": ")", "(": ")", "[": "]", "{": "}"}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_NUMBER = re.compile(
    r"([+-]?)(?:0[xX][\da-fA-F_]++|0[oO][0-7_]++|0[bB][01_]++|(\d[\d_]*+)?(\.[\d_]*+)?([eE][+-]?\d++)?)"
)

_MEMBER = re.compile(r"[)\]}]|[(\[{]|,\s*+([^\W\d]\w*+)\s*+=(?!=)")

Why = Literal["code", "quotes", "limit"]


class Refused(Exception):
    """Raised where the text cannot be arguments; `kind`: code to evaluate, quotes that are not escaped, or a limit."""

    def __init__(self, reason: str, kind: Why = "code", start: int = -1, back: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind: Why = kind
        self.start = start
        """Where the unreadable text begins; -1 for the end of what was taken."""
        self.back = back
        """Characters at the end of what was taken that belong to the next call; -1 for none."""


@dataclass(slots=True)
class _Frame:
    """An open bracket, and what it holds so far."""

    kind: str
    items: list[str] = field(default_factory=list[str])
    """Finished content as JSON: members of an object, or values."""
    key: str | None = None
    """A key whose value comes next; `**` for an object whose members are merged."""
    value: str | None = None
    """JSON of the value that was read last, until a comma."""
    words: list[str] | None = None
    """The pieces of that value, if it is a string."""
    commas: int = 0
    keyed: bool | None = None
    """Braces: whether they hold keys; None if unknown yet."""

    @property
    def filled(self) -> bool:
        """Whether a value has been read since the last comma."""
        return self.value is not None or self.words is not None

    def take(self) -> str:
        """Return that value as JSON, and clear it."""
        value = dump("".join(self.words)) if self.words is not None else self.value
        assert value is not None
        self.value = self.words = None
        return value


class Arguments:
    """Reads from after a call's opening bracket to its closing one. O(n) in characters, for each level of brackets."""

    def __init__(
        self,
        order: Sequence[str] | None,
        strings: frozenset[str] = frozenset(),
        *,
        calls: Callable[[str], bool],
        escaped: bool = False,
    ) -> None:
        self._order = order
        self._strings = strings
        self._calls = calls
        self._escaped = escaped
        """Its name or a key has Markdown's escapes, so its strings may have them too."""
        self._lexer = Lexer(calls)
        self._stack = [_Frame("call")]
        self._doubt = ""
        self._given_by = ""
        """The sign after the last key."""
        self._last: Token | None = None
        self.liberties = Liberties()
        self.members: list[str] = []
        """Each finished argument, as a member of a JSON object."""
        self.keys: list[str] = []
        self.given: list[str] = []
        """Arguments without a key, as JSON."""
        self.at = 0

    def feed(self, text: str, at: int, *, final: bool = False) -> bool:
        """Consume `text[at:]` up to `self.at`; return whether the call's closing bracket has come. Raise `Refused`."""
        self.at = at
        while self._stack:
            try:
                token = self._lexer.next(text, self.at, final=final, slot=self._slot())
            except Crossed as crossed:
                self.at = self._lexer.at
                raise Refused(_CROSSED, "quotes", back=crossed.back) from None
            self.at = self._lexer.at
            if token is None:
                return False
            try:
                self._take(token)
            except Refused as refused:
                refused.start = -1 if token.kind == "string" else token.start
                raise
            self._last = token if self._stack else self._last
        return True

    @property
    def begun(self) -> bool:
        """Whether there is an argument, or the beginning of one."""
        root = self._stack[0] if self._stack else None
        return bool(self.members or self.given or (root and (root.key or root.filled))) or self._lexer.in_string

    @property
    def gives_value(self) -> bool:
        """Whether what comes next is a value, or more of one, of a key with `=`."""
        return bool(self._stack) and self._stack[0].key is not None and self._given_by == "="

    @property
    def last_quote(self) -> str:
        """The quote of the string that the arguments end in; empty if they do not end in one."""
        return self._last.quote[:1] if self._last is not None and self._last.kind == "string" else ""

    def complete(self) -> bool:
        """Close a call that lacks only its closing bracket; return whether that was possible."""
        certain = self._last is not None and (self._last.kind == "string" or self._last.text in ("]", "}", ")"))
        if len(self._stack) != 1 or self._lexer.in_string or not certain or self._doubt:
            return False
        self._close(self._stack[-1])
        return True

    def _slot(self) -> Slot:
        frame = self._stack[-1]
        if frame.kind == "call" and frame.key is not None:
            return "value"
        keyed = frame.kind in ("call", "dict") and frame.key is None and not frame.filled
        return "argument" if keyed else "item"

    # --- tokens ----------------------------------------------------------------------------------------------------

    def _take(self, token: Token) -> None:
        frame = self._stack[-1]
        if frame.filled:
            self._behind_value(frame, token)
        elif token.kind == "key":
            self._key(frame, token)
        elif token.kind == "mark":
            self._mark(frame, token.text)
        elif token.kind == "dict":
            self._enter("dict")
        elif token.kind == "string":
            frame.words = [self._words(token)]
        elif token.kind == "number":
            frame.value = self._number(token.text, frame)
        elif token.text in _LITERALS:
            frame.value = _LITERALS[token.text]
        else:
            raise Refused(f"{clip(token.text, 40)!r} is no literal")

    def _behind_value(self, frame: _Frame, token: Token) -> None:
        if token.kind == "string" and frame.words is not None:
            if any(self._calls(match[1]) for match in _NEXT_CALL.finditer(frame.words[-1])):
                raise Refused(_CROSSED, "quotes")  # Python joins strings side by side; here a quote is missing
            if token.glued and self._last is not None and token.quote == self._last.quote:
                raise Refused("two quotes stand in a string, or two strings side by side", "quotes")
            frame.words.append(self._words(token))
        elif token.kind != "mark":
            raise Refused(f"{clip(token.text, 40)!r} follows a value")
        elif token.text == ",":
            self._store(frame)
            frame.commas += 1
        elif token.text == _CLOSERS[frame.kind]:
            self._close(frame)
        elif token.text == ":" and frame.kind == "{" and frame.key is None and frame.keyed is not False:
            frame.key = self._json_key(frame)
        else:
            raise Refused(f"{clip(token.text, 40)!r} follows a value")

    def _mark(self, frame: _Frame, mark: str) -> None:
        """Consume a bracket, or the stars before a dictionary."""
        if mark in ("[", "{", "("):
            self._enter(mark)
        elif mark == "**" and frame.key is None and frame.kind != "[":
            frame.key = "**"
        elif mark == _CLOSERS[frame.kind] and frame.key is None:
            self._close(frame)
        else:
            raise Refused(f"{mark!r} stands where a value belongs")

    def _key(self, frame: _Frame, token: Token) -> None:
        if token.text in _LITERALS:
            raise Refused(f"{token.text!r} is no parameter")
        if frame.kind == "call" and self._order is not None and plain(token.text) in self._order:
            self._doubt = self._doubt if plain(token.text) in self.keys else ""
        if token.quote == ":":
            self.liberties.take("':' for '='")
        self._given_by = token.quote
        frame.key = plain(token.text)
        if frame.key != token.text:
            self._escaped = True
            self.liberties.take(MARKDOWN)

    def _words(self, token: Token) -> str:
        if self._doubt and token.quote == self._doubt:
            raise Refused(UNSURE, "quotes")
        if token.doubtful:
            if self._swallows(token.text):
                raise Refused("a string without its closing quote runs into the next argument", "quotes")
            self._doubt = token.quote
            self.liberties.take(UNESCAPED)
        if self._escaped and not token.raw and _EVERY.fullmatch(token.text) and "\\_" in token.text:
            self.liberties.take(MARKDOWN)
            token = token._replace(text=token.text.replace("\\_", "_"))
        return words_of(token, self.liberties)

    def _swallows(self, words: str) -> bool:
        """Return whether a string holds, outside of brackets, a parameter that is still missing."""
        depth = 0
        for match in _MEMBER.finditer(words):
            if match[1] is None:
                depth = max(0, depth + (1 if match[0] in "([{" else -1))
            elif not depth and self._order is not None and match[1] in self._order and match[1] not in self.keys:
                return True
        return False

    def _number(self, text: str, frame: _Frame) -> str:
        """Return a number as JSON, or as a string if its parameter takes only strings and JSON spells it otherwise."""
        match = _NUMBER.fullmatch(text)
        digits = text.replace("_", "").lstrip("+")
        if match is None or not re.search(r"\d", text):
            raise Refused(f"{clip(text, 40)!r} is no number")
        real = match[3] is not None or match[4] is not None
        if len(text) > LONGEST_NUMBER or (real and not isfinite(float(digits))):
            raise Refused("a number is too long or out of range", "limit")
        if _JSON_NUMBER.fullmatch(text):
            return text
        if frame.kind == "call" and frame.key in self._strings:
            self.liberties.take("number kept as it is spelled", "coerce")
            return dump(text)
        if real:
            return repr(float(digits))
        if match[2] is not None and digits.lstrip("-").startswith("0"):
            self.liberties.take("leading zeros")
        return str(int(digits, 0 if match[2] is None else 10))

    # --- brackets --------------------------------------------------------------------------------------------------

    def _enter(self, kind: str) -> None:
        if len(self._stack) > DEEPEST:
            raise Refused(f"more than {DEEPEST} levels of brackets", "limit")
        self._stack.append(_Frame(kind))

    def _store(self, frame: _Frame) -> None:
        """Add the value that was read to the finished content."""
        value, key, frame.key = frame.take(), frame.key, None
        if key == "**":
            self._spread(frame, value)
        elif frame.kind == "call":
            self._argument(key, value)
        elif frame.kind == "dict":
            if key is None:
                raise Refused("an argument of dict() has no key")
            frame.items.append(f"{dump(key)}: {value}")
        elif frame.kind == "{":
            if frame.keyed is not None and frame.keyed != (key is not None):
                raise Refused("braces hold keys and values without a key")
            frame.keyed = key is not None
            frame.items.append(f"{key}: {value}" if key is not None else value)
        else:
            frame.items.append(value)

    def _argument(self, key: str | None, value: str) -> None:
        if key is None:
            if self.members:
                raise Refused("an argument without a key follows one with a key")
            most = max(len(self._order), 1) if self._order is not None else int(value[0] == "{")
            if len(self.given) >= most:
                raise Refused("an argument has no key")
            self.given.append(value)
            return
        self.keys.append(key)
        self.members.append(f"{dump(key)}: {value}")

    def _spread(self, frame: _Frame, value: str) -> None:
        """Merge the members of a dictionary."""
        if value[0] != "{":
            raise Refused("'**' stands before something that is no dictionary")
        members = value[1:-1].strip()
        if not members:
            return
        if frame.kind == "call":
            self.keys += json.loads(value)
            self.members.append(members)
        else:
            frame.keyed = True
            frame.items.append(members)

    def _close(self, frame: _Frame) -> None:
        """Make a value of the content of a bracket, and add it to the bracket around."""
        alone = frame.kind == "(" and not frame.commas
        pieces = frame.words if alone else None
        if frame.filled:
            self._store(frame)
        self._stack.pop()
        if not self._stack:
            return
        outer = self._stack[-1]
        inner = ", ".join(frame.items)
        if frame.kind == "dict" or (frame.kind == "{" and frame.keyed is not False):
            outer.value = f"{{{inner}}}"
        elif alone and frame.items:
            outer.value, outer.words = (inner, None) if pieces is None else (None, pieces)
        else:
            if frame.kind != "[":
                self.liberties.take("tuple or set taken as a list")
            outer.value = f"[{inner}]"

    def _json_key(self, frame: _Frame) -> str:
        """Return the key of a dictionary as JSON: a string, or a number converted to one."""
        named = frame.words is not None
        key = frame.take()
        if named:
            return key
        if not _JSON_NUMBER.fullmatch(key):
            raise Refused("a key of a dictionary is no string")
        self.liberties.take("number as a key")
        return dump(key)
