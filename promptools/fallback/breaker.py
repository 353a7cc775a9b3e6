"""A memory of what failed: one line per provider, model and mode."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

BreakerState = Literal["closed", "open", "half-open"]


class Key(NamedTuple):
    """What a breaker remembers by; `provider` is its name, or the base URL where it has none."""

    provider: str
    model: str
    mode: str


@dataclass(slots=True)
class _Line:
    failures: deque[float]
    """When it failed, the last times."""
    used: float = 0.0
    """When it failed last."""
    opened: float | None = None
    probes: dict[int, tuple[float]] = field(default_factory=dict[int, tuple[float]])
    """When each probe began, by number; the last one counts. A number is taken by the first who sets it."""
    why: str = ""


class Breaker:
    """Keeps a mode from being tried again and again where it has just failed.

    A mode is closed (used) until `threshold` failures fall within `window` seconds, or one lasting failure comes. Then
    it is open (skipped) for `cool_down` seconds. After that it is half-open: one exchange probes it, and what comes of
    that closes it, or opens it again. A probe that never reports gives its place up after another `cool_down`.

    Times are the `at` of the happenings: seconds of one monotonic clock, the same for all who share the breaker. At
    most `limit` lines are kept, those that failed longest ago go first. Threads may share it: a line is made, a probe
    taken and a failure added by one operation of a dict or deque each, which cannot be interrupted.
    """

    def __init__(
        self, *, threshold: int = 3, window: float = 60.0, cool_down: float = 300.0, limit: int = 1024
    ) -> None:
        self.threshold = threshold
        self.window = window
        self.cool_down = cool_down
        self.limit = limit
        self._lines: dict[Key, _Line] = {}

    def state(self, key: Key, at: float) -> BreakerState:
        """Say how a mode stands at a time, without touching it."""
        line = self._lines.get(key)
        if line is None or line.opened is None:
            return "closed"
        return "open" if at < line.opened + self.cool_down else "half-open"

    def admits(self, key: Key, at: float) -> bool:
        """Say whether a mode may be tried; in half-open the one who asks first takes the probe."""
        line = self._lines.get(key)
        if line is None or line.opened is None:
            return True
        if at < line.opened + self.cool_down:
            return False
        probes = line.probes
        number = len(probes)
        if number and at < probes[number - 1][0] + self.cool_down:
            return False
        mine = (at,)
        return probes.setdefault(number, mine) is mine

    def failed(self, key: Key, at: float, *, why: str = "", lasting: bool = False) -> None:
        """Report that a mode failed, and why in a word; `lasting` opens at once."""
        line = self._lines.setdefault(key, _Line(deque(maxlen=max(1, self.threshold))))
        line.why, line.used = why, at
        line.failures.append(at)
        probed, line.probes = bool(line.probes), {}
        recent = tuple(line.failures)
        many = len(recent) >= self.threshold and max(recent) - min(recent) < self.window
        if lasting or probed or many:
            line.opened = at
        if len(self._lines) > self.limit:
            self._forget()

    def worked(self, key: Key) -> None:
        """Report that a mode gave a good reply: all is forgotten."""
        self._lines.pop(key, None)

    def why(self, key: Key) -> str:
        """Give the reason of a mode's last failure; empty when there was none."""
        line = self._lines.get(key)
        return line.why if line else ""

    def lines(self, at: float) -> dict[Key, BreakerState]:
        """Give every remembered line and how it stands, for display."""
        return {key: self.state(key, at) for key in tuple(self._lines)}

    def _forget(self) -> None:
        """Drop the lines that failed longest ago."""
        lines = sorted(self._lines.copy().items(), key=lambda each: each[1].used)
        for key, _ in lines[: len(lines) - self.limit]:
            self._lines.pop(key, None)
