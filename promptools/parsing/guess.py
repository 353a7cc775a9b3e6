"""Find the end of a string whose inner quotes the model did not escape.

The problem: in `{"code": "print("a", "b")", "path": "x"}` only one of the quotes after `print` closes the string.

A quote is a candidate if what must follow a value follows it: in an object a comma and a key, in an array a comma and
an item, or the brackets that close what is open, and then the end of the value. Text inside the string may look just
the same, code above all. Parity tells them apart: before a quote inside quoted code there is an odd number of inner
quotes, before the closing one an even number. Two facts override parity: a key that the tool declares and the object
lacks (an anchor) marks the end of the string, and so does the certain end of the value.

Where an earlier and a later quote are equally good, the string is rejected: a wrong value is worse than none. So is one
that would contain the beginning of another call (`_crosses`) or of the next declared argument (`_swallows`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias

from promptools.parsing.strings import BODIES, CLOSERS, Unreadable

Frame: TypeAlias = tuple[set[str], str]
"""An open container: the keys that it has so far, and its closing delimiter: `]`, `}` or `}}`."""

UNESCAPED: Final = "unescaped quotes in a string"
"""The detail of the fix that is recorded."""
ENVELOPE: Final = frozenset({"name", "tool", "tool_name", "function", "arguments", "parameters", "tool_calls", "type"})
"""First keys of a call: an object that begins with one is the next call."""

_CANDIDATES = {quote: re.compile(rf"[{close}](?=\s*+[,}}\]])") for quote, close in CLOSERS.items()}
_ANY = {quote: re.compile(f"[{close}]") for quote, close in CLOSERS.items()}
_COUNTED = {
    quote: re.compile(rf"\\.|((?<!\w)[{close}]|[{close}](?!\w))", re.DOTALL) for quote, close in CLOSERS.items()
}
_COUNTED['"'] = re.compile(r'\\.|(")', re.DOTALL)
_SPACE = re.compile(r"\s*+")
_KEY = re.compile(r"""\s*+(?:"([^"\\\n]*+)"|'([^'\\\n]*+)'|[“”]([^“”\\\n]*+)[“”]|([^\W\d]\w*+))\s*+:""")
_ITEM = re.compile(r"""\s*+(?:["'“‘\[{]|-?[0-9]|(?:true|false|null|True|False|None)\b)""")
_BEYOND = re.compile(r"\s*+(?:\Z|</|<\||```|\[/)")
_WHOLE = re.compile(r"[}\]]\s*+(?:```|</[^<>]*+>|<\|[^<>|]*+\|>)?+\s*+\Z")
_BRACKET = re.compile(r"""[\]}]|[\[{](?:\s*+["'“]?([^\W\d][\w.-]{0,80}+)["'”]?\s*+:)?|<([|｜])[^<>|｜\n]{1,64}+\2>""")
_MEMBER = re.compile(
    r"""[\]}]|[\[{]|(?:[,"'“”]\s*+\\?\s*+["'“]([\w.$-]{1,80}+)\\?["'”]?|,\s*+\\?\s*+([\w.$-]{1,80}+)\\?["'”])"""
    r"""\s*+\\?\s*+[:"'“]"""
)
"""A bracket, or a key after a comma or a value: a quote or the colon may be missing."""
_NEXT = re.compile(r"""[\s;,]*+[\[{]++\s*+["']([^"'\\\n]*+)["']\s*+:""")


class _Follows(Enum):
    """What follows a quote.

    Nothing that may follow a value, another member or item, a declared key that is missing yet, the certain end of the
    value, or what may be its end.
    """

    NOTHING = 0
    PART = 1
    ANCHOR = 2
    END = 3
    MAYBE_END = 4


class Guess:
    """One interpretation of unescaped quotes; with `trust`, a declared key is the next one even at odd parity."""

    __slots__ = ("anchors", "before", "guessed", "inner", "sure", "trust", "trusted")

    def __init__(self, anchors: frozenset[str], *, before: int, trust: bool) -> None:
        self.anchors = anchors
        self.before = before
        """Where the plain reading failed: this one fails too if it gets past that without a guess."""
        self.trust = trust
        self.guessed = ""
        """The opening quote of a string that contained unescaped ones; empty if there was none."""
        self.inner = False
        """Whether the last string contained unescaped quotes."""
        self.sure = False
        """Whether the text was searched to its end, so that nothing after the value can belong to it."""
        self.trusted = False
        """Whether a declared key was found at odd parity: then the other value of `trust` is worth a try."""

    def end(self, text: str, start: int, quote: str, stack: Sequence[Frame]) -> int:
        """Return the index of the quote that closes the string whose body begins at `start`. O(n) in characters.

        Raise `Unreadable` if none does, or if more than one may.
        """
        first = BODIES[quote].match(text, start)
        if first is None:
            raise _cut(text)
        self.inner = self._follows(text, first.end() + 1, quote, stack) is _Follows.NOTHING
        if not self.inner:
            return first.end()
        self.guessed = quote
        maybe: list[int] = []
        even_maybe = skipped = False
        for where, even, follows in self._candidates(text, first.end(), quote, stack):
            if follows is _Follows.PART and not even:
                skipped = True
                continue
            if even_maybe or (not even and follows is not _Follows.MAYBE_END and (maybe or skipped)):
                raise Unreadable(where, "inner quotes are not escaped, and more than one may end it", "invalid_json")
            if follows is not _Follows.MAYBE_END:
                return self._inside(text, start, where, stack)
            maybe.append(where)
            even_maybe = even
        if len(maybe) == 1 and (even_maybe or not skipped):
            self.sure = True
            return self._inside(text, start, maybe[0], stack)
        if maybe or _WHOLE.search(text, max(start, len(text) - 100)):
            raise Unreadable(start, "inner quotes are not escaped, and none may end the string", "invalid_json")
        raise _cut(text)

    def _inside(self, text: str, start: int, end: int, stack: Sequence[Frame]) -> int:
        """Return `end`; raise `Unreadable` if `text[start:end]` runs into another call or argument."""
        at = self._crosses(text, start, end)
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into what follows the call", "invalid_json")
        at = self._swallows(text, start, end, stack[-1][0] if stack else set())
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into the next argument", "invalid_json")
        return end

    def _swallows(self, text: str, start: int, end: int, keys: set[str]) -> int:
        """Return the index in `text[start:end]`, outside brackets, of a declared key that is missing yet; else -1."""
        depth = 0
        for match in _MEMBER.finditer(text, start, end):
            key = match[1] or match[2]
            if key is None:
                depth = max(0, depth + (1 if match[0] in "[{" else -1))
            elif not depth and key in self.anchors and key not in keys:
                return match.start()
        return -1

    def _crosses(self, text: str, start: int, end: int) -> int:
        """Return the index at which `text[start:end]` leaves its call, -1 if it does not.

        It does at a special token, and at a bracket that closes more than was opened if an object with a key of a call
        follows. JSON and code inside a string close what they open.
        """
        depth, left = 0, -1
        for match in _BRACKET.finditer(text, start, end):
            char = match[0][0]
            if char == "<":
                return match.start()
            depth += 1 if char in "[{" else -1
            if depth < 0 and left < 0:
                left = match.start()
            if left >= 0 and (match[1] in ENVELOPE or match[1] in self.anchors):
                return left
        return -1

    def whole(self, text: str, end: int) -> bool:
        """Whether the value may end at `end`: after a guessed string, only if nothing after it can belong to it."""
        return not self.guessed or self.sure or self._beyond(text, end, self.guessed) is _Follows.END

    def _candidates(
        self, text: str, first: int, quote: str, stack: Sequence[Frame]
    ) -> Iterator[tuple[int, bool, _Follows]]:
        """Yield each later quote that may end the string: its index, whether parity is even, and what follows."""
        before = 0
        at = first
        for match in _CANDIDATES[quote].finditer(text, first + 1):
            where = match.start()
            if _is_escaped(text, first, where):
                continue
            before += _quotes(text, at, where, quote)
            at = where
            follows = self._follows(text, where + 1, quote, stack)
            if follows is _Follows.ANCHOR and before % 2:
                self.trusted = True
            if follows is _Follows.ANCHOR and not (before % 2 and self.trust):
                follows = _Follows.PART
            if follows is not _Follows.NOTHING:
                yield where, before % 2 == 0, follows

    def _follows(self, text: str, at: int, quote: str, stack: Sequence[Frame]) -> _Follows:
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
                return _Follows.NOTHING
            at += 1
            if closer == "]":
                return _Follows.PART if _ITEM.match(text, at) else _Follows.NOTHING
            key = _KEY.match(text, at)
            if key is None:
                return _Follows.NOTHING
            name = key[1] or key[2] or key[3] or key[4]
            return _Follows.ANCHOR if name in self.anchors and name not in keys else _Follows.PART
        return self._beyond(text, at, quote)

    def _beyond(self, text: str, at: int, quote: str) -> _Follows:
        """Return `END` if nothing, a closing tag or the next call follows a value ending at `at`; else `MAYBE_END`."""
        if _BEYOND.match(text, at) or not _ANY[quote].search(text, at):
            return _Follows.END
        following = _NEXT.match(text, at)
        if following and (following[1] in ENVELOPE or following[1] in self.anchors):
            return _Follows.END
        return _Follows.MAYBE_END


def _cut(text: str) -> Unreadable:
    return Unreadable(len(text), "the text ends inside a string", "truncated")


def _is_escaped(text: str, start: int, where: int) -> bool:
    """Whether an odd number of backslashes precedes `where`."""
    first = where
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (where - first) % 2 == 1


def _quotes(text: str, start: int, end: int, quote: str) -> int:
    """Count the quotes in `text[start:end]` that are neither escaped nor apostrophes."""
    if quote == '"' and text.find("\\", start, end) < 0:
        return text.count(quote, start, end)
    return sum(1 for match in _COUNTED[quote].finditer(text, start, end + 1) if match[1] and match.start() < end)
