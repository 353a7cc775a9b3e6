"""Cut off the turns that a model invents after its own, where nothing stops it."""

from __future__ import annotations

import re
from collections.abc import Sequence


class TurnEnd:
    """Pass on the text of a reply up to the first of `ends`. O(n) in characters."""

    def __init__(self, ends: Sequence[str]) -> None:
        self._ends = ends
        self._pattern = re.compile("|".join(map(re.escape, ends)) or "(?!)")
        self._longest = max(map(len, ends), default=0)
        self._held = ""
        self._cut: list[str] = []

    @property
    def discarded(self) -> str:
        """The end and everything after it."""
        return "".join(self._cut)

    def feed(self, text: str) -> str:
        """Add text; return what is certainly part of the reply."""
        if not self._ends:
            return text
        if self._cut:
            self._cut.append(text)
            return ""
        text = self._held + text
        match, held = self._pattern.search(text), self._hold_from(text)
        if match is not None and match.start() <= held:  # else another end may have begun before it
            return self._cut_at(match.start(), text)
        self._held = text[held:]
        return text[:held]

    def close(self) -> str:
        """Return the text that was held back."""
        match = self._pattern.search(self._held)
        return self._cut_at(match.start() if match is not None else len(self._held), self._held)

    def _cut_at(self, start: int, text: str) -> str:
        self._held = ""
        if start < len(text):
            self._cut.append(text[start:])
        return text[:start]

    def _hold_from(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of an end."""
        first = max(0, len(text) - self._longest + 1)
        starts = (at for at in range(first, len(text)) if any(end.startswith(text[at:]) for end in self._ends))
        return next(starts, len(text))
