"""Find the next marker in text that comes in pieces: one regular expression, and how much of the end to hold.

The search runs at C speed and starts where the last one ended, so a character of prose is looked at once. What is held
is the longest end of the text that may still become a marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


class Scanner:
    """Search for literals and patterns, each with the name of its group."""

    def __init__(self, literals: Mapping[str, Iterable[str]], patterns: Mapping[str, tuple[tuple[str, ...], str]]) -> None:
        """`literals`: group -> literals, which yield to patterns. `patterns`: group -> (literals that it starts with, pattern without groups).

        A pattern says what it matches at the end of the text by `\\Z`; the caller tells the unfinished match.
        """
        branches: list[tuple[str, str]] = []
        starts: set[str] = set()
        for group, (first, pattern) in patterns.items():
            branches.append((group, pattern))
            starts.update(first)
        for group, texts in literals.items():
            ordered = sorted(texts, key=len, reverse=True)
            if ordered:
                branches.append((group, "|".join(re.escape(text) for text in ordered)))
                starts.update(ordered)
        self.pattern = re.compile("|".join(f"(?P<{group}>{pattern})" for group, pattern in branches) or r"(?!)")
        self._prefixes = frozenset(text[:size] for text in starts for size in range(1, len(text)))
        self._longest = max((len(text) for text in starts), default=1)
        firsts = "".join(sorted({re.escape(text[0]) for text in starts}))
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Give the leftmost marker from `at` on; its name is `lastgroup`."""
        return self.pattern.search(text, at)

    def hold(self, text: str, at: int) -> int:
        """Give the index from which `text` may be the beginning of a marker; `len(text)` when nothing is."""
        for found in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[found.start() :] in self._prefixes:
                return found.start()
        return len(text)
