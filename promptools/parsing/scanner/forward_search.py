"""A search through one text that remembers what it has found."""

from __future__ import annotations

import re

from promptools.parsing.scanner.marker_scanner import MarkerScanner


class ForwardSearch:
    """Searches one text from front to back, and remembers the next match of each source.

    For text with many matches that turn out to begin nothing: all searches together are O(n), where each by itself
    might search the whole rest of the text for the next occurrence of something rare.
    """

    def __init__(self, scanner: MarkerScanner, text: str) -> None:
        self.scanner = scanner
        self.text = text
        self._sources = scanner.searches()
        self._next_matches: list[re.Match[str] | None] = []
        self._at = 0

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return what `MarkerScanner.search` does."""
        assert text is self.text
        if not self._next_matches or at < self._at:
            self._next_matches = [source(self.text, at) for source in self._sources]
        self._at = at
        nearest: re.Match[str] | None = None
        for index, match in enumerate(self._next_matches):
            if match is not None and match.start() < at:
                match = self._next_matches[index] = self._sources[index](self.text, at)  # noqa: PLW2901  the next match of this source
            if match is not None and (nearest is None or match.start() < nearest.start()):
                nearest = match
        return nearest
