"""A memory of what failed: one line per provider, model and mode."""

from __future__ import annotations

from collections import OrderedDict
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
    failures: list[float] = field(default_factory=list[float])
    opened: float | None = None
    probing: float | None = None
    why: str = ""


class Breaker:
    """Keeps a mode from being tried again and again where it has just failed.

    A mode is closed (used) until `threshold` failures fall within `window` seconds, or one lasting failure comes. Then
    it is open (skipped) for `cool_down` seconds. After that it is half-open: one exchange probes it, and what comes of
    that closes it, or opens it again. A probe that never reports gives its place up after another `cool_down`.

    Times are the `at` of the happenings: seconds of one monotonic clock, the same for all who share the breaker. At
    most `limit` lines are kept, the least recently used go first. Every method is one short run of Python code over
    dicts, so threads may share it.
    """

    def __init__(
        self, *, threshold: int = 3, window: float = 60.0, cool_down: float = 300.0, limit: int = 1024
    ) -> None:
        self.threshold = threshold
        self.window = window
        self.cool_down = cool_down
        self.limit = limit
        self._lines: OrderedDict[Key, _Line] = OrderedDict()

    def state(self, key: Key, at: float) -> BreakerState:
        """Say how a mode stands at a time, without touching it."""
        line = self._lines.get(key)
        if line is None or line.opened is None:
            return "closed"
        return "open" if at < line.opened + self.cool_down else "half-open"

    def admits(self, key: Key, at: float) -> bool:
        """Say whether a mode may be tried; in half-open the one who asks first takes the probe."""
        state = self.state(key, at)
        if state != "half-open":
            return state == "closed"
        line = self._lines[key]
        if line.probing is not None and at < line.probing + self.cool_down:
            return False
        line.probing = at
        return True

    def failed(self, key: Key, at: float, *, why: str = "", lasting: bool = False) -> None:
        """Report that a mode failed, and why in a word; `lasting` opens at once."""
        line = self._line(key)
        line.why = why
        line.failures = [then for then in line.failures if at - then < self.window]
        line.failures.append(at)
        probed = line.probing is not None
        line.probing = None
        if lasting or probed or len(line.failures) >= self.threshold:
            line.opened = at

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

    def _line(self, key: Key) -> _Line:
        line = self._lines.setdefault(key, _Line())
        self._lines.move_to_end(key)
        while len(self._lines) > self.limit:
            self._lines.popitem(last=False)
        return line
