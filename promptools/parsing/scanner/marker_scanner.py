"""The scanner: the gate over all markers, and what is tried where it matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache, partial
from typing import NamedTuple

from promptools.parsing.scanner.literals import SHORT_TEXT, alternatives, character_class, prefix_tree
from promptools.parsing.scanner.marker import Marker, later_matches, lookahead_text, markers_pattern
from promptools.parsing.scanner.rare_markers import (
    LetterMarkers,
    LineStartMarkers,
    RareLiteralMarker,
    RareMarkers,
)
from promptools.patterns import lazy_pattern

PREFIX_LENGTHS = (16, 8, 2, 1)
"""Lengths of prefixes by which the markers at an offset are selected: the longest that a marker's literal has."""
WINDOW_LENGTH = PREFIX_LENGTHS[0]
"""Characters of a marker that a gate looks at, and by which the markers at an offset are remembered."""
MAX_CACHED_WINDOWS = 1024
"""Windows of text for which the markers that may begin there are remembered."""


class PossibleMarkers(NamedTuple):
    """The markers that may begin at an offset."""

    markers: tuple[Marker, ...]
    pattern: re.Pattern[str]


class MarkerScanner:
    """Search a text for markers; of two that match at one offset the earlier in the list wins."""

    def __init__(self, markers: Sequence[Marker], rare: Sequence[RareMarkers] = ()) -> None:
        self._markers = tuple(markers)
        self._rare = rare
        self._rare_literals = _literals_pattern(rare)
        literals = [text for marker in markers for text in marker.literals]
        prefixes = [text[:size] for text in literals for size in range(1, len(text))]
        self._prefixes = frozenset((*prefixes, *(text for marker in rare for text in marker.prefixes)))
        self._longest = max(map(len, self._prefixes), default=0) + 1
        self._gate: re.Pattern[str] | None = None
        known = ((text, size) for text in literals for size in PREFIX_LENGTHS[:-1])
        self._known_prefixes = frozenset(text[:size] for text, size in known if size == 2 or len(text) >= size)
        self._by_prefix: dict[str, PossibleMarkers] = {}
        self._windows: dict[str, PossibleMarkers | None] = {}
        self._first: re.Pattern[str] | None = None

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return the leftmost match from `at` on; its `lastgroup` is the marker's group."""
        match = self._search(text, at)
        if match is not None and match.start() == at:
            return match
        if not self._rare or (len(text) - at < SHORT_TEXT and self._rare_literals.search(text, at) is None):
            return match
        for marker in self._rare:
            match = marker.search(text, at, match.start() if match is not None else len(text)) or match
        return match

    def without_literals(self, literals: Set[str]) -> MarkerScanner:
        """Return a scanner for text with none of `literals`; what it holds at the end of the text is the same."""
        other = self._with_rare([marker for marker in self._rare if literals.isdisjoint(marker.search_literals)])
        other._rare_literals = _literals_pattern(other._rare)  # noqa: SLF001  a copy of itself
        return other

    def with_lines(self, lines: LineStartMarkers) -> MarkerScanner:
        """Return a scanner with these markers for lines; what it holds at the end of the text is the same."""
        return self._with_rare([lines if isinstance(rare, LineStartMarkers) else rare for rare in self._rare])

    def _with_rare(self, rare: Sequence[RareMarkers]) -> MarkerScanner:
        other = object.__new__(MarkerScanner)
        other.__dict__.update(self.__dict__)
        other._rare = rare
        return other

    def searches(self) -> list[Callable[[str, int], re.Match[str] | None]]:
        """Return searches whose nearest match is that of `search`; of two at one offset the earlier search wins."""
        return [
            self._search,
            *(partial(marker.search_literal, word) for marker in self._rare for word in marker.search_literals),
        ]

    def _search(self, text: str, at: int) -> re.Match[str] | None:
        stops = self._gate = self._gate or _gate_pattern(self._markers)
        windows, missed = self._windows, ""
        while (gate := stops.search(text, at)) is not None:
            at = gate.start()
            if missed and text.startswith(missed, at):
                at += 1
                continue
            here = windows.get(text[at : at + WINDOW_LENGTH]) or self._possible_at(text, at)
            match = here.pattern.match(text, at) if here is not None else None
            if match is not None:
                return match
            missed = lookahead_text(text, at)
            at += 1
        return None

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match that begins at `at`, markers in `rare` aside."""
        here = self._possible_at(text, at)
        return here.pattern.match(text, at) if here is not None else None

    def _possible_at(self, text: str, at: int) -> PossibleMarkers | None:
        """Return the markers that may begin at `at`, by the characters there; None if none may."""
        window = text[at : at + WINDOW_LENGTH]
        try:
            return self._windows[window]
        except KeyError:
            beginning = next(
                (prefix for size in PREFIX_LENGTHS if (prefix := window[:size]) in self._known_prefixes), None
            )
            if len(self._windows) >= MAX_CACHED_WINDOWS:
                self._windows.clear()
            here = self._windows[window] = None if beginning is None else self._possible_after(beginning)
            return here

    def _possible_after(self, prefix: str) -> PossibleMarkers:
        """Return the markers that may begin with `prefix`, few of many."""
        here = self._by_prefix.get(prefix)
        if here is None:
            markers: list[Marker] = []
            for marker in self._markers:
                literals = [text for text in marker.literals if text.startswith(prefix) or prefix.startswith(text)]
                if literals:
                    markers.append(marker if marker.pattern else marker._replace(literals=tuple(literals)))
            here = self._by_prefix[prefix] = PossibleMarkers(tuple(markers), markers_pattern(tuple(markers)))
        return here

    def match_letters(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match of a `LetterMarkers` that begins at `at`."""
        matches = (marker.match(text, at) for marker in self._rare if isinstance(marker, LetterMarkers))
        return next(filter(None, matches), None)

    def matches_from(self, text: str, match: re.Match[str]) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of `match`, and of the matches of later markers at the same offset."""
        yield match.lastgroup or "", match.end()
        for other in self._others(text, match.start(), match.lastgroup or ""):
            yield other.lastgroup or "", other.end()

    def _others(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        here = self._possible_at(text, at)
        if here is not None:
            yield from later_matches(here.markers, group, text, at)
        for rare in self._rare:
            if isinstance(rare, LetterMarkers):
                yield from rare.later_matches(text, at, group)
            elif isinstance(rare, RareLiteralMarker) and rare.group != group:
                match = rare.pattern.match(text, at)
                if match is not None:
                    yield match

    def hold_from(self, text: str, at: int) -> int:
        """Return the first index from which `text` may be the beginning of a marker, `len(text)` if there is none."""
        first = self._first = self._first or _first_character_pattern(self._prefixes)
        for match in first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[match.start() :] in self._prefixes:
                return match.start()
        return len(text)


def _literals_pattern(rare: Iterable[RareMarkers]) -> re.Pattern[str]:
    """Compile the pattern of what a text must contain for one of these to match."""
    return lazy_pattern(alternatives(word for marker in rare for word in marker.search_literals))


@lru_cache(maxsize=256)
def _first_character_pattern(prefixes: frozenset[str]) -> re.Pattern[str]:
    """Compile the pattern of a first character of `prefixes` that its second one or the end of the text follows."""
    seconds: dict[str, set[str]] = {text[0]: set() for text in prefixes}
    for text in prefixes:
        seconds[text[0]].update(text[1:2])
    grouped: dict[str, list[str]] = {}
    for first, nexts in seconds.items():
        grouped.setdefault("".join(sorted(nexts)), []).append(first)
    branches = (
        rf"{character_class(firsts)}(?:\Z|(?={character_class(nexts)}))" for nexts, firsts in grouped.items() if nexts
    )
    ends = (rf"{character_class(firsts)}\Z" for nexts, firsts in grouped.items() if not nexts)
    return re.compile("|".join([*branches, *ends]) or r"(?!)")


@lru_cache(maxsize=256)
def _gate_pattern(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    """Compile the pattern that finds at C speed where one of `markers` may begin."""
    gates = [marker.gate for marker in markers if marker.gate]
    tails: dict[str, set[str]] = {}
    for marker in markers:
        for text in () if marker.gate else marker.literals:
            tails.setdefault(text[0], set()).add(text[1:WINDOW_LENGTH])
    gates += (
        re.escape(first) + (f"(?={after})" if (after := prefix_tree(rests)) else "") for first, rests in tails.items()
    )
    return lazy_pattern("|".join(gates) or r"(?!)")
