"""The markers around a block: what the opener says of its tool, and what may stand where the closer belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

from promptools.parsing.zones import RESULTS

_GAP = r"[\s,;}\]]*"
BARE_GAP = re.compile(_GAP)
"""What may stand between a value and its closer once a fence inside the block has been closed."""
MADE_UP: Final = tuple(each for each in RESULTS if each.startswith("<"))
"""What a model that goes on makes up behind a call whose closer it left out."""


@dataclass(frozen=True, slots=True)
class Closers:
    """What may stand where the closer belongs: the right one, others seen there, and what opens the next block."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    openers: tuple[str, ...]
    needed: bool = True
    """It is a liberty to do without the right one."""
    line: bool = False
    """The end of the body's last line may stand for the right one, whatever follows."""
    again: re.Pattern[str] | None = None
    r"""What stands before a further body of the same block: a name, its only group, and what may follow that. It says
    by `\Z` what an unfinished one looks like."""
    following: tuple[str, ...] = ()
    """What begins the next call where no opener does: it is looked for in a body that may be broken, nowhere else."""
    marks: tuple[str, ...] = field(init=False)
    longest: int = field(init=False)
    pattern: re.Pattern[str] = field(init=False)
    inner: re.Pattern[str] = field(init=False)
    """What may end a broken body."""
    gap: re.Pattern[str] = field(init=False)
    """What may stand between a value and what closes it."""

    def __post_init__(self) -> None:
        marks = tuple(sorted((*self.right, *self.wrong, *self.openers), key=len, reverse=True))
        object.__setattr__(self, "marks", marks)
        inner = tuple(sorted((*marks, *self.following), key=len, reverse=True))
        object.__setattr__(self, "longest", max(map(len, inner), default=1))
        object.__setattr__(self, "pattern", re.compile("|".join(map(re.escape, marks)) or r"(?!)"))
        object.__setattr__(self, "inner", re.compile("|".join(map(re.escape, inner)) or r"(?!)"))
        fence = "" if marks and marks[0][0] in "`~" else f"(?:```)?{_GAP}"
        object.__setattr__(self, "gap", re.compile(_GAP + fence))


class Marks:
    """Finds closers and openers in text that comes in pieces."""

    def __init__(self, closers: Closers) -> None:
        self._pattern = closers.inner
        self._longest = closers.longest
        self._tail = ""

    def next(self, piece: str, at: int) -> tuple[int, str]:
        """Find the next one in `piece[at:]`: the index just past it, and itself; the piece's end and nothing."""
        tail, self._tail = self._tail, ""
        if tail:
            found = self._pattern.search(tail + piece[at : at + self._longest])
            if found is not None and found.end() > len(tail):
                return at + found.end() - len(tail), found[0]
        found = self._pattern.search(piece, at)
        if found is not None:
            return found.end(), found[0]
        self._tail = (tail + piece[max(at, len(piece) - self._longest + 1) :])[1 - self._longest :]
        return len(piece), ""


@lru_cache(maxsize=16)
def fence_closers(run: str) -> Closers:
    """Give what closes a fence that was opened by `run`."""
    return Closers(right=(run,), wrong=(), openers=())


@cache
def _names() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Give the patterns of a name among the marker's attributes, and on a line of its own."""
    attribute = r"""\s(?:name|tool|function)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>=]+))"""
    return re.compile(attribute), re.compile(r">\s*([A-Za-z_][\w.:-]*)\s*\Z")


def named(head: str) -> str | None:
    """Give the name that the marker's attributes tell."""
    if ">" not in head:  # a fence or a bracket names nothing
        return None
    attribute, line = _names()
    found = attribute.search(head) or line.search(head)
    return next(group for group in found.groups() if group is not None) if found else None
