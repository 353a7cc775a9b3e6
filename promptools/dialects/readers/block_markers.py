"""Read the markers around a block of calls: the tool that the opening marker names, and the end of the block."""

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
"""Matches white space and stray characters between a value and its closing marker, if no code fence is open."""


@dataclass(frozen=True)
class Closers:
    """Holds the markers that may end a block of calls.

    `right`: the correct closing markers. `wrong`: closing markers that models write by mistake. `openers`: opening
    markers of the next block, which also end a block whose closing marker is missing.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    openers: tuple[str, ...]
    required: bool = True
    """Whether a missing closing marker is recorded as a fix."""
    line_end_closes: bool = False
    """Whether a line break after the body may replace the closing marker, no matter what follows."""
    next_name: re.Pattern[str] | None = None
    r"""Matches the text before another body in the same block: a tool's name, and markers between name and body.

    The name is the only group. At the end of the text (`\Z`), the match may be incomplete.
    """
    next_call_markers: tuple[str, ...] = ()
    """Text that begins the next call in a format without opening markers, such as a line break and `Action:`.

    Such text is searched for only in JSON that may be broken.
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
        """The pattern that matches any of `markers`."""
        return _any_of(self.markers)

    @cached_property
    def body_end(self) -> re.Pattern[str]:
        """The pattern of the markers at which broken JSON may end."""
        return _any_of(sorted((*self.markers, *self.next_call_markers), key=len, reverse=True))

    @cached_property
    def gap(self) -> re.Pattern[str]:
        """The pattern of what may come between a value and its closing marker, such as the end of a code fence."""
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
        """The first match at or after the offset `_from`.

        The match is kept so that later searches of the same piece need not scan the text before it again. There may be
        many searches: one after each body of a list whose only marker comes after the last body.
        """

    def forget(self) -> None:
        """Forget the end of the searched text, which `find` keeps because a marker may be split between two pieces.

        Call this if the next search starts at text that was searched before, such as the text between the last bracket
        of a body and the next marker.
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
    """Return the `Closers` of a code fence. `run`: the characters that opened the fence, such as three backticks."""
    return Closers(right=(run,), wrong=(), openers=())


@cache
def _name_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns: one for a tool's name in an attribute of a marker, one for a name after the marker."""
    attribute = r"""\s(?:name|tool|function)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>=]+))"""
    return re.compile(attribute), re.compile(r">\s*([A-Za-z_][\w.:-]*)\s*\Z")


def name_in_marker(head: str) -> str | None:
    """Return the tool's name in a marker such as `<tool_call name="f">`; None if the marker names no tool.

    The name is in an attribute, or follows the tag.
    """
    if ">" not in head:  # a fence or a bracket has no attributes
        return None
    attribute, line = _name_patterns()
    match = attribute.search(head) or line.search(head)
    return next(group for group in match.groups() if group is not None) if match else None
