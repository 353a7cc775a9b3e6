"""What was used lately, kept by a text; bounded in number and in characters."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
Key = str | tuple[str, ...]


class Recent(Generic[T]):
    """A cache in two halves: what was used in the newer one stays when the older one is dropped.

    Each half holds `most` values, whose keys have at most `characters` characters together; a larger key is not kept.
    Each step is a single operation on a dict, so threads may share it.
    """

    def __init__(self, most: int, characters: int) -> None:
        self.most = most
        self.characters = characters
        self._newer: dict[Key, T] = {}
        self._older: dict[Key, T] = {}
        self._size = 0

    def get(self, key: Key) -> T | None:
        """Return what is kept under a key."""
        found = self._newer.get(key)
        if found is None:
            found = self._older.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._newer, self._older, self._size = {}, {}, 0

    def put(self, key: Key, value: T) -> None:
        """Keep a value."""
        size = len(key) if isinstance(key, str) else sum(map(len, key))
        if size > self.characters:
            return
        if len(self._newer) >= self.most or self._size + size > self.characters:
            self._older, self._newer, self._size = self._newer, {}, 0
        self._newer[key] = value
        self._size += size
