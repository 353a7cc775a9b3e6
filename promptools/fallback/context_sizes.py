"""A cache of context sizes: what an earlier request was raised to, or what a server reported, is used again."""

from __future__ import annotations

from typing import NamedTuple


class _ContextSize(NamedTuple):
    size: int
    last_used: float


class ContextSizes:
    """Caches, by provider and model, the context that a request was raised to, or that the server reported, in tokens.

    Ollama reloads a model for each change of its context, so a request that went back to the smaller one would cause
    two reloads per turn. After `idle` seconds without a request Ollama has unloaded the model anyway (its `keep_alive`
    is five minutes by default), and the entry expires. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, idle: float = 300.0, limit: int = 1024) -> None:
        self.idle = idle
        self.limit = limit
        self._sizes: dict[tuple[str, str], _ContextSize] = {}

    def get(self, provider_model: tuple[str, str], at: float) -> int | None:
        """Return the context to request, if known; this counts as use and resets the expiry."""
        entry = self._sizes.get(provider_model)
        if entry is None:
            return None
        if at - entry.last_used >= self.idle:
            self._sizes.pop(provider_model, None)
            return None
        self._sizes[provider_model] = entry._replace(last_used=at)
        return entry.size

    def put(self, provider_model: tuple[str, str], size: int, at: float) -> None:
        """Record a context that a request needed, or that the server reported."""
        self._sizes[provider_model] = _ContextSize(size, at)
        if len(self._sizes) > self.limit:
            self._evict()

    def _evict(self) -> None:
        """Evict the least recently used entries."""
        entries = sorted(self._sizes.copy().items(), key=lambda item: item[1].last_used)
        for provider_model, _ in entries[: len(entries) - self.limit]:
            self._sizes.pop(provider_model, None)
