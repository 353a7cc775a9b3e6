"""Markers that begin with common characters, and are searched for by themselves: by something rarer in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from promptools.parsing.scanner.literals import SHORT_TEXT, alternatives, prefix_tree, rare_character
from promptools.parsing.scanner.marker import Marker, later_matches, lookahead_text
from promptools.patterns import lazy_pattern

LETTERS = 4
"""Letters of a marker that are searched for: many begin alike."""


class RareLiteralMarker(NamedTuple):
    """A marker that begins with common letters but contains a literal that is rare in prose, which is searched for.

    `search_literals`: those literals. `max_before` and `max_after`: how far before and after one `pattern` may match.
    `prefixes`: the prefixes of the marker to hold back at the end of the text.
    """

    group: str
    search_literals: tuple[str, ...]
    pattern: re.Pattern[str]
    max_before: int
    max_after: int
    prefixes: Collection[str]
    first_characters: frozenset[str] = frozenset()
    """Characters that a text may begin with if it begins with one."""

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where none of its words occurs."""
        return _leftmost_match(self, text, at, stop)

    def search_literal(self, literal: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the leftmost match that contains `literal`."""
        stop = len(text) if stop is None else stop
        found_at = text.find(literal, at, stop + len(literal))
        while found_at >= 0:
            match = self.pattern.search(text, max(at, found_at - self.max_before), found_at + self.max_after)
            if match is not None and match.start() < stop:
                return match
            found_at = text.find(literal, found_at + 1, stop + len(literal))
        return None


class LetterMarkers:
    """Markers that begin with letters, searched for by themselves, since letters would stop a gate too often.

    Of two at one offset the earlier in the list wins.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        self._markers = markers
        literals = [text for marker in markers for text in marker.literals]
        self.search_literals = tuple(dict.fromkeys(text[:LETTERS] for text in literals))
        self._any = lazy_pattern(alternatives(self.search_literals))
        self.prefixes = frozenset(text[:size] for text in literals for size in range(1, len(text)))
        self._longest = max(map(len, literals))
        by_word = {word: {text for text in literals if text.startswith(word)} for word in self.search_literals}
        self._rare_characters = {word: {rare_character(text) for text in texts} for word, texts in by_word.items()}
        self._gates = {word: lazy_pattern(prefix_tree(texts)) for word, texts in by_word.items()}
        self._pattern = lazy_pattern(
            "|".join(
                f"(?P<{marker.group}>(?={alternatives(marker.literals)}){marker.expression})" for marker in markers
            )
        )

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match that begins at `at`."""
        return self._pattern.match(text, at) if text.startswith(self.search_literals, at) else None

    def later_matches(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        """Yield the matches that begin at `at`, of the markers after `group` in the list."""
        return later_matches(self._markers, group, text, at)

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where none of its words occurs."""
        if stop - at < SHORT_TEXT and self._any.search(text, at, stop + LETTERS) is None:
            return None
        return _leftmost_match(self, text, at, stop)

    def search_literal(self, literal: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the leftmost match of a marker that begins with `literal`."""
        stop = len(text) if stop is None else stop
        if all(text.find(sign, at, stop + self._longest) < 0 for sign in self._rare_characters[literal]):
            return None
        if text.find(literal, at, stop + len(literal)) < 0:
            return None
        missed = ""
        for gate in self._gates[literal].finditer(text, at, min(len(text), stop + self._longest)):
            begin = gate.start()
            if begin >= stop:
                break
            if missed and text.startswith(missed, begin):
                continue
            match = self._pattern.match(text, begin)
            if match is not None:
                return match
            missed = lookahead_text(text, begin)
        return None


def _leftmost_match(marker: RareLiteralMarker | LetterMarkers, text: str, at: int, stop: int) -> re.Match[str] | None:
    """Return the leftmost match of any of a marker's words."""
    leftmost: re.Match[str] | None = None
    for word in marker.search_literals:
        match = marker.search_literal(word, text, at, stop)
        if match is not None:
            leftmost, stop = match, match.start()
    return leftmost


INDENT = r"\n(?:\t{1,2}+| {0,8}+)"


@lru_cache(maxsize=64)
def _line_pattern(heads: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    # one group for all: a branch that is no group is left at once where its first character is another
    branches = "|".join(pattern for _, pattern in heads)
    return lazy_pattern(rf"{INDENT}(?P<{heads[0][0]}>{branches})")


class LineGate(Protocol):
    """Finds the lines that may begin with a marker, at little cost."""

    def search(self, text: str, at: int, stop: int) -> int:
        """Return the offset of the first line break in `text[at:stop]` after which one may; -1: none."""
        ...

    def ends_unfinished(self, text: str, line: int) -> bool:
        """Whether the last line, after the line break at `text[line]`, may become one that does."""
        ...


class LineStartMarkers:
    """Markers that begin only at the beginning of a line; a match includes the line break before it.

    `gate` finds the lines; `heads` are the full patterns, by group. A match has the group of the first head, whichever
    matched, since several may begin at one offset.
    """

    search_literals = ("\n",)
    prefixes = ("\n\t", "\n\t\t", *(f"\n{' ' * size}" for size in range(9)))
    """A line break and an indent: a line that is indented more is no call."""
    _GATE_LENGTH = 256
    """Characters that a gate looks at: a limit, so that the text after `stop` is not searched again and again."""

    def __init__(self, gate: LineGate, heads: Mapping[str, str]) -> None:
        self._gate = gate
        self._pattern = _line_pattern(tuple(heads.items()))

    def with_gate(self, gate: LineGate) -> LineStartMarkers:
        """Return a copy with another gate."""
        other = copy(self)
        other._gate = gate  # noqa: SLF001  a copy of itself
        return other

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where no line passes the gate."""
        if text.find("\n", at, stop) < 0:
            return None
        limit = min(len(text), stop + self._GATE_LENGTH)
        search, match, missed = self._gate.search, self._pattern.match, ""
        while True:
            begin = search(text, at, limit)
            at = begin if begin >= 0 else self._last_line(text, at)
            if not 0 <= at < stop:
                return None
            if not missed or not text.startswith(missed, at):
                full_match = match(text, at)
                if full_match is not None:
                    return full_match
                missed = lookahead_text(text, at)
            at += 1

    def _last_line(self, text: str, at: int) -> int:
        """Return the offset of the last line break if the line after it is unfinished; -1: it is not."""
        begin = text.rfind("\n", max(at, len(text) - self._GATE_LENGTH))
        return begin if begin >= 0 and self._gate.ends_unfinished(text, begin) else -1

    def search_literal(self, literal: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return what `search` does: its only word is the line break."""
        del literal
        return self.search(text, at, len(text) if stop is None else stop)


RareMarkers: TypeAlias = RareLiteralMarker | LineStartMarkers | LetterMarkers
