"""A cache of recently used values that limits the number of values and the total number of characters in their keys."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
Key = str | tuple[str, ...]


class RecentCache(Generic[T]):
    """An approximate LRU cache with a newer and an older generation of values.

    When the newer generation is full, it replaces the older one, and a new generation begins. A value that is used
    moves to the newer generation. Each generation holds at most `max_entries` values, whose keys together have at most
    `max_characters` characters. A value is not kept if its key alone has more than `max_characters`. Every step is a
    single dict operation, so threads may share a cache.
    """

    def __init__(self, max_entries: int, max_characters: int) -> None:
        self.max_entries = max_entries
        self.max_characters = max_characters
        self._newer: dict[Key, T] = {}
        self._older: dict[Key, T] = {}
        self._size = 0

    def get(self, key: Key) -> T | None:
        """Return the value that is stored under a key; None if there is none."""
        value = self._newer.get(key)
        if value is None:
            value = self._older.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._newer, self._older, self._size = {}, {}, 0

    def put(self, key: Key, value: T) -> None:
        """Store a value under a key."""
        size = len(key) if isinstance(key, str) else sum(map(len, key))
        if size > self.max_characters:
            return
        if len(self._newer) >= self.max_entries or self._size + size > self.max_characters:
            self._older, self._newer, self._size = self._newer, {}, 0
        self._newer[key] = value
        self._size += size
