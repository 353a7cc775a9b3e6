"""A cache of context sizes: what an earlier request was raised to, or what a server reported, is used again."""

from __future__ import annotations

from typing import NamedTuple


class _Window(NamedTuple):
    size: int
    used: float


class Windows:
    """Caches, by provider and model, the context that a request was raised to, or that the server reported, in tokens.

    Ollama reloads a model for each change of its context, so a request that went back to the smaller one would cause
    two reloads per turn. After `idle` seconds without a request Ollama has unloaded the model anyway (its `keep_alive`
    is five minutes by default), and the entry expires. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, idle: float = 300.0, limit: int = 1024) -> None:
        self.idle = idle
        self.limit = limit
        self._windows: dict[tuple[str, str], _Window] = {}

    def size(self, place: tuple[str, str], at: float) -> int | None:
        """Return the context to request, if known; this counts as use and resets the expiry."""
        window = self._windows.get(place)
        if window is None:
            return None
        if at - window.used >= self.idle:
            self._windows.pop(place, None)
            return None
        self._windows[place] = window._replace(used=at)
        return window.size

    def raised(self, place: tuple[str, str], size: int, at: float) -> None:
        """Record a context that a request needed, or that the server reported."""
        self._windows[place] = _Window(size, at)
        if len(self._windows) > self.limit:
            self._forget()

    def _forget(self) -> None:
        """Evict the least recently used entries."""
        windows = sorted(self._windows.copy().items(), key=lambda each: each[1].used)
        for place, _ in windows[: len(windows) - self.limit]:
            self._windows.pop(place, None)
