r"""Find the next marker in text that arrives in chunks, and how much of the end of the text to hold back.

There are hundreds of markers, most of the text is prose, and `re` has no efficient search for many literals. So a
search has two steps. A *gate*, one regular expression over the first sixteen characters of every marker, runs over
prose at C speed. Where it matches, the full patterns of the markers that begin with these characters are tried, once.
Which those are is remembered by the characters.

Markers that begin with common letters, or with the end of a line, would stop the gate too often. They are searched for
by themselves: by a rarer literal inside them (`RareMarker`), by a few first letters (`WordMarker`), or at the beginning
of a line (`LineMarker`). Of two matches the leftmost wins, of two at one offset the earlier in the list.

When the text ends, its longest suffix that is a proper prefix of a marker's literal is held back until more text
arrives (`Scanner.hold`). A marker with a pattern matches at the end of the text by `\Z`, and its caller decides.

All searches are O(n). What would break that, a model caught in a loop that repeats the same near miss, is skipped
by comparison with the text of the last miss (`_ahead`); text in which many markers are found that begin nothing is
searched with a `Sweep`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import lru_cache, partial
from os.path import commonprefix
from typing import NamedTuple

FEW = 256
"""Characters of a text below which one search for all literals costs less than one search for each."""


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, words)) or '(?!)'})"


def _sign(word: str) -> str:
    """Return the first character of a literal that is rare in prose, empty if there is none."""
    return next((char for char in word if not char.isalnum() and not char.isspace()), "")


class AnyOf:
    """A set of literals, to test whether a text contains any: their rare characters are searched for first."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(words)
        self._by_sign: dict[str, list[str]] = {}
        for word in sorted(self.words):
            self._by_sign.setdefault(_sign(word), []).append(word)
        plain = self._by_sign.pop("", [])
        if plain:
            self._by_sign[commonprefix(plain)] = plain  # noqa: RUF071  characters are what is compared
        self._any = re.compile(_any(sorted(self.words)))

    def stands_in(self, text: str) -> bool:
        """Whether `text` contains one of the literals. O(n), at C speed."""
        if len(text) < FEW:
            return self._any.search(text) is not None
        return any(sign in text and any(word in text for word in words) for sign, words in self._by_sign.items())


class Marker(NamedTuple):
    r"""One kind of marker: literals, or a pattern (without groups) that starts with one of them.

    A pattern matches a marker that is incomplete at the end of the text by `\Z`; the caller checks for that. `gate` is
    a pattern of its first characters that replaces the literals in the gate of the scanner.
    """

    group: str
    literals: tuple[str, ...]
    pattern: str = ""
    gate: str = ""
    runs: bool = False
    """Whether a run of one literal, unless it is a closing tag, is one match except for the last."""

    @property
    def expression(self) -> str:
        """The regular expression of the whole marker."""
        if self.pattern:
            return self.pattern
        literals = sorted(self.literals, key=len, reverse=True)
        again = [re.escape(text) for text in literals if self.runs and not text.startswith("</")]
        return "|".join([*(f"(?:{text})+(?={text})" for text in again), *map(re.escape, literals)])


class RareMarker(NamedTuple):
    """A marker that begins with common letters but contains a literal that is rare in prose, which is searched for.

    `words`: those literals. `back` and `ahead`: how far before and after one of them `pattern` may match. `holds`: the
    prefixes of the marker to hold back at the end of the text.
    """

    group: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    back: int
    ahead: int
    holds: Collection[str]
    firsts: frozenset[str] = frozenset()
    """Characters that a text may begin with if it begins with one."""

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where none of its words occurs."""
        return _leftmost(self, text, at, stop)

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the leftmost match that contains `word`."""
        stop = len(text) if stop is None else stop
        found_at = text.find(word, at, stop + len(word))
        while found_at >= 0:
            match = self.pattern.search(text, max(at, found_at - self.back), found_at + self.ahead)
            if match is not None and match.start() < stop:
                return match
            found_at = text.find(word, found_at + 1, stop + len(word))
        return None


def _leftmost(marker: RareMarker | WordMarker, text: str, at: int, stop: int) -> re.Match[str] | None:
    """Return the leftmost match of any of a marker's words."""
    leftmost: re.Match[str] | None = None
    for word in marker.words:
        match = marker.search_word(word, text, at, stop)
        if match is not None:
            leftmost, stop = match, match.start()
    return leftmost


def _behind(markers: Iterable[Marker], group: str, text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield the matches at `at` of the markers after `group`."""
    later = False
    for marker in markers:
        match = _alone(marker).match(text, at) if later else None
        if match is not None:
            yield match
        later = later or marker.group == group


SIZES = (16, 8, 2, 1)
"""Lengths of prefixes by which the markers at an offset are selected: the longest that a marker's literal has."""
WINDOW = SIZES[0]
"""Characters of a marker that a gate looks at, and by which the markers at an offset are remembered."""
WINDOWS = 1024
"""Windows of text for which the markers that may begin there are remembered."""
AHEAD = 1024
"""Characters after its beginning that a marker's pattern may look at."""
BEGINNING = 4
"""Letters of a marker that are searched for: many begin alike."""


class WordMarker:
    """Markers that begin with letters, searched for by themselves, since letters would stop a gate too often.

    Of two at one offset the earlier in the list wins.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        self._markers = markers
        literals = [text for marker in markers for text in marker.literals]
        self.words = tuple(dict.fromkeys(text[:BEGINNING] for text in literals))
        self._any = re.compile(_any(self.words))
        self.holds = frozenset(text[:size] for text in literals for size in range(1, len(text)))
        self._longest = max(map(len, literals))
        by_word = {word: {text for text in literals if text.startswith(word)} for word in self.words}
        self._signs = {word: {_sign(text) for text in texts} for word, texts in by_word.items()}
        self._gates = {word: re.compile(_tree(texts)) for word, texts in by_word.items()}
        self._pattern = re.compile(
            "|".join(f"(?P<{marker.group}>(?={_any(marker.literals)}){marker.expression})" for marker in markers)
        )

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match that begins at `at`."""
        return self._pattern.match(text, at) if text.startswith(self.words, at) else None

    def others(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        """Yield the matches that begin at `at`, of the markers after `group` in the list."""
        return _behind(self._markers, group, text, at)

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where none of its words occurs."""
        if stop - at < FEW and self._any.search(text, at, stop + BEGINNING) is None:
            return None
        return _leftmost(self, text, at, stop)

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return the leftmost match of a marker that begins with `word`."""
        stop = len(text) if stop is None else stop
        if all(text.find(sign, at, stop + self._longest) < 0 for sign in self._signs[word]):
            return None
        if text.find(word, at, stop + len(word)) < 0:
            return None
        missed = ""
        for gate in self._gates[word].finditer(text, at, min(len(text), stop + self._longest)):
            begin = gate.start()
            if begin >= stop:
                break
            if missed and text.startswith(missed, begin):
                continue
            match = self._pattern.match(text, begin)
            if match is not None:
                return match
            missed = _ahead(text, begin)
        return None


def _ahead(text: str, at: int) -> str:
    """Return the text that a marker may look at from an offset where none begins: nor does one before the same text.

    A model caught in a loop repeats itself. Empty near the end of the text, where a pattern may match the end.
    """
    ahead = text[at : at + AHEAD]
    return ahead if len(ahead) == AHEAD else ""


INDENT = r"\n(?:\t{1,2}+| {0,8}+)"


@lru_cache(maxsize=64)
def _lines(heads: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    # one group for all: a branch that is no group is left at once where its first character is another
    branches = "|".join(pattern for _, pattern in heads)
    return re.compile(rf"{INDENT}(?P<{heads[0][0]}>{branches})")


class LineMarker:
    """Markers that begin only at the beginning of a line; a match includes the line break before it.

    `gate` is a cheap pattern of how such a line begins, `unfinished` one of how it may begin if it is the last of the
    text and incomplete. `heads` are the full patterns, by group. A match has the group of the first head, whichever
    matched, since several may begin at one offset.
    """

    words = ("\n",)
    holds = ("\n\t", "\n\t\t", *(f"\n{' ' * size}" for size in range(9)))
    """A line break and an indent: a line that is indented more is no call."""
    _AHEAD = 256
    """Characters that a gate looks at: a limit, so that the text after `stop` is not searched again and again."""

    def __init__(self, gate: str, heads: Mapping[str, str]) -> None:
        self._gate = re.compile(rf"{INDENT}(?:{gate})")
        self._last: re.Pattern[str] | None = None
        self._pattern = _lines(tuple(heads.items()))

    def with_gate(self, gate: str, unfinished: str) -> LineMarker:
        """Return a copy with another gate."""
        other = copy(self)
        other._gate = re.compile(rf"{INDENT}(?:{gate})")  # noqa: SLF001  a copy of itself
        other._last = re.compile(rf"{INDENT}(?:{unfinished})") if unfinished else None  # noqa: SLF001  as above
        return other

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Return the leftmost match that begins in `text[at:stop]`. O(n), at C speed where no line passes the gate."""
        if text.find("\n", at, stop) < 0:
            return None
        limit = min(len(text), stop + self._AHEAD)
        search, match, missed = self._gate.search, self._pattern.match, ""
        while True:
            gate = search(text, at, limit) or self._last_line(text, at)
            if gate is None or (at := gate.start()) >= stop:
                return None
            if not missed or not text.startswith(missed, at):
                full_match = match(text, at)
                if full_match is not None:
                    return full_match
                missed = _ahead(text, at)
            at += 1

    def _last_line(self, text: str, at: int) -> re.Match[str] | None:
        if self._last is None:
            return None
        begin = text.rfind("\n", max(at, len(text) - self._AHEAD))
        return self._last.match(text, begin) if begin >= 0 else None

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Return what `search` does: its only word is the line break."""
        del word
        return self.search(text, at, len(text) if stop is None else stop)


class Here(NamedTuple):
    """The markers that may begin at an offset."""

    markers: tuple[Marker, ...]
    pattern: re.Pattern[str]


class Scanner:
    """Search a text for markers; of two that match at one offset the earlier in the list wins."""

    def __init__(self, markers: Sequence[Marker], rare: Sequence[RareMarker | LineMarker | WordMarker] = ()) -> None:
        self._markers = tuple(markers)
        self._rare = rare
        self._words = _words(rare)
        literals = [text for marker in markers for text in marker.literals]
        prefixes = [text[:size] for text in literals for size in range(1, len(text))]
        self._prefixes = frozenset((*prefixes, *(text for each in rare for text in each.holds)))
        self._longest = max(map(len, self._prefixes), default=0) + 1
        self._gate: re.Pattern[str] | None = None
        known = ((text, size) for text in literals for size in SIZES[:-1])
        self._beginnings = frozenset(text[:size] for text, size in known if size == 2 or len(text) >= size)
        self._known: dict[str, Here] = {}
        self._windows: dict[str, Here | None] = {}
        self._first = re.compile(_firsts(self._prefixes))

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return the leftmost match from `at` on; its `lastgroup` is the marker's group."""
        match = self._search(text, at)
        if match is not None and match.start() == at:
            return match
        if not self._rare or (len(text) - at < FEW and self._words.search(text, at) is None):
            return match
        for marker in self._rare:
            match = marker.search(text, at, match.start() if match is not None else len(text)) or match
        return match

    def without(self, words: Set[str]) -> Scanner:
        """Return a scanner for text that contains none of `words`; what it holds at the end of the text is the same."""
        return self._with_rare([marker for marker in self._rare if words.isdisjoint(marker.words)])

    def with_line_gate(self, gate: str, unfinished: str) -> Scanner:
        """Return a scanner with another gate for lines; what it holds at the end of the text is the same."""
        lines = [rare.with_gate(gate, unfinished) if isinstance(rare, LineMarker) else rare for rare in self._rare]
        return self._with_rare(lines)

    def _with_rare(self, rare: Sequence[RareMarker | LineMarker | WordMarker]) -> Scanner:
        other = copy(self)
        other._rare, other._words = rare, _words(rare)  # noqa: SLF001  a copy of itself
        return other

    def sources(self) -> list[Callable[[str, int], re.Match[str] | None]]:
        """Return searches whose nearest match is that of `search`; of two at one offset the earlier search wins."""
        return [self._search, *(partial(marker.search_word, word) for marker in self._rare for word in marker.words)]

    def _search(self, text: str, at: int) -> re.Match[str] | None:
        stops = self._gate = self._gate or _gate(self._markers)
        windows, missed = self._windows, ""
        while (gate := stops.search(text, at)) is not None:
            at = gate.start()
            if missed and text.startswith(missed, at):
                at += 1
                continue
            here = windows.get(text[at : at + WINDOW]) or self._here(text, at)
            match = here.pattern.match(text, at) if here is not None else None
            if match is not None:
                return match
            missed = _ahead(text, at)
            at += 1
        return None

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match that begins at `at`, markers in `rare` aside."""
        here = self._here(text, at)
        return here.pattern.match(text, at) if here is not None else None

    def _here(self, text: str, at: int) -> Here | None:
        """Return the markers that may begin at `at`, by the characters there; None if none may."""
        window = text[at : at + WINDOW]
        try:
            return self._windows[window]
        except KeyError:
            beginning = next((prefix for size in SIZES if (prefix := window[:size]) in self._beginnings), None)
            if len(self._windows) >= WINDOWS:
                self._windows.clear()
            here = self._windows[window] = None if beginning is None else self._begun(beginning)
            return here

    def _begun(self, beginning: str) -> Here:
        """Return the markers that may begin with `beginning`, few of many."""
        here = self._known.get(beginning)
        if here is None:
            markers: list[Marker] = []
            for marker in self._markers:
                literals = [
                    text for text in marker.literals if text.startswith(beginning) or beginning.startswith(text)
                ]
                if literals:
                    markers.append(marker if marker.pattern else marker._replace(literals=tuple(literals)))
            here = self._known[beginning] = Here(tuple(markers), _compiled(tuple(markers)))
        return here

    def match_word(self, text: str, at: int) -> re.Match[str] | None:
        """Return the match of a `WordMarker` that begins at `at`."""
        matches = (marker.match(text, at) for marker in self._rare if isinstance(marker, WordMarker))
        return next(filter(None, matches), None)

    def all_at(self, text: str, found: re.Match[str]) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of `found`, and of the matches of later markers at the same offset."""
        yield found.lastgroup or "", found.end()
        for other in self._others(text, found.start(), found.lastgroup or ""):
            yield other.lastgroup or "", other.end()

    def _others(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        here = self._here(text, at)
        if here is not None:
            yield from _behind(here.markers, group, text, at)
        for rare in self._rare:
            if isinstance(rare, WordMarker):
                yield from rare.others(text, at, group)
            elif isinstance(rare, RareMarker) and rare.group != group:
                match = rare.pattern.match(text, at)
                if match is not None:
                    yield match

    def hold(self, text: str, at: int) -> int:
        """Return the first index from which `text` may be the beginning of a marker, `len(text)` if there is none."""
        for match in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[match.start() :] in self._prefixes:
                return match.start()
        return len(text)


def _words(rare: Iterable[RareMarker | LineMarker | WordMarker]) -> re.Pattern[str]:
    """Compile the pattern of what a text must contain for one of these to match."""
    return re.compile(_any(word for marker in rare for word in marker.words))


class Sweep:
    """Searches one text from front to back, and remembers the next match of each source.

    For text with many matches that turn out to begin nothing: all searches together are O(n), where each by itself
    might search the whole rest of the text for the next occurrence of something rare.
    """

    def __init__(self, scanner: Scanner, text: str) -> None:
        self.scanner = scanner
        self.text = text
        self._sources = scanner.sources()
        self._found: list[re.Match[str] | None] = []
        self._at = 0

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return what `Scanner.search` does."""
        assert text is self.text
        if not self._found or at < self._at:
            self._found = [source(self.text, at) for source in self._sources]
        self._at = at
        nearest: re.Match[str] | None = None
        for index, match in enumerate(self._found):
            if match is not None and match.start() < at:
                match = self._found[index] = self._sources[index](self.text, at)  # noqa: PLW2901  the next match of this source
            if match is not None and (nearest is None or match.start() < nearest.start()):
                nearest = match
        return nearest


def _firsts(prefixes: Collection[str]) -> str:
    """Build the pattern of a first character of `prefixes` that its second one or the end of the text follows."""
    seconds: dict[str, set[str]] = {text[0]: set() for text in prefixes}
    for text in prefixes:
        seconds[text[0]].update(text[1:2])
    grouped: dict[str, list[str]] = {}
    for first, nexts in seconds.items():
        grouped.setdefault("".join(sorted(nexts)), []).append(first)
    branches = (rf"{_class(firsts)}(?:\Z|(?={_class(nexts)}))" for nexts, firsts in grouped.items() if nexts)
    return "|".join([*branches, *(rf"{_class(firsts)}\Z" for nexts, firsts in grouped.items() if not nexts)]) or r"(?!)"


def _class(characters: Iterable[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(characters)))}]"


@lru_cache(maxsize=256)
def _gate(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    """Compile the pattern that finds at C speed where one of `markers` may begin."""
    gates = [marker.gate for marker in markers if marker.gate]
    tails: dict[str, set[str]] = {}
    for marker in markers:
        for text in () if marker.gate else marker.literals:
            tails.setdefault(text[0], set()).add(text[1:WINDOW])
    gates += (re.escape(first) + (f"(?={after})" if (after := _tree(rests)) else "") for first, rests in tails.items())
    return re.compile("|".join(gates) or r"(?!)")


def _tree(words: Set[str]) -> str:
    """Build the prefix tree of `words` as a pattern that examines each character once."""
    if "" in words:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    trees = {first: _tree(rests) for first, rests in sorted(by_first.items())}
    ends = [first for first, tree in trees.items() if not tree]
    branches = [re.escape(first) + tree for first, tree in trees.items() if tree]
    if ends:
        branches.append(_class(ends) if len(ends) > 1 else re.escape(ends[0]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


@lru_cache(maxsize=1024)
def _compiled(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{marker.group}>{marker.expression})" for marker in markers) or r"(?!)")


@lru_cache(maxsize=512)
def _alone(marker: Marker) -> re.Pattern[str]:
    return re.compile(f"(?P<{marker.group}>{marker.expression})")


def by_group(groups: Mapping[str, Iterable[str]]) -> list[Marker]:
    """Return one marker per group of literals."""
    return [Marker(group, tuple(texts)) for group, texts in groups.items() if texts]
