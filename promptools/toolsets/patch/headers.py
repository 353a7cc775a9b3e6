"""The lines of a file that the headers of hunks (`@@ class App`) mean, and the blocks below them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

from promptools.toolsets.patch.line_search import LineSearch, from_position

NAME_END = re.compile(r"\s*[(:{<\[=;]")
"""Where the name in a definition ends: a header may show less, or other parameters, than the file."""


class HeaderSearch:
    """Headers in one file."""

    def __init__(self, lines: Sequence[str], loose: LineSearch) -> None:
        self._lines = lines
        self._loose = loose
        self._block_ends: dict[int, int] = {}

    def positions(self, headers: Sequence[str]) -> Sequence[int]:
        """Return the lines that the last of `headers` means, below those that the others mean; empty if there are none.

        A header that the file does not have is skipped.
        """
        heads: Sequence[int] = ()
        for header in headers:
            positions = self._loose.positions([header]) or self._named.get(_name(header), ())
            if heads and positions:
                heads = self.inside(positions, heads) or from_position(positions, heads[0])
            else:
                heads = positions or heads
        return heads

    def inside(self, positions: Sequence[int], heads: Sequence[int]) -> list[int]:
        """Return those of `positions` that are in the blocks below `heads`, or on these lines themselves."""
        kept: dict[int, None] = {}
        for head in heads:
            first = bisect_left(positions, head)
            kept |= dict.fromkeys(positions[first : bisect_left(positions, self.block_end(head))])
        return sorted(kept)

    def block_end(self, head: int) -> int:
        """Return the line after the block of a line: the lines below it that are indented more, and blank ones."""
        if head not in self._block_ends:
            indent, end = indentation(self._lines[head]), head + 1
            while end < len(self._lines) and (
                not self._lines[end].strip() or len(indentation(self._lines[end])) > len(indent)
            ):
                end += 1
            self._block_ends[head] = end
        return self._block_ends[head]

    def enclosing(self, at: int) -> str:
        """Return the next line above that is indented less, without its indentation; empty if there is none."""
        own = len(indentation(self._lines[at]))
        for line in reversed(self._lines[:at]):
            if line.strip() and len(indentation(line)) < own:
                return line.strip()
        return ""

    @cached_property
    def _named(self) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            named.setdefault(_name(line), []).append(at)
        named.pop("", None)
        return named


def indentation(line: str) -> str:
    """Return the space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def _name(line: str) -> str:
    return NAME_END.split(" ".join(line.split()), maxsplit=1)[0]
