"""Find the next marker in text that comes in pieces, and tell how much of its end to hold.

Two steps. A *gate*, one regular expression, runs over prose at C speed and stops only where the first characters of a
marker stand, sixteen of them. There the full patterns of the markers that begin so are tried, once. What is held is
the longest end of the text that may still become a marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import lru_cache, partial
from os.path import commonprefix
from typing import NamedTuple

FEW = 256
"""Characters of a text below which one look for all words costs less than one for each."""


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, words)) or '(?!)'})"


def _sign(word: str) -> str:
    """Give the first character of a word that prose has seldom; empty: it has none."""
    return next((each for each in word if not each.isalnum() and not each.isspace()), "")


class AnyOf:
    """Words, some of which may stand in a text: what is rare of them is looked for first."""

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
        """Tell whether one of them stands in `text`. O(n), at C speed."""
        if len(text) < FEW:
            return self._any.search(text) is not None
        return any(sign in text and any(word in text for word in words) for sign, words in self._by_sign.items())


class Marker(NamedTuple):
    r"""One kind of marker: literals, or a pattern (without groups) that starts with one of them.

    A pattern says what it matches at the end of the text by `\Z`; the caller tells the unfinished match. `gate` is
    what must stand at its first characters, where that is more than the first two characters of its literals.
    """

    group: str
    literals: tuple[str, ...]
    pattern: str = ""
    gate: str = ""
    runs: bool = False
    """Of a run of one literal, that is no closer, all but the last are found at once."""

    @property
    def expression(self) -> str:
        """The regular expression of the whole marker."""
        if self.pattern:
            return self.pattern
        literals = sorted(self.literals, key=len, reverse=True)
        again = [re.escape(text) for text in literals if self.runs and not text.startswith("</")]
        return "|".join([*(f"(?:{text})+(?={text})" for text in again), *map(re.escape, literals)])


class RareMarker(NamedTuple):
    """A marker that begins with common letters, and has a word that prose seldom has: that is what is looked for.

    `back` and `ahead`: how far before and after the word `pattern` may match. `holds`: what it may begin with, at the
    end of the text.
    """

    group: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    back: int
    ahead: int
    holds: Collection[str]
    firsts: frozenset[str] = frozenset()
    """What may stand first in a text that begins with one."""

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Give the leftmost one that begins in `text[at:stop]`. O(n), at C speed where none of its words stands."""
        return _leftmost(self, text, at, stop)

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Give the leftmost one of those that have this word."""
        stop = len(text) if stop is None else stop
        place = text.find(word, at, stop + len(word))
        while place >= 0:
            match = self.pattern.search(text, max(at, place - self.back), place + self.ahead)
            if match is not None and match.start() < stop:
                return match
            place = text.find(word, place + 1, stop + len(word))
        return None


def _leftmost(marker: RareMarker | WordMarker, text: str, at: int, stop: int) -> re.Match[str] | None:
    """Give the leftmost of what a marker's words find."""
    found: re.Match[str] | None = None
    for word in marker.words:
        match = marker.search_word(word, text, at, stop)
        if match is not None:
            found, stop = match, match.start()
    return found


def _behind(markers: Iterable[Marker], group: str, text: str, at: int) -> Iterator[re.Match[str]]:
    """Give what of the markers behind `group` starts at `at`."""
    later = False
    for each in markers:
        found = _alone(each).match(text, at) if later else None
        if found is not None:
            yield found
        later = later or each.group == group


SIZES = (16, 8, 2, 1)
"""Characters by which what may stand at a place is chosen of all markers: as many as are known of a marker."""
WINDOW = SIZES[0]
"""Characters of a marker that a gate looks at, and by which it is known what may stand at a place."""
WINDOWS = 1024
"""Pieces of text for which it is remembered what may stand there."""
AHEAD = 1024
"""Characters that no marker's pattern looks beyond."""
BEGINNING = 4
"""Letters of a marker's word that are looked for: many begin alike."""


class WordMarker:
    """Markers that begin with letters: what they begin with is looked for apart, since letters stop a gate too often.

    The earlier in the list wins.
    """

    def __init__(self, markers: Sequence[Marker]) -> None:
        self._markers = markers
        literals = [text for each in markers for text in each.literals]
        self.words = tuple(dict.fromkeys(text[:BEGINNING] for text in literals))
        self._any = re.compile(_any(self.words))
        self.holds = frozenset(text[:size] for text in literals for size in range(1, len(text)))
        self._longest = max(map(len, literals))
        whole = {word: {text for text in literals if text.startswith(word)} for word in self.words}
        self._signs = {word: {_sign(text) for text in texts} for word, texts in whole.items()}
        self._gates = {word: re.compile(_tree(texts)) for word, texts in whole.items()}
        self._pattern = re.compile(
            "|".join(f"(?P<{each.group}>(?={_any(each.literals)}){each.expression})" for each in markers)
        )

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Give the one that starts at `at`."""
        return self._pattern.match(text, at) if text.startswith(self.words, at) else None

    def others(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        """Give those that start at `at` and stand behind `group` in the list."""
        return _behind(self._markers, group, text, at)

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Give the leftmost one that begins in `text[at:stop]`. O(n), at C speed where none of its words stands."""
        if stop - at < FEW and self._any.search(text, at, stop + BEGINNING) is None:
            return None
        return _leftmost(self, text, at, stop)

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Give the leftmost one of those that have this word."""
        stop = len(text) if stop is None else stop
        if all(text.find(sign, at, stop + self._longest) < 0 for sign in self._signs[word]):
            return None
        if text.find(word, at, stop + len(word)) < 0:
            return None
        before = ""
        for gate in self._gates[word].finditer(text, at, min(len(text), stop + self._longest)):
            place = gate.start()
            if place >= stop:
                break
            if before and text.startswith(before, place):
                continue
            match = self._pattern.match(text, place)
            if match is not None:
                return match
            before = _ahead(text, place)
        return None


def _ahead(text: str, at: int) -> str:
    """Give what a marker may look at, where nothing began: what stands before the same text begins nothing either.

    A model that is caught in a loop says the same over and over. Empty near the end, where a pattern may see it.
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
    """What stands only at the beginning of a line: the line's end before it is what is looked for.

    `gate` is what its first words must be, as a cheap pattern, and `unfinished` what the text's last line may be that
    becomes such words; `heads` are the patterns of the whole, by their groups. What is found has the first of them as
    its group, whichever it is: several may begin at one place.
    """

    words = ("\n",)
    holds = ("\n\t", "\n\t\t", *(f"\n{' ' * size}" for size in range(9)))
    """A line's end and its indent: more than that is no line of a call."""
    _AHEAD = 256
    """Characters that a gate looks at: what stands behind `stop` is not searched through again and again."""

    def __init__(self, gate: str, heads: Mapping[str, str]) -> None:
        self._gate = re.compile(rf"{INDENT}(?:{gate})")
        self._last: re.Pattern[str] | None = None
        self._pattern = _lines(tuple(heads.items()))

    def with_gate(self, gate: str, unfinished: str) -> LineMarker:
        """Give the same for other first words."""
        other = copy(self)
        other._gate = re.compile(rf"{INDENT}(?:{gate})")  # noqa: SLF001  it is its own
        other._last = re.compile(rf"{INDENT}(?:{unfinished})") if unfinished else None  # noqa: SLF001  so is this
        return other

    def search(self, text: str, at: int, stop: int) -> re.Match[str] | None:
        """Give the leftmost one that begins in `text[at:stop]`. O(n), at C speed where no line begins like it."""
        if text.find("\n", at, stop) < 0:
            return None
        limit = min(len(text), stop + self._AHEAD)
        search, match, before = self._gate.search, self._pattern.match, ""
        while True:
            gate = search(text, at, limit) or self._last_line(text, at)
            if gate is None or (at := gate.start()) >= stop:
                return None
            if not before or not text.startswith(before, at):
                found = match(text, at)
                if found is not None:
                    return found
                before = _ahead(text, at)
            at += 1

    def _last_line(self, text: str, at: int) -> re.Match[str] | None:
        if self._last is None:
            return None
        place = text.rfind("\n", max(at, len(text) - self._AHEAD))
        return self._last.match(text, place) if place >= 0 else None

    def search_word(self, word: str, text: str, at: int, stop: int | None = None) -> re.Match[str] | None:
        """Give the same: its only word is the line's end."""
        del word
        return self.search(text, at, len(text) if stop is None else stop)


class Here(NamedTuple):
    """The markers that may stand at a place."""

    markers: tuple[Marker, ...]
    pattern: re.Pattern[str]


class Scanner:
    """Search for markers; where two match at one place the earlier in the list wins."""

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
        """Give the leftmost marker from `at` on; its kind is `lastgroup`."""
        found = self._search(text, at)
        if found is not None and found.start() == at:
            return found
        if not self._rare or (len(text) - at < FEW and self._words.search(text, at) is None):
            return found
        for each in self._rare:
            found = each.search(text, at, found.start() if found is not None else len(text)) or found
        return found

    def without(self, words: Set[str]) -> Scanner:
        """Give the same for text in which none of the words stands: what is held at its end does not change."""
        return self._with_rare([each for each in self._rare if words.isdisjoint(each.words)])

    def with_line_gate(self, gate: str, unfinished: str) -> Scanner:
        """Give the same for lines that begin with other words: what is held at the text's end does not change."""
        lines = [each.with_gate(gate, unfinished) if isinstance(each, LineMarker) else each for each in self._rare]
        return self._with_rare(lines)

    def _with_rare(self, rare: Sequence[RareMarker | LineMarker | WordMarker]) -> Scanner:
        other = copy(self)
        other._rare, other._words = rare, _words(rare)  # noqa: SLF001  they are its own
        return other

    def sources(self) -> list[Callable[[str, int], re.Match[str] | None]]:
        """Give the searches whose nearest match is `search`'s; of two at one place the earlier in the list wins."""
        return [self._search, *(partial(each.search_word, word) for each in self._rare for word in each.words)]

    def _search(self, text: str, at: int) -> re.Match[str] | None:
        stops = self._gate = self._gate or _gate(self._markers)
        windows, before = self._windows, ""
        while (gate := stops.search(text, at)) is not None:
            at = gate.start()
            if before and text.startswith(before, at):
                at += 1
                continue
            here = windows.get(text[at : at + WINDOW]) or self._here(text, at)
            found = here.pattern.match(text, at) if here is not None else None
            if found is not None:
                return found
            before = _ahead(text, at)
            at += 1
        return None

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Give the marker that starts at `at`."""
        here = self._here(text, at)
        return here.pattern.match(text, at) if here is not None else None

    def _here(self, text: str, at: int) -> Here | None:
        """Give what may stand at `at`, by the characters there."""
        window = text[at : at + WINDOW]
        try:
            return self._windows[window]
        except KeyError:
            beginning = next((each for size in SIZES if (each := window[:size]) in self._beginnings), None)
            if len(self._windows) >= WINDOWS:
                self._windows.clear()
            here = self._windows[window] = None if beginning is None else self._begun(beginning)
            return here

    def _begun(self, beginning: str) -> Here:
        """Give what may stand where these characters do: few of many markers."""
        here = self._known.get(beginning)
        if here is None:
            markers: list[Marker] = []
            for each in self._markers:
                fitting = [text for text in each.literals if text.startswith(beginning) or beginning.startswith(text)]
                if fitting:
                    markers.append(each if each.pattern else each._replace(literals=tuple(fitting)))
            here = self._known[beginning] = Here(tuple(markers), _compiled(tuple(markers)))
        return here

    def match_word(self, text: str, at: int) -> re.Match[str] | None:
        """Give the marker that begins with a letter and starts at `at`."""
        found = (each.match(text, at) for each in self._rare if isinstance(each, WordMarker))
        return next(filter(None, found), None)

    def all_at(self, text: str, found: re.Match[str]) -> Iterator[tuple[str, int]]:
        """Give the group and the end of the marker `found`, and of those behind it in the list that start there too."""
        yield found.lastgroup or "", found.end()
        for each in self._others(text, found.start(), found.lastgroup or ""):
            yield each.lastgroup or "", each.end()

    def _others(self, text: str, at: int, group: str) -> Iterator[re.Match[str]]:
        here = self._here(text, at)
        if here is not None:
            yield from _behind(here.markers, group, text, at)
        for rare in self._rare:
            if isinstance(rare, WordMarker):
                yield from rare.others(text, at, group)
            elif isinstance(rare, RareMarker) and rare.group != group:
                found = rare.pattern.match(text, at)
                if found is not None:
                    yield found

    def hold(self, text: str, at: int) -> int:
        """Give the index from which `text` may be the beginning of a marker; `len(text)` when nothing is."""
        for found in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[found.start() :] in self._prefixes:
                return found.start()
        return len(text)


def _words(rare: Iterable[RareMarker | LineMarker | WordMarker]) -> re.Pattern[str]:
    """Compile what must stand in a text for one of these to be found."""
    return re.compile(_any(word for each in rare for word in each.words))


class Sweep:
    """Searches one text from the front to the back, and remembers what stands further on.

    For text in which much is found that turns out to be nothing: all searches together are O(n), where each by itself
    might look for the next of something rare through all that is left.
    """

    def __init__(self, scanner: Scanner, text: str) -> None:
        self.scanner = scanner
        self.text = text
        self._sources = scanner.sources()
        self._found: list[re.Match[str] | None] = []
        self._at = 0

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Give what `Scanner.search` gives."""
        assert text is self.text
        if not self._found or at < self._at:
            self._found = [source(self.text, at) for source in self._sources]
        self._at = at
        nearest: re.Match[str] | None = None
        for place, match in enumerate(self._found):
            if match is not None and match.start() < at:
                match = self._found[place] = self._sources[place](self.text, at)  # noqa: PLW2901  the next of its kind
            if match is not None and (nearest is None or match.start() < nearest.start()):
                nearest = match
        return nearest


def _firsts(prefixes: Collection[str]) -> str:
    """Give the pattern of the first character of one of these, before the second one or the end of the text."""
    seconds: dict[str, set[str]] = {text[0]: set() for text in prefixes}
    for text in prefixes:
        seconds[text[0]].update(text[1:2])
    behind: dict[str, list[str]] = {}
    for first, each in seconds.items():
        behind.setdefault("".join(sorted(each)), []).append(first)
    every = (rf"{_class(firsts)}(?:\Z|(?={_class(each)}))" for each, firsts in behind.items() if each)
    return "|".join([*every, *(rf"{_class(firsts)}\Z" for each, firsts in behind.items() if not each)]) or r"(?!)"


def _class(characters: Iterable[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(characters)))}]"


@lru_cache(maxsize=256)
def _gate(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    """Compile what tells at C speed where one of these may begin."""
    gates = [marker.gate for marker in markers if marker.gate]
    behind: dict[str, set[str]] = {}
    for marker in markers:
        for text in () if marker.gate else marker.literals:
            behind.setdefault(text[0], set()).add(text[1:WINDOW])
    gates += (re.escape(first) + (f"(?={after})" if (after := _tree(rests)) else "") for first, rests in behind.items())
    return re.compile("|".join(gates) or r"(?!)")


def _tree(words: Set[str]) -> str:
    """Give the pattern of what begins with one of these words, each character looked at once."""
    if "" in words:
        return ""
    behind: dict[str, set[str]] = {}
    for word in words:
        behind.setdefault(word[0], set()).add(word[1:])
    trees = {first: _tree(rests) for first, rests in sorted(behind.items())}
    ends = [first for first, tree in trees.items() if not tree]
    branches = [re.escape(first) + tree for first, tree in trees.items() if tree]
    if ends:
        branches.append(_class(ends) if len(ends) > 1 else re.escape(ends[0]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


@lru_cache(maxsize=1024)
def _compiled(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{each.group}>{each.expression})" for each in markers) or r"(?!)")


@lru_cache(maxsize=512)
def _alone(marker: Marker) -> re.Pattern[str]:
    return re.compile(f"(?P<{marker.group}>{marker.expression})")


def by_group(groups: Mapping[str, Iterable[str]]) -> list[Marker]:
    """Make one marker of each group of literals."""
    return [Marker(group, tuple(texts)) for group, texts in groups.items() if texts]
