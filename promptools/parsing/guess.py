"""Where a string ends whose inner quotes the model forgot to escape.

A quote ends the string when what must follow a value follows it: a comma and a key (in an object) or an item (in an
array), or closing brackets. Text inside a string may look just the same, code above all. What tells them apart is
parity: inside quoted code an odd number of quotes went before. Where an earlier and a later quote would both do, the
string is refused: a wrong value is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from promptools.parsing.strings import BODIES, CLOSERS, Unreadable

Frame: TypeAlias = tuple["dict[str, Any] | list[Any]", str]
"""An open container, and what closes it: `]`, `}` or `}}`."""

ENVELOPE: Final = frozenset({"name", "tool", "tool_name", "function", "arguments", "parameters", "tool_calls", "type"})
"""First keys of a call: they tell that the next call begins."""

_CANDIDATES = {quote: re.compile(rf"[{close}](?=\s*+[,}}\]])") for quote, close in CLOSERS.items()}
_ANY = {quote: re.compile(f"[{close}]") for quote, close in CLOSERS.items()}
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_SPACE = re.compile(r"\s*+")
_KEY = re.compile(r"""\s*+(?:"([^"\\\n]*+)"|'([^'\\\n]*+)'|[“”]([^“”\\\n]*+)[“”]|([^\W\d]\w*+))\s*+:""")
_ITEM = re.compile(r"""\s*+(?:["'“‘\[{]|-?[0-9]|(?:true|false|null|True|False|None)\b)""")
_BEYOND = re.compile(r"\s*+(?:\Z|</|<\||```|\[/)")
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

    __slots__ = ("anchors", "guessed", "inner", "trust", "trusted")

    def __init__(self, anchors: frozenset[str], *, trust: bool) -> None:
        self.anchors = anchors
        self.trust = trust
        self.guessed = ""
        """The quote of a string that held unescaped ones."""
        self.inner = False
        """The string read last held unescaped quotes."""
        self.trusted = False
        """A declared key stood at odd parity: there is another reading."""

    def end(self, text: str, start: int, quote: str, stack: Sequence[Frame]) -> int:
        """Give the index of the quote that closes the string whose inside begins at `start`. O(n) in characters."""
        self.inner = False
        first = BODIES[quote].match(text, start)
        if first is None:
            raise _cut(text)
        at = first.end() + 1
        if self._follows(text, at, quote, stack) is not _Follows.NOTHING:
            return first.end()
        before = _quotes(text, at - 1, at, quote)
        skipped = False
        maybe: list[tuple[int, bool]] = []
        for found in _CANDIDATES[quote].finditer(text, at):
            where = found.start()
            if _is_escaped(text, start, where):
                continue
            before += _quotes(text, at, where, quote)
            at = where + 1
            follows = self._follows(text, at, quote, stack)
            even = before % 2 == 0
            before += 1
            if follows is _Follows.ANCHOR and not even:
                self.trusted = True
                even = self.trust
            match follows:
                case _Follows.PART | _Follows.ANCHOR if even:
                    if maybe:
                        raise _ambiguous(where)
                    return self._done(where, quote)
                case _Follows.PART | _Follows.ANCHOR:
                    skipped = True
                case _Follows.END:
                    if any(was_even for _, was_even in maybe) or (not even and (maybe or skipped)):
                        raise _ambiguous(where)
                    return self._done(where, quote)
                case _Follows.MAYBE_END:
                    if maybe and maybe[0][1]:
                        raise _ambiguous(where)
                    maybe.append((where, even))
                case _Follows.NOTHING:
                    pass
        if len(maybe) == 1:
            return self._done(maybe[0][0], quote)
        if text.rstrip().endswith(("}", "]")):
            raise Unreadable(start, "a string has no end that can be told", "invalid_json")
        raise _cut(text)

    def whole(self, text: str, end: int) -> bool:
        """May the value end at `end`? With guessed strings only if nothing after it could belong to it."""
        return not self.guessed or self._beyond(text, end, self.guessed) is _Follows.END

    def _done(self, where: int, quote: str) -> int:
        self.inner = True
        self.guessed = quote
        return where

    def _follows(self, text: str, at: int, quote: str, stack: Sequence[Frame]) -> _Follows:
        """Tell what stands after the quote before `at`, given the containers that are open."""
        depth = len(stack)
        while depth:
            container, closer = stack[depth - 1]
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
            if isinstance(container, list):
                return _Follows.PART if _ITEM.match(text, at) else _Follows.NOTHING
            key = _KEY.match(text, at)
            if key is None:
                return _Follows.NOTHING
            name = key[1] or key[2] or key[3] or key[4]
            return _Follows.ANCHOR if name in self.anchors and name not in container else _Follows.PART
        return self._beyond(text, at, quote)

    def _beyond(self, text: str, at: int, quote: str) -> _Follows:
        """Tell whether the value surely ends at `at`: nothing follows, a closing mark does, or the next call."""
        if _BEYOND.match(text, at) or not _ANY[quote].search(text, at):
            return _Follows.END
        following = _NEXT.match(text, at)
        if following and (following[1] in ENVELOPE or following[1] in self.anchors):
            return _Follows.END
        return _Follows.MAYBE_END


def _ambiguous(where: int) -> Unreadable:
    return Unreadable(where, "inner quotes are not escaped, and more than one may end the string", "invalid_json")


def _cut(text: str) -> Unreadable:
    return Unreadable(len(text), "the text ends inside a string", "truncated")


def _is_escaped(text: str, start: int, where: int) -> bool:
    """Does an odd number of backslashes stand before `where`?"""
    first = where
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (where - first) % 2 == 1


def _quotes(text: str, start: int, end: int, quote: str) -> int:
    """Count the quotes in a stretch that no backslash escapes and that are no apostrophes."""
    stretch = text[start:end]
    if "\\" in stretch:
        stretch = _ESCAPED.sub("", stretch)
    if quote != '"':
        stretch = _APOSTROPHE.sub("", stretch)
    return sum(stretch.count(mark) for mark in CLOSERS[quote])
