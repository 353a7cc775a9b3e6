"""A token bucket: it holds the requests of one minute at most, and is refilled steadily."""

from __future__ import annotations


class TokenBucket:
    """Allows `per_minute` requests at once, and as many in each minute after that."""

    def __init__(self, per_minute: int, at: float) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60
        self._tokens = self._capacity
        self._at = at

    def wait(self, at: float) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        self._tokens = min(self._capacity, self._tokens + max(0.0, at - self._at) * self._rate)
        self._at = max(at, self._at)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate

    def take(self) -> None:
        """Take a token."""
        self._tokens -= 1
