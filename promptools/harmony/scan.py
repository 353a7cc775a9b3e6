"""Harmony text as control tokens and the words between them, however it is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

NAMES = ("start", "channel", "constrain", "message", "end", "return", "call", "endoftext")
"""The control tokens that a reply is built of, or ends with."""
ENDS = frozenset(("end", "return", "call", "endoftext"))
"""Those that end a message."""


class Token(NamedTuple):
    """One control token, and how it was written: empty when the words around it tell of it alone."""

    name: str
    raw: str


Piece: TypeAlias = "str | Token"


def raw_of(piece: Piece) -> str:
    """Give a piece as it was written."""
    return piece.raw if isinstance(piece, Token) else piece


_TOKEN = re.compile(rf"<\|({'|'.join(NAMES)})\|>")
_LINES = re.compile(r"[\r\n]")
_BREAK = r"[\r\n]*"
_BROKEN = re.compile(_BREAK.join(("<", r"\|", f"({'|'.join(map(_BREAK.join, NAMES))})", r"\|", ">")))
"""The same with line ends inside."""
_PREFIXES = frozenset(f"<|{name}|>"[:size] for name in NAMES for size in range(1, len(name) + 4))
_LONGEST = max(map(len, _PREFIXES))


class Scanner:
    """Cuts text into pieces; holds back an end that may become a token: 12 characters at most.

    `broken`: line ends inside a token do not count, as in a transcript whose chunks were written on lines of their own.
    """

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        self._held = ""

    def passes(self, text: str) -> bool:
        """Tell whether a text is one piece, as it is."""
        return not self._held and "<" not in text

    def feed(self, text: str) -> Iterator[Piece]:
        """Give the pieces of what has come. O(n) in characters."""
        text = self._held + text
        at = 0
        for found in (_BROKEN if self._broken else _TOKEN).finditer(text):
            if found.start() > at:
                yield text[at : found.start()]
            yield Token(_LINES.sub("", found[1]), found[0])
            at = found.end()
        stop = self._hold(text, at)
        self._held = text[stop:]
        if stop > at:
            yield text[at:stop]

    def close(self) -> Iterator[Piece]:
        """Give what was held."""
        held, self._held = self._held, ""
        if held:
            yield held

    def _hold(self, text: str, at: int) -> int:
        """Give where the end begins that may become a token."""
        start = text.rfind("<", at if self._broken else max(at, len(text) - _LONGEST))
        if start < 0:
            return len(text)
        tail = text[start:]
        return start if (_LINES.sub("", tail) if self._broken else tail) in _PREFIXES else len(text)
