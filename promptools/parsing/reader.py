"""Read JSON as models write it: one pass, and a record of each thing that strict JSON does not know."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

from promptools.errors import clip
from promptools.parsing.extent import DEEPEST
from promptools.parsing.guess import Frame, Guess
from promptools.parsing.strings import BODIES, CLOSERS, Liberties, Unreadable, decode

_LITERALS: Final[dict[str, bool | None]] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip
_NOT_NUMBERS = frozenset({"NaN", "Infinity", "nan", "inf"})

_SPACE = re.compile(r"[ \t\n\r]*+")
_PLAIN = re.compile(r'"([^"\\\x00-\x1f]*+)"')
_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+')
_BARE_KEY = re.compile(r"[^\W\d][\w$-]*+")
_WORD = re.compile(r"[^\W\d]\w*+")
_NUMBERISH = re.compile(r"-?[\w.+-]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")
_COMMENT = r"//[^\n]*+\n|\#(?=[\s#!])[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/"
_COMMENTS = re.compile(_COMMENT)
_ODD_SPACE = re.compile(rf"(?:[\s\ufeff\u200b-\u200d\u2060]|\\[nrt]|{_COMMENT})++")
_UNCLOSED_COMMENT = re.compile(r"//|\#[\s#!]|\#\Z|/\*|/\Z")
_ONLY_CLOSERS = re.compile(r"[\s}\]]*+\Z")


class Reader:
    """One reading of the value that starts at `start`. `guess` tells where strings end; None: at their first quote."""

    def __init__(self, text: str, start: int, *, close: bool, guess: Guess | None = None) -> None:
        self.text = text
        self.at = start
        self.mark = start
        """Just past the last token read."""
        self.close = close
        self.guess = guess
        self.stack: list[Frame] = []
        self.key: str | None = None
        self.liberties = Liberties()
        self.closed = 0
        self.strings = False
        """Some string was read: another reading of its quotes may help."""

    def read(self) -> Any:
        """Give the value; `mark` is then its end. Raises `Unreadable`."""
        root: Any = self._value(self.text[self.at : self.at + 1])
        after_value = not self.stack
        after_comma = False
        while self.stack:
            container, closer = self.stack[-1]
            char = self._gap()
            if after_value:
                if char == ",":
                    self.at += 1
                    after_value, after_comma = False, True
                elif not char:
                    self._supply(len(self.stack))
                else:
                    self._leave(char, closer)
                continue
            if char == closer[0]:
                if after_comma:
                    self.liberties.take("trailing comma")
                self._leave(char, closer)
                after_value = True
                continue
            if not char:
                raise self._cut("the text ends inside an object or array")
            if isinstance(container, dict):
                char = self._member(char)
            depth = len(self.stack)
            value = self._value(char)
            self._put(container, value)
            after_value, after_comma = len(self.stack) == depth, False
        return root

    def _put(self, container: dict[str, Any] | list[Any], value: Any) -> None:
        if isinstance(container, list):
            container.append(value)
            return
        assert self.key is not None
        if self.key in container:
            self.liberties.duplicate(self.key)
        container[self.key] = value

    def _member(self, char: str) -> str:
        """Read a key and its colon; give the first character of the value."""
        plain = _PLAIN_KEY.match(self.text, self.at)
        if plain:
            self.key, self.at = plain[1], plain.end()
            return self._gap()
        if char in CLOSERS:
            self.key = self._string(char, guess=None)
        else:
            bare = _BARE_KEY.match(self.text, self.at)
            if bare is None:
                raise self._wrong("a key")
            self.key, self.at = bare[0], bare.end()
            self.liberties.take("unquoted key")
        char = self._gap()
        if not char:
            raise self._cut("the text ends after a key")
        if char != ":":
            raise self._wrong("a colon")
        self.at += 1
        return self._gap()

    def _value(self, char: str) -> Any:
        """Read a scalar, or open a container."""
        if char in CLOSERS:
            return self._string(char, self.guess)
        if char == "{":
            doubled = self.text.startswith("{{", self.at)
            if doubled:
                self.liberties.take("doubled braces")
            return self._enter({}, "}}" if doubled else "}")
        if char == "[":
            return self._enter([], "]")
        if not char:
            raise self._cut("the text ends before a value")
        if char in "-0123456789":
            return self._number()
        return self._literal()

    def _enter(self, container: dict[str, Any] | list[Any], closer: str) -> Any:
        if len(self.stack) >= DEEPEST:
            raise Unreadable(self.at, f"more than {DEEPEST} levels of brackets", "limit")
        self.stack.append((container, closer))
        self.at += len(closer)
        return container

    def _leave(self, char: str, closer: str) -> None:
        """Close the innermost container, which `closer` closes, at a character that may or may not do so."""
        if self.text.startswith(closer, self.at):
            self.stack.pop()
            self.at += len(closer)
            self.mark = self.at
        elif self.close and char in "}]" and _ONLY_CLOSERS.match(self.text, self.at):
            self._supply(1)
        else:
            raise self._wrong(f"a comma or {closer!r}")

    def _supply(self, count: int) -> None:
        """Close containers that the text left open."""
        if not self.close or (self.guess is not None and self.guess.guessed):
            raise self._cut("the text ends inside an object or array")
        for _ in range(count):
            _, closer = self.stack.pop()
            self.liberties.take(f"missing {closer} supplied", "closer")
            self.closed += 1

    def _string(self, quote: str, guess: Guess | None) -> str:
        """Read a string whose opening quote is at hand."""
        self.strings = True
        start = self.at + 1
        if guess is not None:
            end = guess.end(self.text, start, quote, self.stack)
        elif plain := _PLAIN.match(self.text, self.at):
            self.at = plain.end()
            return plain[1]
        else:
            found = BODIES[quote].match(self.text, start)
            if found is None:
                raise self._cut("the text ends inside a string")
            end = found.end()
        if quote != '"':
            self.liberties.take("single quotes" if quote == "'" else "smart quotes")
        body = self.text[start:end]
        if guess is not None and guess.inner:
            self.liberties.take("unescaped quotes in a string")
        self.at = end + 1
        return decode(body, self.liberties)

    def _number(self) -> int | float:
        found = _NUMBERISH.match(self.text, self.at)
        assert found is not None
        token = found[0]
        if found.end() == len(self.text) and self.stack:
            raise self._cut("the text ends inside a number")
        if not _NUMBER.fullmatch(token):
            raise self._wrong("a number")
        try:
            value = float(token) if any(mark in token for mark in ".eE") else int(token)
        except ValueError:
            raise Unreadable(self.at, f"a number of {len(token)} digits", "limit") from None
        if not isfinite(value):
            raise Unreadable(self.at, f"the number {clip(token, 40)} is out of range", "limit")
        self.at = found.end()
        return value

    def _literal(self) -> bool | None:
        found = _WORD.match(self.text, self.at)
        word = found[0] if found else ""
        if word in _LITERALS:
            if word[0].isupper():
                self.liberties.take("Python literal")
            self.at += len(word)
            return _LITERALS[word]
        cut = self.at + len(word) == len(self.text)
        if word and cut and any(literal.startswith(word) for literal in _LITERALS):
            raise self._cut("the text ends inside a literal")
        raise self._wrong("a value")

    def _gap(self) -> str:
        """Skip white space and what stands for it; give the next character, empty at the end."""
        self.mark = self.at
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        char = self.text[self.at : self.at + 1]
        if char in "/#\\" or char > "\x7f" or char in "\v\f":
            return self._odd_gap(char)
        return char

    def _odd_gap(self, char: str) -> str:
        """Skip comments, white space that JSON does not know, and escapes outside strings."""
        if not char:
            return char
        before = self.text[self.at - 1]
        if char in "/#" and not (before.isspace() or before in "{[}]:,"):
            return char
        found = _ODD_SPACE.match(self.text, self.at)
        if found:
            self.at = found.end()
            rest, comments = _COMMENTS.subn("", found[0])
            if comments:
                self.liberties.take("comment")
            if "\\" in rest:
                self.liberties.take("escaped white space outside strings")
            elif rest.strip(" \t\n\r"):
                self.liberties.take("white space that JSON does not know")
        if _UNCLOSED_COMMENT.match(self.text, self.at):
            raise self._cut("the text ends inside a comment")
        return self.text[self.at : self.at + 1]

    def _wrong(self, wanted: str) -> Unreadable:
        """Say what was wanted here and what stood here."""
        word = _NUMBERISH.match(self.text, self.at)
        said = word[0] if word and word[0] else self.text[self.at : self.at + 1]
        if said.lstrip("-") in _NOT_NUMBERS:
            return Unreadable(self.at, f"{said} is no JSON number", "invalid_json")
        return Unreadable(self.at, f"{wanted} was expected, not {clip(said, 40)!r}", "invalid_json")

    def _cut(self, reason: str) -> Unreadable:
        return Unreadable(len(self.text), reason, "truncated")
