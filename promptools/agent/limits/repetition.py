"""Find out how often a series of calls ends with the same calls: `A A A`, and `A B A B A B` too."""

from __future__ import annotations

MAX_PERIOD = 3
"""The most calls that are repeated in turns."""


class Repetition:
    """A series of keys. For each period it is known how long its end repeats itself, so a step costs the same always.

    The end repeats itself with period p as far as each key equals the one p places before.
    """

    def __init__(self) -> None:
        self._latest: list[str] = []
        self._matches = [0] * MAX_PERIOD

    def add(self, key: str) -> int:
        """Add a key; return how many times in a row the series ends with the same one, two or three keys."""
        for period in range(1, MAX_PERIOD + 1):
            same = len(self._latest) >= period and self._latest[-period] == key
            self._matches[period - 1] = self._matches[period - 1] + 1 if same else 0
        self._latest = [*self._latest[-MAX_PERIOD + 1 :], key]
        return max(1 + matches // period for period, matches in enumerate(self._matches, 1))
