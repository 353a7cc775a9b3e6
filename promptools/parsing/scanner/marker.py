"""One kind of marker, and its pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

MAX_LOOKAHEAD = 1024
"""Characters after its beginning that a marker's pattern may look at."""


class Marker(NamedTuple):
    r"""One kind of marker: literals, or a pattern (without groups) that starts with one of them.

    A pattern matches a marker that is incomplete at the end of the text by `\Z`; the caller checks for that. `gate` is
    a pattern of its first characters that replaces the literals in the gate of the scanner.
    """

    group: str
    literals: tuple[str, ...]
    pattern: str = ""
    gate: str = ""
    joins_runs: bool = False
    """Whether a run of one literal, unless it is a closing tag, is one match except for the last."""

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


@lru_cache(maxsize=512)
def marker_pattern(marker: Marker) -> re.Pattern[str]:
    """Return the pattern of a marker, as a group of its name."""
    return re.compile(f"(?P<{marker.group}>{marker.expression})")


@lru_cache(maxsize=1024)
def markers_pattern(markers: tuple[Marker, ...]) -> re.Pattern[str]:
    """Return the pattern of any one of several markers, each as a group of its name."""
    return re.compile("|".join(f"(?P<{marker.group}>{marker.expression})" for marker in markers) or r"(?!)")


def later_matches(markers: Iterable[Marker], group: str, text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield the matches at `at` of the markers after `group`."""
    later = False
    for marker in markers:
        match = marker_pattern(marker).match(text, at) if later else None
        if match is not None:
            yield match
        later = later or marker.group == group


def lookahead_text(text: str, at: int) -> str:
    """Return the text that a marker may look at from an offset where none begins: nor does one before the same text.

    A model caught in a loop repeats itself. Empty near the end of the text, where a pattern may match the end.
    """
    ahead = text[at : at + MAX_LOOKAHEAD]
    return ahead if len(ahead) == MAX_LOOKAHEAD else ""
