"""A memory of contexts: what fitted once is asked for again, and what a server said that it holds is not forgotten."""

from __future__ import annotations

from typing import NamedTuple


class _Window(NamedTuple):
    size: int
    used: float


class Windows:
    """Remembers, by provider and model, the context that a request was raised to, or that the server told, in tokens.

    Ollama loads a model anew for each other context, so requests that went back to the smaller one would make it load
    twice a turn. After `idle` seconds without a request it has unloaded the model anyway (its `keep_alive` is five
    minutes by default), and the memory goes too. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, idle: float = 300.0, limit: int = 1024) -> None:
        self.idle = idle
        self.limit = limit
        self._windows: dict[tuple[str, str], _Window] = {}

    def size(self, place: tuple[str, str], at: float) -> int | None:
        """Give the context to ask for; asking is using it."""
        window = self._windows.get(place)
        if window is None:
            return None
        if at - window.used >= self.idle:
            self._windows.pop(place, None)
            return None
        self._windows[place] = window._replace(used=at)
        return window.size

    def raised(self, place: tuple[str, str], size: int, at: float) -> None:
        """Report a context that served."""
        self._windows[place] = _Window(size, at)
        if len(self._windows) > self.limit:
            self._forget()

    def _forget(self) -> None:
        """Drop those that were used longest ago."""
        windows = sorted(self._windows.copy().items(), key=lambda each: each[1].used)
        for place, _ in windows[: len(windows) - self.limit]:
            self._windows.pop(place, None)
