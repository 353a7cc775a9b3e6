"""Repair JSON as models write it: rewrite what is not strict, and let `json` decode the result.

The reader walks over the text once and copies it, replacing what is not strict JSON. One regular expression skips
strict JSON, brackets and all, two levels deep; a step in Python is taken only at a deeper bracket or at a mistake. A
stack of the open containers tells which closing bracket is due. `json` then decodes the repaired text, so that only the
repairs below, each recorded as a fix, can make a value of what is none.

Repaired are: quotes that are single, smart or triple, or not escaped inside a string (see `guess`); escapes that JSON
does not know; Python's literals; unquoted keys; doubled braces; comments; trailing commas; odd white space; duplicate
keys; and, with `close`, closing brackets missing at the end. Anything else raises `Unreadable`, whose kind tells text
that ends too early from text that is wrong.

The copy is a list of pieces with the index each comes from, so that an error of `json` is reported where it is in the
model's text.
"""

from __future__ import annotations

import re
from collections import Counter
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, Final

from promptools.errors import clip
from promptools.parsing.extent import DEEPEST
from promptools.parsing.guess import UNESCAPED, Frame, Guess
from promptools.parsing.strings import BODIES, CLOSERS, STRICT, Liberties, Unreadable, decode, encode, finite

_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_LITERALS: Final = ("true", "false", "null", *_PYTHON)
_NOT_NUMBERS: Final = frozenset({"NaN", "Infinity", "nan", "inf"})

_AFTER = r"[ \t\n\r:]*+(?:,(?=[ \t\n\r]*+[\"'\[{0-9tfn-]))?+[ \t\n\r]*+"
_NUMBER_ATOM = rf"-?[0-9][0-9.eE+-]*+{_AFTER}"


def _runs(string: str, literals: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile what can be skipped: with strings and two levels of brackets, and without either."""
    bare = rf"{_NUMBER_ATOM}|(?:{literals})\b(?!\s*+:){_AFTER}|[ \t\n\r:]++(?:,(?=[ \t\n\r]*+[\"'\[{{0-9tfn-]))?+"
    atoms = rf"{string}{_AFTER}|{bare}"
    for _ in range(2):
        atoms = rf"{atoms}|\{{(?!\{{)(?:{atoms})*+\}}{_AFTER}|\[(?:{atoms})*+\]{_AFTER}"
    return re.compile(rf"(?:{atoms})*+"), re.compile(rf"(?:{bare})*+")


_RUN, _RUN_TO_STRING = _runs(rf'(?!""")(?:{STRICT})', "true|false|null")
_SINGLE_RUN, _ = _runs(r"(?!''')'[^'\"\\\x00-\x1f]*+'", "true|false|null|True|False|None")
"""What Python prints: strings in single quotes that contain no quote of any kind and no escape."""

_NO_END = r"(?!\s*+(?:[}\],]|\Z))"
_TRIPLE = {
    quote: re.compile(
        rf"(?:[^\\{quote}]++|\\.|{quote}(?!{quote * 2})|{quote * 3}{quote}*+{_NO_END})*+{quote * 3}{quote}*+", re.DOTALL
    )
    for quote in "\"'"
}
"""From just after opening triple quotes up to those after which the value may end."""
_WORD = re.compile(r"[^\W\d][\w$-]*+")
_COLON = re.compile(r"\s*+:")
_TOKEN = re.compile(r"-?[\w.+-]++|.?", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")
_CUT_NUMBER = re.compile(r"(?:[0-9.+-]|[0-9.][eE])\Z")
_COMMENT = r"//[^\n]*+\n|\#(?=[\s#!])[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/"
_COMMENTS = re.compile(_COMMENT)
_GAP = rf"(?:[\s\ufeff\u200b-\u200d\u2060]|\\[nrt]|{_COMMENT})"
_ODD_SPACE = re.compile(rf"{_GAP}++")
_TRAILING = re.compile(rf",{_GAP}*+(?=[}}\]])")
_UNCLOSED_COMMENT = re.compile(r"//|\#[\s#!]|\#\Z|/\*|/\Z")
_ONLY_CLOSERS = re.compile(r"[\s}\]]*+\Z")


class Reader:
    """One attempt at the value at `text[start]`. `guess` finds the end of a string; None: its first quote."""

    def __init__(self, text: str, start: int, *, close: bool, guess: Guess | None = None) -> None:
        self.text = text
        self.at = start
        """How far the text has been repaired; the value's end once it is read."""
        self.close = close
        self.guess = guess
        self.liberties = Liberties()
        self.closed = 0
        """Closing brackets that were supplied."""
        self.strings = False
        """Whether strings may have been read: then another interpretation of their quotes may help."""
        self.deepest = 0
        """Levels that were entered one by one: the value has at most two more, which the pattern skips."""
        self._stack: list[Frame] = []
        self._pieces: list[tuple[str, int]] = []
        self._kept = start

    def read(self) -> Any:
        """Return the value; raise `Unreadable` if there is none. O(n) in characters."""
        run = _RUN if self.guess is None else _RUN_TO_STRING
        char = self.text[self.at : self.at + 1]
        if not char:
            raise self._cut()
        if char in CLOSERS or char in "[{":
            self._step(char)
        else:
            self._word()
        while self._stack:
            match = run.match(self.text, self.at)
            assert match is not None
            self.strings = self.strings or match.end() > self.at
            self.at = match.end()
            char = self.text[self.at : self.at + 1]
            if not char:
                break
            if self.guess and not self.guess.guessed and self.at > self.guess.before:
                raise Unreadable(self.at, "no string before holds quotes that are not escaped", "invalid_json")
            self._step(char)
        self._put(self.at, "", self.at)
        repaired = "".join(piece for piece, _ in self._pieces)
        if not self._stack:
            return self._decode(repaired, len(repaired) + 1)
        stripped = repaired.rstrip()
        number = _CUT_NUMBER.search(repaired, max(0, len(repaired) - 2))
        cut = len(repaired.rstrip("0123456789.eE+-") if number else stripped.rstrip(","))
        if self.close and not (self.guess and self.guess.guessed) and not number and stripped[-1] not in "{[,:":
            stripped += "".join(self._supply() for _ in range(len(self._stack)))
            self.at = len(self.text.rstrip())
        return self._decode(stripped, cut)

    def _decode(self, mended: str, cut: int) -> Any:
        """Decode strict JSON; an error at `cut` or later means that the text ended too early."""
        decoder = JSONDecoder(object_pairs_hook=self._pairs, parse_float=finite)
        try:
            return decoder.raw_decode(mended)[0]
        except JSONDecodeError as problem:
            if problem.pos >= cut:
                raise self._cut() from None
            at = self._origin(problem.pos)
            raise Unreadable(at, problem.msg, "invalid_json") from None
        except (ValueError, RecursionError):
            raise self._long() from None

    def _step(self, char: str) -> None:
        """Repair what begins with `char`, and move past it."""
        if char in CLOSERS:
            self._string(char)
        elif char in "[{":
            self._enter(char)
        elif char in "]}":
            self._leave(char)
        elif char == ",":
            if _TRAILING.match(self.text, self.at) and self._last() not in "[{,:":
                self.liberties.take("trailing comma")
                self._put(self.at, "", self.at + 1)
            self.at += 1
        elif not self._gap(char):
            self._word()

    def _enter(self, char: str) -> None:
        if len(self._stack) >= DEEPEST:
            raise Unreadable(self.at, f"more than {DEEPEST} levels of brackets", "limit")
        self.deepest = max(self.deepest, len(self._stack) + 1)
        if char == "{" and self.text.startswith("{{", self.at):
            self.liberties.take("doubled braces")
            self._put(self.at, "", self.at + 1)
            self._stack.append((set(), "}}"))
            self.at += 2
            return
        self._stack.append((set(), "}" if char == "{" else "]"))
        self.at += 1

    def _leave(self, char: str) -> None:
        closer = self._stack[-1][1]
        if self.text.startswith(closer, self.at):
            self._stack.pop()
            if len(closer) == 2:
                self._put(self.at, "", self.at + 1)
            self.at += len(closer)
        elif self.close and not (self.guess and self.guess.guessed) and _ONLY_CLOSERS.match(self.text, self.at):
            self._put(self.at, self._supply(), self.at)
            self.at += char == closer[0]
        else:
            raise Unreadable(self.at, f"{closer!r} was expected, not {char!r}", "invalid_json")

    def _supply(self) -> str:
        """Pop the innermost container, which the text left open; return its missing bracket."""
        closer = self._stack.pop()[1]
        self.liberties.take(f"missing {closer[0]} supplied", "closer")
        self.closed += 1
        return closer[0]

    def _python(self) -> bool:
        """Repair a whole run of what Python prints for dicts and lists; return whether there was one."""
        match = _SINGLE_RUN.match(self.text, self.at)
        if match is None or match.end() == self.at:
            return False
        parts = match[0].split("'")
        outside = "'".join(parts[::2])
        self.liberties.take("single quotes", count=len(parts) // 2)
        for python, literal in _PYTHON.items():
            if count := outside.count(python):
                self.liberties.take("Python literal", count=count)
                outside = outside.replace(python, literal)
        parts[::2] = outside.split("'")
        self._put(self.at, '"'.join(parts), match.end())
        self.at = match.end()
        return True

    def _string(self, quote: str) -> None:
        """Repair the string that `quote` opens."""
        self.strings = True
        if self._triple(quote) or (quote == "'" and self.guess is None and self._python()):
            return
        start = self.at + 1
        is_key = bool(self._stack) and self._stack[-1][1] != "]" and self._last() in "{,"
        if self.guess and not is_key:
            end = self.guess.end(self.text, start, quote, self._stack)
            if self.guess.inner:
                self.liberties.take(UNESCAPED)
        else:
            match = BODIES[quote].match(self.text, start)
            if match is None:
                raise self._cut()
            end = match.end()
        if quote != '"':
            self.liberties.take("single quotes" if quote == "'" else "smart quotes")
        value = decode(self.text[start:end], self.liberties)
        self._put(self.at, encode(value), end + 1)
        self.at = end + 1
        if self.guess and is_key:
            self._stack[-1][0].add(value)

    def _triple(self, quote: str) -> bool:
        """Repair a value in Python's triple quotes; return whether there was one."""
        if quote not in _TRIPLE or not self.text.startswith(quote * 3, self.at) or self._last() not in ":[,":
            return False
        match = _TRIPLE[quote].match(self.text, self.at + 3)
        if match is None:
            raise self._cut()
        self.liberties.take("triple quotes")
        value = decode(self.text[self.at + 3 : match.end() - 3], self.liberties)
        self._put(self.at, encode(value), match.end())
        self.at = match.end()
        return True

    def _word(self) -> None:
        """Repair an unquoted key or a Python literal; raise `Unreadable` for any other text."""
        match = _WORD.match(self.text, self.at)
        word = match[0] if match else ""
        end = self.at + len(word)
        if word and self._stack and _COLON.match(self.text, end):
            self.liberties.take("unquoted key")
            self._put(self.at, f'"{word}"', end)
            self._stack[-1][0].add(word)
        elif word in _PYTHON:
            self.liberties.take("Python literal")
            self._put(self.at, _PYTHON[word], end)
        elif len(self.text) in (end, self._minus_end()) and any(literal.startswith(word) for literal in _LITERALS):
            raise self._cut()
        else:
            token = _TOKEN.match(self.text, self.at)
            unknown = token[0] if token else ""
            if not self._stack and _NUMBER.fullmatch(unknown):
                raise self._long()
            if unknown.lstrip("-") in _NOT_NUMBERS:
                raise Unreadable(self.at, f"{unknown} is no JSON number", "invalid_json")
            raise Unreadable(self.at, f"{clip(unknown, 40)!r} is no JSON", "invalid_json")
        self.at = end

    def _minus_end(self) -> int:
        """Return the index past a minus sign here, -1 if there is none."""
        return self.at + 1 if self.text.startswith("-", self.at) else -1

    def _gap(self, char: str) -> bool:
        """Replace comments, escapes outside strings and white space that JSON does not know; return whether any was."""
        before = self.text[self.at - 1]
        if char in "/#" and not (before.isspace() or before in "{[}]:,"):
            return False
        match = _ODD_SPACE.match(self.text, self.at)
        if match:
            rest, comments = _COMMENTS.subn("", match[0])
            if comments:
                self.liberties.take("comment")
            if "\\" in rest:
                self.liberties.take("escaped white space outside strings")
            elif rest.strip(" \t\n\r"):
                self.liberties.take("white space that JSON does not know")
            self._put(self.at, " ", match.end())
            self.at = match.end()
        if _UNCLOSED_COMMENT.match(self.text, self.at):
            raise self._cut()
        return match is not None

    def _put(self, upto: int, instead: str, after: int) -> None:
        """Copy the text up to `upto`, then write `instead` of the text from there to `after`."""
        self._pieces.append((self.text[self._kept : upto], self._kept))
        self._pieces.append((instead, upto))
        self._kept = after

    def _last(self) -> str:
        """Return the last character of the repaired text that is not white space."""
        at = self.at
        while at > self._kept:
            at -= 1
            if not self.text[at].isspace():
                return self.text[at]
        return next((piece.rstrip()[-1] for piece, _ in reversed(self._pieces) if piece.strip()), "")

    def _origin(self, mended: int) -> int:
        """Return the index in the text that an index in the repaired text comes from."""
        at = 0
        for piece, origin in self._pieces:
            if mended >= 0:
                at = origin + min(mended, len(piece))
            mended -= len(piece)
        return at

    def _cut(self) -> Unreadable:
        return Unreadable(len(self.text), "the text ends inside the value", "truncated")

    def _long(self) -> Unreadable:
        return Unreadable(self.at, "a number is too long or out of range", "limit")

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            for key in (key for key, count in counts.items() if count > 1):
                self.liberties.take(f"key {clip(key, 60)!r} stands twice; the last one holds", "duplicate")
        return members
