"""A circuit breaker with one circuit per provider, model and mode."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

BreakerState = Literal["closed", "open", "half-open"]


class BreakerKey(NamedTuple):
    """Identifies a circuit. `provider` is the provider's name or, for a provider without a name, its base URL."""

    provider: str
    model: str
    mode: str


@dataclass(slots=True)
class _Circuit:
    failures: deque[float]
    """The times of the most recent failures."""
    last_failure: float = 0.0
    """The time of the last failure."""
    opened: float | None = None
    probes: dict[int, tuple[float]] = field(default_factory=dict[int, tuple[float]])
    """Maps the number of each probe (a trial of a half-open circuit) to its start time. All but the last have expired.

    The thread that first sets the entry for a number owns that probe.
    """
    why: str = ""


class Breaker:
    """Skips a mode (a way to get calls from a model) that has just failed repeatedly on a server.

    A circuit is closed (the mode is used) until `threshold` failures fall within `window` seconds, or one lasting
    failure occurs. Then the circuit is open (the mode is skipped) for `cool_down` seconds. After that it is half-open:
    one exchange tries the mode as a probe, and the result closes the circuit or opens it again. A probe that never
    reports a result expires after another `cool_down`.

    Times are in seconds of one monotonic clock, the same for all users of the breaker. At most `limit` circuits are
    kept; those that failed longest ago are evicted first. The breaker is thread-safe: adding a circuit, taking a probe
    and recording a failure each use a single operation of a dict or deque, which is atomic.
    """

    def __init__(
        self, *, threshold: int = 3, window: float = 60.0, cool_down: float = 300.0, limit: int = 1024
    ) -> None:
        self.threshold = threshold
        self.window = window
        self.cool_down = cool_down
        self.limit = limit
        self._circuits: dict[BreakerKey, _Circuit] = {}

    def state(self, key: BreakerKey, at: float) -> BreakerState:
        """Return the state of a circuit at the time `at`; unlike `allows`, this begins no probe."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.opened is None:
            return "closed"
        return "open" if at < circuit.opened + self.cool_down else "half-open"

    def allows(self, key: BreakerKey, at: float) -> bool:
        """Return whether a mode may be tried. A half-open circuit allows one caller, whose exchange is the probe."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.opened is None:
            return True
        if at < circuit.opened + self.cool_down:
            return False
        probes = circuit.probes
        number = len(probes)
        if number and at < probes[number - 1][0] + self.cool_down:
            return False
        mine = (at,)
        return probes.setdefault(number, mine) is mine

    def record_failure(self, key: BreakerKey, at: float, *, why: str = "", lasting: bool = False) -> None:
        """Record a failure of the kind `why`; a `lasting` failure opens the circuit immediately."""
        circuit = self._circuits.setdefault(key, _Circuit(deque(maxlen=max(1, self.threshold))))
        circuit.why, circuit.last_failure = why, at
        circuit.failures.append(at)
        probed, circuit.probes = bool(circuit.probes), {}
        recent = tuple(circuit.failures)
        many = len(recent) >= self.threshold and max(recent) - min(recent) < self.window
        if lasting or probed or many:
            circuit.opened = at
        if len(self._circuits) > self.limit:
            self._evict()

    def record_success(self, key: BreakerKey) -> None:
        """Record a usable reply, which resets the circuit."""
        self._circuits.pop(key, None)

    def forget(self, provider: str) -> None:
        """Reset all circuits of a provider, because its server may have changed."""
        for key in [key for key in tuple(self._circuits) if key.provider == provider]:
            self._circuits.pop(key, None)

    def why(self, key: BreakerKey) -> str:
        """Return the reason (`why`) recorded for the last failure; empty if there was none."""
        circuit = self._circuits.get(key)
        return circuit.why if circuit else ""

    def states(self, at: float) -> dict[BreakerKey, BreakerState]:
        """Return the state of every circuit, for display."""
        return {key: self.state(key, at) for key in tuple(self._circuits)}

    def open_circuits(self, at: float) -> dict[BreakerKey, tuple[float, str]]:
        """Return the open circuits, each with its remaining time in seconds and the reason for its last failure."""
        return {
            key: (circuit.opened + self.cool_down - at, circuit.why)
            for key, circuit in self._circuits.copy().items()
            if circuit.opened is not None and at < circuit.opened + self.cool_down
        }

    def open(self, key: BreakerKey, at: float, seconds: float, why: str) -> None:
        """Open a circuit for `seconds`, because another process that shares the breaker's state has opened it."""
        circuit = _Circuit(deque(maxlen=max(1, self.threshold)), last_failure=at, why=why)
        circuit.opened = at + seconds - self.cool_down
        self._circuits[key] = circuit
        if len(self._circuits) > self.limit:
            self._evict()

    def _evict(self) -> None:
        """Evict the circuits that failed longest ago."""
        circuits = sorted(self._circuits.copy().items(), key=lambda item: item[1].last_failure)
        for key, _ in circuits[: len(circuits) - self.limit]:
            self._circuits.pop(key, None)
