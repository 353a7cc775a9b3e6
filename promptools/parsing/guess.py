"""Where a string ends whose inner quotes the model forgot to escape.

A quote ends the string when what must follow a value follows it: a comma and a key (in an object) or an item (in an
array), or closing brackets. Text inside a string may look just the same, code above all. What tells them apart is
parity: inside quoted code an odd number of quotes went before. Where an earlier and a later quote would both do, the
string is refused: a wrong value is worse than none. So is one that would run into another call: see `_crosses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias

from promptools.parsing.strings import BODIES, CLOSERS, Unreadable

Frame: TypeAlias = tuple[set[str], str]
"""An open container: the keys that it has so far, and what closes it: `]`, `}` or `}}`."""

UNESCAPED: Final = "unescaped quotes in a string"
"""The liberty, as it is noted."""
ENVELOPE: Final = frozenset({"name", "tool", "tool_name", "function", "arguments", "parameters", "tool_calls", "type"})
"""First keys of a call: they tell that the next call begins."""

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
"""A bracket, or a key behind a comma or a value: a quote or the colon may be missing."""
_NEXT = re.compile(r"""[\s;,]*+[\[{]++\s*+["']([^"'\\\n]*+)["']\s*+:""")


class _Follows(Enum):
    """What stands after a quote."""

    NOTHING = 0
    PART = 1
    ANCHOR = 2
    END = 3
    MAYBE_END = 4


class Guess:
    """One way of reading unescaped quotes; `trust` takes a declared key for the next one even at odd parity."""

    __slots__ = ("anchors", "before", "guessed", "inner", "sure", "trust", "trusted")

    def __init__(self, anchors: frozenset[str], *, before: int, trust: bool) -> None:
        self.anchors = anchors
        self.before = before
        """Where the plain reading failed: past this without a guess, so will this one."""
        self.trust = trust
        self.guessed = ""
        """The quote of a string that held unescaped ones."""
        self.inner = False
        """The string read last held unescaped quotes."""
        self.sure = False
        """The text was searched to its end: nothing after the value can belong to it."""
        self.trusted = False
        """A declared key stood at odd parity: there is another reading."""

    def end(self, text: str, start: int, quote: str, stack: Sequence[Frame]) -> int:
        """Give the index of the quote that closes the string whose inside begins at `start`. O(n) in characters."""
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
        """Return `end`, the end of a string with unescaped quotes.

        Raise `Unreadable` if it runs into another call, or into the next argument of its own.
        """
        at = self._crosses(text, start, end)
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into what follows the call", "invalid_json")
        at = self._swallows(text, start, end, stack[-1][0] if stack else set())
        if at >= 0:
            raise Unreadable(at, "a string without its closing quote runs into the next argument", "invalid_json")
        return end

    def _swallows(self, text: str, start: int, end: int, keys: set[str]) -> int:
        """Return where a declared key that is missing yet stands in `text[start:end]`, outside of brackets; else -1."""
        depth = 0
        for found in _MEMBER.finditer(text, start, end):
            key = found[1] or found[2]
            if key is None:
                depth = max(0, depth + (1 if found[0] in "[{" else -1))
            elif not depth and key in self.anchors and key not in keys:
                return found.start()
        return -1

    def _crosses(self, text: str, start: int, end: int) -> int:
        """Return where `text[start:end]` leaves the call that it is in, -1 if it does not.

        It does at a special token, and where more brackets are closed than opened before an object with a key of a
        call begins. JSON and code that are quoted close what they open.
        """
        depth, left = 0, -1
        for found in _BRACKET.finditer(text, start, end):
            char = found[0][0]
            if char == "<":
                return found.start()
            depth += 1 if char in "[{" else -1
            if depth < 0 and left < 0:
                left = found.start()
            if left >= 0 and (found[1] in ENVELOPE or found[1] in self.anchors):
                return left
        return -1

    def whole(self, text: str, end: int) -> bool:
        """Tell whether the value may end at `end`: after guessed strings, only if nothing there could belong to it."""
        return not self.guessed or self.sure or self._beyond(text, end, self.guessed) is _Follows.END

    def _candidates(
        self, text: str, first: int, quote: str, stack: Sequence[Frame]
    ) -> Iterator[tuple[int, bool, _Follows]]:
        """Give each later quote that might end the string, with whether an even number of quotes went before."""
        before = 0
        at = first
        for found in _CANDIDATES[quote].finditer(text, first + 1):
            where = found.start()
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
        """Tell what stands after the quote before `at`, given the containers that are open."""
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
        """Tell whether the value surely ends at `at`: nothing follows, a closing mark does, or the next call."""
        if _BEYOND.match(text, at) or not _ANY[quote].search(text, at):
            return _Follows.END
        following = _NEXT.match(text, at)
        if following and (following[1] in ENVELOPE or following[1] in self.anchors):
            return _Follows.END
        return _Follows.MAYBE_END


def _cut(text: str) -> Unreadable:
    return Unreadable(len(text), "the text ends inside a string", "truncated")


def _is_escaped(text: str, start: int, where: int) -> bool:
    """Tell whether an odd number of backslashes stands before `where`."""
    first = where
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (where - first) % 2 == 1


def _quotes(text: str, start: int, end: int, quote: str) -> int:
    """Count the quotes in `text[start:end]` that no backslash escapes and that are no apostrophes."""
    if quote == '"' and text.find("\\", start, end) < 0:
        return text.count(quote, start, end)
    return sum(1 for found in _COUNTED[quote].finditer(text, start, end + 1) if found[1] and found.start() < end)
