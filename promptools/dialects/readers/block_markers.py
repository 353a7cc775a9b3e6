"""The markers around a block: find the tool that an opening marker names, and find what closes the block."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Final

from promptools.patterns import lazy_pattern

GAP_CHARACTERS: Final = ",;}]"
"""The characters that, besides white space, may come between a value and its closing marker.

No closing marker begins with any of them.
"""
_GAP = rf"[\s{re.escape(GAP_CHARACTERS)}]*"
GAP_AFTER_FENCE = lazy_pattern(_GAP)
"""Matches what may come between a value and its closing marker once a code fence inside the block has been closed."""


@dataclass(frozen=True)
class Closers:
    """Holds what may close a block: the right closers, wrong ones that models write, and the next block's opener."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    openers: tuple[str, ...]
    required: bool = True
    """A missing closing marker is recorded as a fix."""
    line_end_closes: bool = False
    """The end of the body's last line may replace the right marker, no matter what follows."""
    next_name: re.Pattern[str] | None = None
    r"""Matches what precedes another body of the same block: a name, which is the only group, and what may follow the
    name. At the end of the text (`\Z`), this may be incomplete.
    """
    next_call_markers: tuple[str, ...] = ()
    """Markers that begin the next call in a format without openers.

    They are searched for only in a body that may be broken.
    """

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """The right and wrong closing markers and the openers, the longest first."""
        return tuple(sorted((*self.right, *self.wrong, *self.openers), key=len, reverse=True))

    @cached_property
    def longest(self) -> int:
        """The length of the longest of `markers` and `next_call_markers`."""
        return max(map(len, (*self.markers, *self.next_call_markers)), default=1)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of `markers`."""
        return _any_of(self.markers)

    @cached_property
    def body_end(self) -> re.Pattern[str]:
        """The pattern of what may end a broken body."""
        return _any_of(sorted((*self.markers, *self.next_call_markers), key=len, reverse=True))

    @cached_property
    def gap(self) -> re.Pattern[str]:
        """The pattern of what may come between a value and its closer."""
        fence = "" if self.markers and self.markers[0][0] in "`~" else f"(?:```)?{_GAP}"
        return re.compile(_GAP + fence)


def _any_of(markers: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, markers)) or r"(?!)")


class MarkerSearch:
    """Finds closing and opening markers in text that arrives in pieces, even if a marker is split."""

    def __init__(self, closers: Closers) -> None:
        self._pattern = closers.body_end
        self._longest = closers.longest
        self._tail = ""
        self._searched, self._from = "", 0
        """The piece that was searched last, and the offset from which it was searched."""
        self._found: re.Match[str] | None = None
        """The first match from that offset on.

        It is kept for the next searches: a list of many bodies has only one marker, after the last of them.
        """

    def forget(self) -> None:
        """Forget the end of the searched text, because the next search begins at text that was searched before.

        An example is the text after the last bracket of a body.
        """
        self._tail = ""

    def find(self, piece: str, at: int) -> tuple[int, str]:
        """Return the end index and the text of the next marker in `piece[at:]`; `(len(piece), "")` if there is none."""
        tail, self._tail = self._tail, ""
        if tail:
            match = self._pattern.search(tail + piece[at : at + self._longest])
            if match is not None and match.end() > len(tail):
                return at + match.end() - len(tail), match[0]
        # all searches of one piece together are O(n), since their offsets only grow
        known = piece is self._searched and at >= self._from
        if not known or (self._found is not None and self._found.start() < at):
            self._searched, self._from, self._found = piece, at, self._pattern.search(piece, at)
        if self._found is not None:
            return self._found.end(), self._found[0]
        self._tail = (tail + piece[max(at, len(piece) - self._longest + 1) :])[1 - self._longest :]
        return len(piece), ""


@lru_cache(maxsize=16)
def fence_closers(run: str) -> Closers:
    """Return the closers of a code fence that was opened by `run`."""
    return Closers(right=(run,), wrong=(), openers=())


@cache
def _name_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a name among the marker's attributes, and of a name on a separate line."""
    attribute = r"""\s(?:name|tool|function)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>=]+))"""
    return re.compile(attribute), re.compile(r">\s*([A-Za-z_][\w.:-]*)\s*\Z")


def name_in_marker(head: str) -> str | None:
    """Return the name that a marker gives in an attribute, or on a line after its tag; else None."""
    if ">" not in head:  # a fence or a bracket has no attributes
        return None
    attribute, line = _name_patterns()
    match = attribute.search(head) or line.search(head)
    return next(group for group in match.groups() if group is not None) if match else None
