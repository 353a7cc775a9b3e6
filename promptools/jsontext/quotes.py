"""Find the end of a string whose inner quotes the model did not escape.

The problem: in `{"code": "print("a", "b")", "path": "x"}` only one of the quotes after `print` closes the string.

A quote is a candidate if it is followed by what must follow a value: a comma and a key in an object, a comma and an
item in an array, or the brackets that close all open containers and then the end of the value. Text inside the string,
above all code, may look the same. Parity distinguishes them: a quote inside quoted code has an odd number of inner
quotes before it, the closing quote an even number. Two facts override parity. A key that the tool declares and that the
object does not have yet (an anchor) marks the end of the string, and so does the certain end of the value.

If two quotes may equally well close the string, the string is rejected, since a wrong value is worse than no value. A
string is also rejected if it would contain the beginning of another call (`_find_call_end`) or of the next declared
argument (`_find_next_argument`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias

from promptools.jsontext.text import CLOSING_QUOTES, STRING_BODIES, Unreadable
from promptools.patterns import lazy_pattern

OpenContainer: TypeAlias = tuple[set[str], str]
"""An open container: the keys read so far, and the closing delimiter: `]`, `}` or `}}`."""

UNESCAPED_QUOTES: Final = "unescaped quotes in a string"
"""The description of the repair in the `Fix` for a string with unescaped quotes."""
CALL_KEYS: Final = frozenset({"name", "tool", "tool_name", "function", "arguments", "parameters", "tool_calls", "type"})
"""Keys with which a call may begin. An object whose first key is one of these is taken for the next call."""

_CANDIDATES = {quote: lazy_pattern(rf"[{close}](?=\s*+[,}}\]])") for quote, close in CLOSING_QUOTES.items()}
_ANY_QUOTE = {quote: lazy_pattern(f"[{close}]") for quote, close in CLOSING_QUOTES.items()}
_COUNTED = {
    quote: lazy_pattern(rf"\\.|((?<!\w)[{close}]|[{close}](?!\w))", re.DOTALL)
    for quote, close in CLOSING_QUOTES.items()
}
_COUNTED['"'] = lazy_pattern(r'\\.|(")', re.DOTALL)
_SPACE = lazy_pattern(r"\s*+")
_KEY = lazy_pattern(r"""\s*+(?:"([^"\\\n]*+)"|'([^'\\\n]*+)'|[“”]([^“”\\\n]*+)[“”]|([^\W\d]\w*+))\s*+:""")
_ITEM = lazy_pattern(r"""\s*+(?:["'“‘\[{]|-?[0-9]|(?:true|false|null|True|False|None)\b)""")
_AFTER_VALUE = lazy_pattern(r"\s*+(?:\Z|</|<\||```|\[/)")
_CLOSED_END = lazy_pattern(r"[}\]]\s*+(?:```|</[^<>]*+>|<\|[^<>|]*+\|>)?+\s*+\Z")
_BRACKET = lazy_pattern(r"""[\]}]|[\[{](?:\s*+["'“]?([^\W\d][\w.-]{0,80}+)["'”]?\s*+:)?|<([|｜])[^<>|｜\n]{1,64}+\2>""")
_MEMBER = lazy_pattern(
    r"""[\]}]|[\[{]|(?:[,"'“”]\s*+\\?\s*+["'“]([\w.$-]{1,80}+)\\?["'”]?|,\s*+\\?\s*+([\w.$-]{1,80}+)\\?["'”])"""
    r"""\s*+\\?\s*+[:"'“]"""
)
"""Matches a bracket, or a key after a comma or a value.

A quote of the key, or the colon after the key, may be missing.
"""
_NEXT_CALL = lazy_pattern(r"""[\s;,]*+[\[{]++\s*+["']([^"'\\\n]*+)["']\s*+:""")


class _Following(Enum):
    """What follows a quote.

    `INVALID`: something that cannot follow a value. `NEXT_ITEM`: another member or item. `MISSING_KEY`: a declared key
    that the object does not have yet. `END`: the end of the whole value. `MAYBE_END`: perhaps the end of the value.
    """

    INVALID = 0
    NEXT_ITEM = 1
    MISSING_KEY = 2
    END = 3
    MAYBE_END = 4


class QuoteResolver:
    """Decides which quote ends a string, for strings whose inner quotes may not be escaped.

    `declared_keys`: keys that tools declare. `trust_keys`: whether a quote before such a key ends the string even after
    an odd number of inner quotes.
    """

    def __init__(self, declared_keys: frozenset[str], *, failed_at: int, trust_keys: bool) -> None:
        self.declared_keys = declared_keys
        self.failed_at = failed_at
        """The index at which reading without guesses failed.

        A second attempt, which may guess, fails too if it passes this index without having guessed.
        """
        self.trust_keys = trust_keys
        self.guessed_quote = ""
        """The opening quote of the last string that contained unescaped quotes; empty if there was none."""
        self.has_inner_quotes = False
        """Whether the last string contained unescaped quotes."""
        self.end_is_certain = False
        """Whether all quotes up to the end of the text were examined, so that the end of the value is certain."""
        self.met_odd_key = False
        """Whether a declared key was found after an odd number of inner quotes.

        If so, the other value of `trust_keys` is worth a try.
        """

    def find_end(self, text: str, start: int, quote: str, stack: Sequence[OpenContainer]) -> int:
        """Return the index of the quote that closes the string whose body begins at `start`. O(n) in characters.

        Raises `Unreadable` if no quote closes the string, if more than one may, or if the string would run into another
        call or argument.
        """
        first = STRING_BODIES[quote].match(text, start)
        if first is None:
            raise _truncated(text)
        self.has_inner_quotes = self._classify_following(text, first.end() + 1, quote, stack) is _Following.INVALID
        if not self.has_inner_quotes:
            return first.end()
        self.guessed_quote = quote
        maybe: list[int] = []
        even_maybe = skipped = False
        for where, even, follows in self._candidates(text, first.end(), quote, stack):
            if follows is _Following.NEXT_ITEM and not even:
                skipped = True
                continue
            if even_maybe or (not even and follows is not _Following.MAYBE_END and (maybe or skipped)):
                raise Unreadable(where, "inner quotes are not escaped, and more than one may end it", "invalid_json")
            if follows is not _Following.MAYBE_END:
                return self._checked_end(text, start, where, stack)
            maybe.append(where)
            even_maybe = even
        if len(maybe) == 1 and (even_maybe or not skipped):
            self.end_is_certain = True
            return self._checked_end(text, start, maybe[0], stack)
        if maybe or _CLOSED_END.search(text, max(start, len(text) - 100)):
            raise Unreadable(start, "inner quotes are not escaped, and none may end the string", "invalid_json")
        raise _truncated(text)

    def _checked_end(self, text: str, start: int, end: int, stack: Sequence[OpenContainer]) -> int:
        """Return `end`; raise `Unreadable` if `text[start:end]` runs into another call or argument."""
        at = self._find_call_end(text, start, end)
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into what follows the call", "invalid_json")
        at = self._find_next_argument(text, start, end, stack[-1][0] if stack else set())
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into the next argument", "invalid_json")
        return end

    def _find_next_argument(self, text: str, start: int, end: int, keys: set[str]) -> int:
        """Return the index in `text[start:end]` of the first declared key outside brackets; else -1.

        Keys that are in `keys` are skipped.
        """
        depth = 0
        for match in _MEMBER.finditer(text, start, end):
            key = match[1] or match[2]
            if key is None:
                depth = max(0, depth + (1 if match[0] in "[{" else -1))
            elif not depth and key in self.declared_keys and key not in keys:
                return match.start()
        return -1

    def _find_call_end(self, text: str, start: int, end: int) -> int:
        """Return the index in `text[start:end]` of text that shows that the string ended earlier; -1 if there is none.

        There are three cases:

        - A special token: it ends the call.
        - A closing bracket that closes nothing in `text[start:end]`: it ends the call if later an object follows whose
          first key is a key of a call or a declared key.
        - An object with a key that is still open at `end`. JSON and code inside a string close all brackets that they
          open, so this object is a later part of the same call, or a part of another call.
        """
        opened: list[tuple[int, str | None]] = []
        left = -1
        for match in _BRACKET.finditer(text, start, end):
            char = match[0][0]
            if char == "<":
                return match.start()
            if char in "[{":
                opened.append((match.start(), match[1]))
            elif opened:
                opened.pop()
            elif left < 0:
                left = match.start()
            if left >= 0 and (match[1] in CALL_KEYS or match[1] in self.declared_keys):
                return left
        return next((at for at, key in opened if key is not None), -1)

    def may_end_at(self, text: str, end: int) -> bool:
        """Return whether the value may end at `end`.

        If the end of a string in the value was guessed, this requires that nothing after `end` can belong to the value.
        """
        return (
            not self.guessed_quote
            or self.end_is_certain
            or self._classify_value_end(text, end, self.guessed_quote) is _Following.END
        )

    def _candidates(
        self, text: str, first: int, quote: str, stack: Sequence[OpenContainer]
    ) -> Iterator[tuple[int, bool, _Following]]:
        """Yield a tuple for each quote after `first` that may end the string.

        The tuple holds the quote's index, whether an even number of inner quotes precedes the quote, and what follows
        the quote.
        """
        before = 0
        at = first
        for match in _CANDIDATES[quote].finditer(text, first + 1):
            where = match.start()
            if _is_escaped(text, first, where):
                continue
            before += _count_quotes(text, at, where, quote)
            at = where
            follows = self._classify_following(text, where + 1, quote, stack)
            if follows is _Following.MISSING_KEY and before % 2:
                self.met_odd_key = True
            if follows is _Following.MISSING_KEY and not (before % 2 and self.trust_keys):
                follows = _Following.NEXT_ITEM
            if follows is not _Following.INVALID:
                yield where, before % 2 == 0, follows

    def _classify_following(self, text: str, at: int, quote: str, stack: Sequence[OpenContainer]) -> _Following:
        """Return what follows a quote that ends just before `at`, given the open containers."""
        depth = len(stack)
        while depth:
            keys, closer = stack[depth - 1]
            space = _SPACE.match(text, at)
            assert space is not None
            at = space.end()
            if text.startswith(closer, at):
                at += len(closer)
                depth -= 1
                continue
            if not text.startswith(",", at):
                return _Following.INVALID
            at += 1
            if closer == "]":
                return _Following.NEXT_ITEM if _ITEM.match(text, at) else _Following.INVALID
            key = _KEY.match(text, at)
            if key is None:
                return _Following.INVALID
            name = key[1] or key[2] or key[3] or key[4]
            return _Following.MISSING_KEY if name in self.declared_keys and name not in keys else _Following.NEXT_ITEM
        return self._classify_value_end(text, at, quote)

    def _classify_value_end(self, text: str, at: int, quote: str) -> _Following:
        """Return `END` if a value whose brackets are closed at `at` certainly ends there, else `MAYBE_END`.

        The end is certain if no further quote follows, or if a closing tag, a special token, a code fence or the next
        call comes next.
        """
        if _AFTER_VALUE.match(text, at) or not _ANY_QUOTE[quote].search(text, at):
            return _Following.END
        following = _NEXT_CALL.match(text, at)
        if following and (following[1] in CALL_KEYS or following[1] in self.declared_keys):
            return _Following.END
        return _Following.MAYBE_END


def _truncated(text: str) -> Unreadable:
    return Unreadable(len(text), "the text ends inside a string", "truncated")


def _is_escaped(text: str, start: int, index: int) -> bool:
    """Return whether an odd number of backslashes precedes `index`."""
    first = index
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (index - first) % 2 == 1


def _count_quotes(text: str, start: int, end: int, quote: str) -> int:
    """Count the quotes in `text[start:end]` that are neither escaped nor apostrophes."""
    if quote == '"' and text.find("\\", start, end) < 0:
        return text.count(quote, start, end)
    return sum(1 for match in _COUNTED[quote].finditer(text, start, end + 1) if match[1] and match.start() < end)
