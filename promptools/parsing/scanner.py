r"""Find the next marker in text that arrives in chunks, and how much of the end of the text to hold back.

There are hundreds of markers, most text is prose, and `re` has no efficient search for many literals. So a search has
two steps. First, one regular expression, the *gate*, finds the first sixteen characters of any marker, at C speed.
Where the gate matches, the full patterns of the markers that begin with these characters are tried once. A cache maps
the characters to these markers.

Markers that begin with common letters, or with a line break, would stop the gate too often. They are searched for
separately: by a rarer literal inside them (`RareLiteralMarker`), by a few first letters (`LetterMarkers`), or at the
beginning of a line (`LineStartMarkers`). The leftmost match is returned; of two matches at the same offset, the one
whose marker is earlier in the list.

If the text ends with the beginning of a marker's literal, this part of the text is held back until more text arrives
(`MarkerScanner.hold_from`). A pattern that contains `\Z` may also match an incomplete marker at the end of the text;
the caller then decides whether the marker is complete.

All searches are O(n). Two kinds of text need special care for that. First, a model caught in a loop repeats the same
near miss: an offset is skipped if its text equals the text of the last miss (`lookahead_text`). Second, a text may have
many markers that do not begin a call: such a text is searched with a `ForwardSearch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import cached_property, lru_cache, partial
from os.path import commonprefix
from typing import NamedTuple, Protocol, TypeAlias

from promptools.patterns import lazy_pattern

# Sets of literals, and the patterns that are built from them.


SHORT_TEXT = 256
"""Length of a text below which one search for all literals costs less than one search for each literal."""


def alternatives(literals: Iterable[str]) -> str:
    """Return a pattern that matches any of the literals; without literals, the pattern never matches."""
    return f"(?:{'|'.join(map(re.escape, literals)) or '(?!)'})"


def rare_character(literal: str) -> str:
    """Return the first character in a literal that is rare in prose: neither a letter, a digit nor white space."""
    return next((char for char in literal if not char.isalnum() and not char.isspace()), "")


def character_class(characters: Iterable[str]) -> str:
    """Return a pattern that matches any one of the characters."""
    return f"[{''.join(map(re.escape, sorted(characters)))}]"


def prefix_tree(words: Set[str]) -> str:
    """Return a pattern that matches the shortest of `words` at an offset.

    The pattern is a prefix tree, which examines each character once.
    """
    if "" in words:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    trees = {first: prefix_tree(rests) for first, rests in sorted(by_first.items())}
    ends = [first for first, tree in trees.items() if not tree]
    branches = [re.escape(first) + tree for first, tree in trees.items() if tree]
    if ends:
        branches.append(character_class(ends) if len(ends) > 1 else re.escape(ends[0]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


class LiteralSet:
    """Tests whether a text contains any of several literals; in a long text, looks for rare characters first."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals)
        self._by_rare_character: dict[str, list[str]] = {}
        for word in sorted(self.literals):
            self._by_rare_character.setdefault(rare_character(word), []).append(word)
        plain = self._by_rare_character.pop("", [])
        if plain:
            self._by_rare_character[commonprefix(plain)] = plain  # noqa: RUF071  characters are what is compared
        self._any = lazy_pattern(alternatives(sorted(self.literals)))

    def occurs_in(self, text: str) -> bool:
        """Return whether `text` contains one of the literals. O(n), at C speed."""
        if len(text) < SHORT_TEXT:
            return self._any.search(text) is not None
        return any(
            sign in text and any(word in text for word in words) for sign, words in self._by_rare_character.items()
        )


# One kind of marker, and its pattern.


MAX_LOOKAHEAD = 1024
"""Maximum number of characters, from the beginning of a marker, that its pattern may look at."""


class Marker(NamedTuple):
    r"""One kind of marker to search for: literals, or a pattern without groups that starts with one of the literals.

    `group` names the marker: it is the `lastgroup` of a match. A pattern with `\Z` also matches a marker that is
    incomplete at the end of the text; the caller checks for that. `gate` is a pattern of the marker's first characters,
    which the scanner's first, quick search uses instead of the literals.
    """

    group: str
    literals: tuple[str, ...]
    pattern: str = ""
    gate: str = ""
    joins_runs: bool = False
    """Whether a run of the same literal is one match, except for its last repetition, which is the next match.

    Closing tags are never joined.
    """

    @property
    def expression(self) -> str:
        """The regular expression of the whole marker."""
        if self.pattern:
            return self.pattern
        literals = sorted(self.literals, key=len, reverse=True)
        again = [re.escape(text) for text in literals if self.joins_runs and not text.startswith("</")]
        return "|".join([*(f"(?:{text})+(?={text})" for text in again), *map(re.escape, literals)])


def markers_by_group(groups: Mapping[str, Iterable[str]]) -> list[Marker]:
    """Return one marker per group of literals."""
    return [Marker(group, tuple(texts)) for group, texts in groups.items() if texts]


@lru_cache(maxsize=1024)
def marker_pattern(marker: Marker) -> re.Pattern[str]:
    """Return the compiled pattern of a marker, as a regex group with the name `marker.group`."""
    return re.compile(f"(?P<{marker.group}>{marker.expression})")


LONG_PATTERN = 1000
"""Length above which a joint pattern of several markers is compiled only after `OFTEN` uses."""
OFTEN = 500
"""Number of times that markers are matched one by one before their joint pattern is compiled.

That many matches take about as long as the compilation.
"""


class FirstMarker:
    """Finds the first of several markers that matches at an offset.

    A pattern of dozens of markers takes a tenth of a second to compile, and the order of the markers differs with the
    dialect that a request expects. So at first the markers are tried one after the other, with patterns that all
    scanners share.
    """

    def __init__(self, markers: tuple[Marker, ...]) -> None:
        self.markers = markers
        self._expression = "|".join(f"(?P<{marker.group}>{marker.expression})" for marker in markers) or r"(?!)"
        self._is_long = len(markers) > 1 and len(self._expression) > LONG_PATTERN
        self._uses = 0
        self._all: re.Pattern[str] | None = None

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match at the offset `at`, or None.

        The match's `lastgroup` is the `group` of the marker that matched.
        """
        if self._all is not None:
            return self._all.match(text, at)
        if self._is_long and self._uses < OFTEN:
            self._uses += 1
            return next(filter(None, (marker_pattern(marker).match(text, at) for marker in self.markers)), None)
        self._all = re.compile(self._expression)
        return self._all.match(text, at)


@lru_cache(maxsize=1024)
def first_marker(markers: tuple[Marker, ...]) -> FirstMarker:
    """Return a `FirstMarker` for these markers; the same markers in the same order share one object."""
    return FirstMarker(markers)


def later_matches(markers: Iterable[Marker], group: str, text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield the matches at `at` of the markers that come after the marker `group` in the list."""
    later = False
    for marker in markers:
        match = marker_pattern(marker).match(text, at) if later else None
        if match is not None:
            yield match
        later = later or marker.group == group


def lookahead_text(text: str, at: int) -> str:
    """Return the text at `at` that a marker's pattern may examine; empty near the end of the text.

    If no marker begins at `at`, then none begins where the same text is repeated. So a model caught in a loop costs
    little. Near the end of the text this is not certain, since a pattern may match the end.
    """
    ahead = text[at : at + MAX_LOOKAHEAD]
    return ahead if len(ahead) == MAX_LOOKAHEAD else ""


# Markers that begin with common characters. Each is searched for separately, by a rarer part of it.


LETTERS = 4
"""Number of a marker's first letters that are searched for. Many markers share these, so few searches suffice."""


class RareLiteralMarker(NamedTuple):
    """A marker that begins with common letters, and so is searched for by a literal inside it that is rare in prose.

    `search_literals`: the rare literals. `max_before` and `max_after`: how far before and after the beginning of such a
    literal a match of `pattern` may reach. `prefixes`: the prefixes of the marker to hold back at the end of the text.
    """

    group: str
    search_literals: tuple[str, ...]
    pattern: re.Pattern[str]
    max_before: int
    max_after: int
    prefixes: Collection[str]
    first_characters: frozenset[str] = frozenset()
    """The characters that this marker may begin with."""

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where no search literal occurs."""
        return _leftmost_match(self, text, at, stop)

    def search_literal(self, literal: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the leftmost match that contains `literal`."""
        stop = len(text) if stop is None else stop
        literal_stop = stop + self.max_before + len(literal)  # a match before `stop` may contain a literal after it
        found_at = text.find(literal, at, literal_stop)
        while found_at >= 0:
            match = self.pattern.search(text, max(at, found_at - self.max_before), found_at + self.max_after)
            if match is not None and match.start() < stop:
                return match
            found_at = text.find(literal, found_at + 1, literal_stop)
        return None


class LetterMarkers:
    """Markers that begin with letters. Letters are common, so a `MarkerScanner` searches for these markers separately.

    If two markers match at the same offset, the marker that is earlier in the list takes precedence.
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
        """Yield the matches at `at` of the markers that come after the marker `group` in the list."""
        return later_matches(self._markers, group, text, at)

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where no search literal occurs."""
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
    """Return the leftmost match in `text[at:stop]` that is found by any of the marker's search literals."""
    leftmost: re.Match[str] | None = None
    for word in marker.search_literals:
        match = marker.search_literal(word, text, at, stop)
        if match is not None:
            leftmost, stop = match, match.start()
    return leftmost


INDENT = r"\n(?:\t{1,2}+| {0,8}+)"


@lru_cache(maxsize=64)
def _line_pattern(heads: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    # one group for all branches: a branch that is not a group fails at once if the first character differs
    branches = "|".join(pattern for _, pattern in heads)
    return lazy_pattern(rf"{INDENT}(?P<{heads[0][0]}>{branches})")


class LineGate(Protocol):
    """Finds, at little cost, the lines that may begin with a marker."""

    def search(self, text: str, at: int, stop: int) -> int:
        """Return the offset of the first line break in `text[at:stop]` after which a marker may begin; -1 if none."""
        ...

    def ends_unfinished(self, text: str, line: int) -> bool:
        """Return whether the last line may turn out to begin with a marker when further text arrives.

        The last line begins after the line break at `text[line]`.
        """
        ...


class LineStartMarkers:
    """Markers that begin only at the beginning of a line; a match includes the line break before it.

    `gate` finds lines that may begin with a marker; `heads` maps groups to full patterns. Every match has the group of
    the first head, whichever head matched: several heads may match at the same offset, so the caller tries them there.
    """

    search_literals = ("\n",)
    prefixes = ("\n\t", "\n\t\t", *(f"\n{' ' * size}" for size in range(9)))
    """A line break with each indent that a call may have, one string per indent.

    A line that is indented further does not begin a call.
    """
    _GATE_LENGTH = 256
    """Maximum number of characters after its argument `stop` that `search` passes to the gate.

    A later search reads these characters again, so the number is small. The last line break of the text is looked for
    in at most as many characters.
    """

    def __init__(self, gate: LineGate, heads: Mapping[str, str]) -> None:
        self._gate = gate
        self._pattern = _line_pattern(tuple(heads.items()))

    def with_gate(self, gate: LineGate) -> LineStartMarkers:
        """Return a copy that uses another `LineGate`."""
        other = copy(self)
        other._gate = gate  # noqa: SLF001  a copy of itself
        return other

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n).

        Lines that the `LineGate` rules out cost little.
        """
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
        """Return the offset of the last line break if a marker may still arrive in the line after it; else -1."""
        begin = text.rfind("\n", max(at, len(text) - self._GATE_LENGTH))
        return begin if begin >= 0 and self._gate.ends_unfinished(text, begin) else -1

    def search_literal(self, literal: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the result of `search`, since the only search literal is the line break."""
        del literal
        return self.search(text, at, len(text) if stop is None else stop)


RareMarkers: TypeAlias = RareLiteralMarker | LineStartMarkers | LetterMarkers


# The scanner: the gate for all markers, and what is tried where the gate matches.


PREFIX_LENGTHS = (16, 8, 2, 1)
"""Lengths of the prefixes that select the markers to try at an offset, in the order in which the lengths are tried.

The longest of these prefixes with which any marker begins is used.
"""
WINDOW_LENGTH = PREFIX_LENGTHS[0]
"""Length of a window: the characters at an offset that the gate's pattern examines.

A window is also the key under which the markers that may begin with it are cached.
"""
MAX_CACHED_WINDOWS = 1024
"""Maximum number of windows for which the possible markers are cached."""


class MarkerScanner:
    """Searches a text for markers, such as tags and special tokens.

    If two markers match at the same offset, the one that is earlier in the list takes precedence. `rare`: markers that
    begin with common characters, so that each is searched for separately.
    """

    def __init__(self, markers: Sequence[Marker], rare: Sequence[RareMarkers] = ()) -> None:
        self._markers = tuple(markers)
        self._rare = rare
        self._rare_literals = _literals_pattern(rare)
        literals = [text for marker in markers for text in marker.literals]
        self._unfinished = _UnfinishedMarkers(literals, rare)
        self._gate: re.Pattern[str] | None = None
        known = ((text, size) for text in literals for size in PREFIX_LENGTHS[:-1])
        self._known_prefixes = frozenset(text[:size] for text, size in known if size == 2 or len(text) >= size)
        self._by_prefix: dict[str, FirstMarker] = {}
        self._windows: dict[str, FirstMarker | None] = {}

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return the leftmost match from `at` on; the `lastgroup` of the match is the marker's group."""
        match = self._search(text, at)
        if match is not None and match.start() == at:
            return match
        if not self._rare or (len(text) - at < SHORT_TEXT and self._rare_literals.search(text, at) is None):
            return match
        for marker in self._rare:
            match = marker.search(text, at, match.start() if match is not None else len(text)) or match
        return match

    def without_literals(self, literals: Set[str]) -> MarkerScanner:
        """Return a scanner for text that contains none of `literals`.

        At the end of a text, the returned scanner holds back the same characters as this scanner.
        """
        other = self._with_rare([marker for marker in self._rare if not {*marker.search_literals} <= literals])
        other._rare_literals = _literals_pattern(other._rare)  # noqa: SLF001  a copy of itself
        return other

    def with_lines(self, lines: LineStartMarkers) -> MarkerScanner:
        """Return a copy of this scanner that searches for other markers at the start of lines.

        At the end of a text, the copy holds back the same characters as this scanner.
        """
        return self._with_rare([lines if isinstance(rare, LineStartMarkers) else rare for rare in self._rare])

    def _with_rare(self, rare: Sequence[RareMarkers]) -> MarkerScanner:
        other = object.__new__(MarkerScanner)
        other.__dict__.update(self.__dict__)
        other._rare = rare
        return other

    def searches(self) -> list[Callable[[str, int], re.Match[str] | None]]:
        """Return functions that each search for a part of the markers.

        The leftmost of their matches is the match that `search` returns. If two functions match at the same offset, the
        match of the function that is earlier in the list is used.
        """
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
            match = here.match(text, at) if here is not None else None
            if match is not None:
                return match
            missed = lookahead_text(text, at)
            at += 1
        return None

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match that begins at `at`, ignoring the markers in `rare`."""
        here = self._possible_at(text, at)
        return here.match(text, at) if here is not None else None

    def _possible_at(self, text: str, at: int) -> FirstMarker | None:
        """Return the markers that may begin with the characters at `at`; None if there are none."""
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

    def _possible_after(self, prefix: str) -> FirstMarker:
        """Return the few markers that may begin with `prefix`."""
        here = self._by_prefix.get(prefix)
        if here is None:
            markers: list[Marker] = []
            for marker in self._markers:
                literals = [text for text in marker.literals if text.startswith(prefix) or prefix.startswith(text)]
                if literals:
                    markers.append(marker if marker.pattern else marker._replace(literals=tuple(literals)))
            here = self._by_prefix[prefix] = first_marker(tuple(markers))
        return here

    def match_letters(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match at `at` of a marker that begins with a letter; None if there is none."""
        matches = (marker.match(text, at) for marker in self._rare if isinstance(marker, LetterMarkers))
        return next(filter(None, matches), None)

    def matches_from(self, text: str, match: re.Match[str]) -> Iterator[tuple[str, int]]:
        """Yield the group and end of `match`, then those of each match of a later marker at the same offset."""
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
        """Return the first index >= `at` from which the rest of `text` may become a marker; `len(text)` if none."""
        unfinished = self._unfinished
        for match in unfinished.start.finditer(text, max(at, len(text) - unfinished.longest)):
            if text[match.start() :] in unfinished.prefixes:
                return match.start()
        return len(text)


class _UnfinishedMarkers:
    """Holds the prefixes of markers: a text that ends with such a prefix may continue with the rest of the marker.

    The prefixes are computed on first use, and copies of a scanner share them.
    """

    def __init__(self, literals: Sequence[str], rare: Sequence[RareMarkers]) -> None:
        self._literals = literals
        self._rare = rare

    @cached_property
    def prefixes(self) -> frozenset[str]:
        prefixes = (text[:size] for text in self._literals for size in range(1, len(text)))
        return frozenset((*prefixes, *(text for marker in self._rare for text in marker.prefixes)))

    @cached_property
    def longest(self) -> int:
        """The length of the longest prefix."""
        return max(map(len, self.prefixes), default=0)

    @cached_property
    def start(self) -> re.Pattern[str]:
        return _first_character_pattern(self.prefixes)


def _literals_pattern(rare: Iterable[RareMarkers]) -> re.Pattern[str]:
    """Return the pattern of all search literals of the markers: one of them occurs wherever a marker matches."""
    return lazy_pattern(alternatives(word for marker in rare for word in marker.search_literals))


@lru_cache(maxsize=256)
def _first_character_pattern(prefixes: frozenset[str]) -> re.Pattern[str]:
    """Compile the pattern of a prefix's first character, followed by its second character or the end of the text."""
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
    """Return the pattern that finds, at C speed, where one of `markers` may begin."""
    gates = [marker.gate for marker in markers if marker.gate]
    tails: dict[str, set[str]] = {}
    for marker in markers:
        for text in () if marker.gate else marker.literals:
            tails.setdefault(text[0], set()).add(text[1:WINDOW_LENGTH])
    gates += (
        re.escape(first) + (f"(?={after})" if (after := prefix_tree(rests)) else "") for first, rests in tails.items()
    )
    return lazy_pattern("|".join(gates) or r"(?!)")


# A search through one text that remembers its matches.


class ForwardSearch:
    """Searches one text from front to back, and remembers the next match of each of the scanner's searches.

    It is used for text with many markers that do not begin a call. All searches together are O(n). Without remembered
    matches, each search might go through the whole rest of the text for the next occurrence of a rare marker.
    """

    def __init__(self, scanner: MarkerScanner, text: str) -> None:
        self.scanner = scanner
        self.text = text
        self._sources = scanner.searches()
        self._next_matches: list[re.Match[str] | None] = []
        self._at = 0

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return the leftmost match from `at` on, the same as `MarkerScanner.search` returns."""
        assert text is self.text
        if not self._next_matches or at < self._at:
            self._next_matches = [source(self.text, at) for source in self._sources]
        self._at = at
        nearest: re.Match[str] | None = None
        for index, match in enumerate(self._next_matches):
            if match is not None and match.start() < at:
                # the next match of this source
                match = self._next_matches[index] = self._sources[index](self.text, at)  # noqa: PLW2901
            if match is not None and (nearest is None or match.start() < nearest.start()):
                nearest = match
        return nearest
