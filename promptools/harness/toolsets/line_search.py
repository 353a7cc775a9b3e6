"""Find a sequence of lines in a file, exactly or loosely, in time linear in the file and in the patch.

Each line becomes a number, and equal lines get the same number. Prefix sums give the polynomial hash of any part of the
file in constant time. For each length that is a power of two, an index maps hashes to positions. A sequence of any
other length is looked up by its longest prefix or suffix whose length is a power of two, whichever is rarer in the
file. A file is therefore scanned once for each power of two, not once for each hunk. A match is finally compared line
by line, so a hash collision never leads to a change in the wrong place.

The members of `Likeness` are tried from strict to loose, each only if the stricter ones found nothing.
"""

from __future__ import annotations

import secrets
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cached_property

MODULUS = (1 << 61) - 1
BASE = (1 << 32) + secrets.randbelow(MODULUS - (1 << 32))

QUOTES_AND_DASHES = {
    **dict.fromkeys("‘’‚‛′`´", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    "…": "...",
    "⁄": "/",
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}
UNDECODABLE = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
"""Maps bytes that are not valid UTF-8, as `surrogateescape` decodes them, to U+FFFD, which the model saw instead."""
LOOK_ALIKES = {**str.maketrans(QUOTES_AND_DASHES), **UNDECODABLE}


class Likeness(IntEnum):
    """How similar the lines of a patch must be to the lines of a file, from strict to loose."""

    EXACT = 0
    TRAILING_SPACE = 1
    """Space at the end of lines is ignored."""
    ALL_SPACE = 2
    """Like `TRAILING_SPACE`, but space at the beginning of lines is ignored too, and any run of space inside a line
    counts as a single space.

    Tabs and no-break spaces (U+00A0 and U+202F) count as space.
    """
    LOOK_ALIKE = 3
    """Like `ALL_SPACE`, but typographic quotes and dashes also count as ASCII ones, and invisible characters are
    ignored."""


def _one_space(line: str) -> str:
    return " ".join(line.split())


def _plain(line: str) -> str:
    return _one_space(unicodedata.normalize("NFC", line).translate(LOOK_ALIKES))


NORMALIZE: dict[Likeness, Callable[[str], str]] = {
    Likeness.EXACT: str,
    Likeness.TRAILING_SPACE: str.rstrip,
    Likeness.ALL_SPACE: _one_space,
    Likeness.LOOK_ALIKE: _plain,
}


class LineSearch:
    """Searches the lines of one file for sequences of lines; `likeness` is how similar the lines must be."""

    def __init__(self, lines: Sequence[str], likeness: Likeness) -> None:
        self._normalize = NORMALIZE[likeness]
        self._numbers: dict[str, int] = {}
        self._file = [self._numbers.setdefault(self._normalize(line), len(self._numbers) + 1) for line in lines]
        self._indexes: dict[int, dict[int, list[int]]] = {}
        self._powers = [1]

    @cached_property
    def _sums(self) -> list[int]:
        return _prefix_sums(self._file)

    def positions(self, old: Sequence[str]) -> Sequence[int]:
        """Return all positions in the file, in order, at which the sequence of lines `old` begins.

        A position may be wrong if two hashes collide. Before you use a position, call `matches` to check it.
        """
        wanted = self._to_numbers(old)
        if wanted is None or not 0 < len(wanted) <= len(self._file):
            return ()
        positions, size = self._candidates(wanted)
        if size < len(wanted):
            hashed = self._hash(_prefix_sums(wanted), 0, len(wanted))
            last = len(self._file) - len(wanted)
            positions = [
                at for at in positions if 0 <= at <= last and self._hash(self._sums, at, len(wanted)) == hashed
            ]
        return positions

    def matches(self, old: Sequence[str], at: int) -> bool:
        """Return whether the lines `old` are in the file at position `at`. The lines are compared one by one."""
        return self._file[at : at + len(old)] == self._to_numbers(old)

    def longest_prefix(self, old: Sequence[str]) -> tuple[int, int]:
        """Return the length of the longest prefix of `old` that occurs in the file, and where it first occurs."""
        size = _largest(len(old), lambda size: bool(self.positions(old[:size])))
        return size, self.positions(old[:size])[0] if size else 0

    def longest_suffix(self, old: Sequence[str]) -> tuple[int, int]:
        """Return the length of the longest suffix of `old` that occurs in the file, and where it first occurs."""
        size = _largest(len(old), lambda size: bool(self.positions(old[len(old) - size :])))
        return size, self.positions(old[len(old) - size :])[0] if size else 0

    def _to_numbers(self, old: Sequence[str]) -> list[int] | None:
        """Return the numbers that stand for the lines `old`; None if one of the lines does not occur in the file."""
        wanted: list[int] = []
        for line in old:
            number = self._numbers.get(self._normalize(line))
            if number is None:
                return None
            wanted.append(number)
        return wanted

    def _candidates(self, wanted: list[int]) -> tuple[list[int], int]:
        """Return the positions at which `wanted` may begin, and the length of the part of `wanted` that was looked up.

        The length is a power of two.
        """
        size = 1 << (len(wanted).bit_length() - 1)
        index = self._index(size)
        sums = _prefix_sums(wanted)
        rest = len(wanted) - size
        head = index.get(self._hash(sums, 0, size), [])
        if not rest or not head:
            return head, size
        tail = index.get(self._hash(sums, rest, size), [])
        return (head, size) if len(head) <= len(tail) else ([at - rest for at in tail], size)

    def _index(self, size: int) -> dict[int, list[int]]:
        if size not in self._indexes:
            index: dict[int, list[int]] = {}
            sums, power = self._sums, self._power(size)
            for at in range(len(self._file) - size + 1):
                index.setdefault((sums[at + size] - sums[at] * power) % MODULUS, []).append(at)
            self._indexes[size] = index
        return self._indexes[size]

    def _hash(self, sums: list[int], at: int, size: int) -> int:
        return (sums[at + size] - sums[at] * self._power(size)) % MODULUS

    def _power(self, exponent: int) -> int:
        while len(self._powers) <= exponent:
            self._powers.append(self._powers[-1] * BASE % MODULUS)
        return self._powers[exponent]


def _prefix_sums(numbers: list[int]) -> list[int]:
    sums, total = [0], 0
    for number in numbers:
        total = (total * BASE + number) % MODULUS
        sums.append(total)
    return sums


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` for which `fits` is true.

    `fits` must be true for all smaller numbers too.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def from_position(positions: Sequence[int], start: int) -> Sequence[int]:
    """Return the positions that are at least `start`. `positions` must be sorted."""
    return positions[bisect_left(positions, start) :]
