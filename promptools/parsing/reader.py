"""Read JSON as models write it: rewrite what is not strict, piece by piece, and let `json` read the rest.

What is strict is skipped over by one pattern; a step in Python is taken only at a bracket or at a liberty. `json` then
reads the mended text, so that nothing but the liberties below can make a value of what is none.
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
    """Compile what can be skipped: with strings and two levels of brackets, and without."""
    bare = rf"{_NUMBER_ATOM}|(?:{literals})\b(?!\s*+:){_AFTER}|[ \t\n\r:]++(?:,(?=[ \t\n\r]*+[\"'\[{{0-9tfn-]))?+"
    atoms = rf"{string}{_AFTER}|{bare}"
    for _ in range(2):
        atoms = rf"{atoms}|\{{(?!\{{)(?:{atoms})*+\}}{_AFTER}|\[(?:{atoms})*+\]{_AFTER}"
    return re.compile(rf"(?:{atoms})*+"), re.compile(rf"(?:{bare})*+")


_RUN, _RUN_TO_STRING = _runs(rf'(?!""")(?:{STRICT})', "true|false|null")
_SINGLE_RUN, _ = _runs(r"(?!''')'[^'\"\\\x00-\x1f]*+'", "true|false|null|True|False|None")
"""What Python prints: strings in single quotes, with no quote of any kind and no escape inside."""

_NO_END = r"(?!\s*+(?:[}\],]|\Z))"
_TRIPLE = {
    quote: re.compile(
        rf"(?:[^\\{quote}]++|\\.|{quote}(?!{quote * 2})|{quote * 3}{quote}*+{_NO_END})*+{quote * 3}{quote}*+", re.DOTALL
    )
    for quote in "\"'"
}
"""From just inside triple quotes up to those behind which the value may end."""
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
    """One reading of the value that starts at `start`. `guess` tells where strings end; None: at their first quote."""

    def __init__(self, text: str, start: int, *, close: bool, guess: Guess | None = None) -> None:
        self.text = text
        self.at = start
        """How far the text has been mended; the value's end once it is read."""
        self.close = close
        self.guess = guess
        self.liberties = Liberties()
        self.closed = 0
        """Closing brackets supplied."""
        self.strings = False
        """Some string was looked at: another reading of its quotes may help."""
        self.deepest = 0
        """Levels of brackets that were surely there, less two."""
        self._stack: list[Frame] = []
        self._pieces: list[tuple[str, int]] = []
        self._kept = start

    def read(self) -> Any:
        """Give the value. Raises `Unreadable`. O(n) in characters."""
        run = _RUN if self.guess is None else _RUN_TO_STRING
        char = self.text[self.at : self.at + 1]
        if not char:
            raise self._cut()
        if char in CLOSERS or char in "[{":
            self._step(char)
        else:
            self._word()
        while self._stack:
            found = run.match(self.text, self.at)
            assert found is not None
            self.strings = self.strings or found.end() > self.at
            self.at = found.end()
            char = self.text[self.at : self.at + 1]
            if not char:
                break
            if self.guess and not self.guess.guessed and self.at > self.guess.before:
                raise Unreadable(self.at, "no string before holds quotes that are not escaped", "invalid_json")
            self._step(char)
        self._put(self.at, "", self.at)
        mended = "".join(piece for piece, _ in self._pieces)
        if not self._stack:
            return self._decode(mended, len(mended) + 1)
        solid = mended.rstrip()
        number = _CUT_NUMBER.search(mended, max(0, len(mended) - 2))
        cut = len(mended.rstrip("0123456789.eE+-") if number else solid.rstrip(","))
        if self.close and not (self.guess and self.guess.guessed) and not number and solid[-1] not in "{[,:":
            solid += "".join(self._supply() for _ in range(len(self._stack)))
            self.at = len(self.text.rstrip())
        return self._decode(solid, cut)

    def _decode(self, mended: str, cut: int) -> Any:
        """Read strict JSON; an error at `cut` or later means that the text ended too early."""
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
        """Mend what stands here, and go past it."""
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
        """Close the innermost container, which the text left open."""
        closer = self._stack.pop()[1]
        self.liberties.take(f"missing {closer[0]} supplied", "closer")
        self.closed += 1
        return closer[0]

    def _python(self) -> bool:
        """Mend a whole stretch of what Python prints for dicts and lists; tell whether there was one."""
        found = _SINGLE_RUN.match(self.text, self.at)
        if found is None or found.end() == self.at:
            return False
        parts = found[0].split("'")
        outside = "'".join(parts[::2])
        self.liberties.take("single quotes", count=len(parts) // 2)
        for python, literal in _PYTHON.items():
            if count := outside.count(python):
                self.liberties.take("Python literal", count=count)
                outside = outside.replace(python, literal)
        parts[::2] = outside.split("'")
        self._put(self.at, '"'.join(parts), found.end())
        self.at = found.end()
        return True

    def _string(self, quote: str) -> None:
        """Mend a string whose opening quote is at hand."""
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
            found = BODIES[quote].match(self.text, start)
            if found is None:
                raise self._cut()
            end = found.end()
        if quote != '"':
            self.liberties.take("single quotes" if quote == "'" else "smart quotes")
        value = decode(self.text[start:end], self.liberties)
        self._put(self.at, encode(value), end + 1)
        self.at = end + 1
        if self.guess and is_key:
            self._stack[-1][0].add(value)

    def _triple(self, quote: str) -> bool:
        """Mend a value in triple quotes, as Python has it; tell whether there is one."""
        if quote not in _TRIPLE or not self.text.startswith(quote * 3, self.at) or self._last() not in ":[,":
            return False
        found = _TRIPLE[quote].match(self.text, self.at + 3)
        if found is None:
            raise self._cut()
        self.liberties.take("triple quotes")
        value = decode(self.text[self.at + 3 : found.end() - 3], self.liberties)
        self._put(self.at, encode(value), found.end())
        self.at = found.end()
        return True

    def _word(self) -> None:
        """Mend an unquoted key or a Python literal."""
        found = _WORD.match(self.text, self.at)
        word = found[0] if found else ""
        end = self.at + len(word)
        if word and self._stack and _COLON.match(self.text, end):
            self.liberties.take("unquoted key")
            self._put(self.at, f'"{word}"', end)
            self._stack[-1][0].add(word)
        elif word in _PYTHON:
            self.liberties.take("Python literal")
            self._put(self.at, _PYTHON[word], end)
        elif len(self.text) in (end, self._minus_end()) and any(each.startswith(word) for each in _LITERALS):
            raise self._cut()
        else:
            token = _TOKEN.match(self.text, self.at)
            said = token[0] if token else ""
            if not self._stack and _NUMBER.fullmatch(said):
                raise self._long()
            if said.lstrip("-") in _NOT_NUMBERS:
                raise Unreadable(self.at, f"{said} is no JSON number", "invalid_json")
            raise Unreadable(self.at, f"{clip(said, 40)!r} is no JSON", "invalid_json")
        self.at = end

    def _minus_end(self) -> int:
        """Give the index past a minus that stands here, -1 if none does."""
        return self.at + 1 if self.text.startswith("-", self.at) else -1

    def _gap(self, char: str) -> bool:
        """Go past comments, white space that JSON does not know, and escapes outside strings."""
        before = self.text[self.at - 1]
        if char in "/#" and not (before.isspace() or before in "{[}]:,"):
            return False
        found = _ODD_SPACE.match(self.text, self.at)
        if found:
            rest, comments = _COMMENTS.subn("", found[0])
            if comments:
                self.liberties.take("comment")
            if "\\" in rest:
                self.liberties.take("escaped white space outside strings")
            elif rest.strip(" \t\n\r"):
                self.liberties.take("white space that JSON does not know")
            self._put(self.at, " ", found.end())
            self.at = found.end()
        if _UNCLOSED_COMMENT.match(self.text, self.at):
            raise self._cut()
        return found is not None

    def _put(self, upto: int, instead: str, after: int) -> None:
        """Keep the text up to `upto`, then write `instead` of what stands before `after`."""
        self._pieces.append((self.text[self._kept : upto], self._kept))
        self._pieces.append((instead, upto))
        self._kept = after

    def _last(self) -> str:
        """Give the last character mended so far that is no white space."""
        at = self.at
        while at > self._kept:
            at -= 1
            if not self.text[at].isspace():
                return self.text[at]
        return next((piece.rstrip()[-1] for piece, _ in reversed(self._pieces) if piece.strip()), "")

    def _origin(self, mended: int) -> int:
        """Tell where in the text a place in the mended text comes from."""
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
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            for key in (key for key, count in counts.items() if count > 1):
                self.liberties.take(f"key {clip(key, 60)!r} stands twice; the last one holds", "duplicate")
        return found
