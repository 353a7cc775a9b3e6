"""Header fields of requests and responses, which `direct_client` sends and `http1_connection` receives."""

from __future__ import annotations


class Fields:
    """Header fields as they are on the wire; names are compared case-insensitively."""

    __slots__ = ("raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the values of a field, joined with commas."""
        key = name.encode("latin-1").lower()
        values = [value for field, value in self.raw if field.lower() == key]
        return b", ".join(values).decode("latin-1") if values else default

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None
