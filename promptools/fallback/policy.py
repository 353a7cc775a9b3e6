"""When to stop and how long to wait between sends: tenacity's objects, called with a small state of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(slots=True)
class PolicyState:
    """What a `stop=` or `wait=` object sees: the fields of tenacity's `RetryCallState` that a clock and a counter fill.

    `stop_after_attempt`, `stop_after_delay`, `stop_before_delay` and every `wait_*` that looks at numbers work on it.
    """

    attempt_number: int = 0
    """Sends made so far."""
    seconds_since_start: float = 0.0
    idle_for: float = 0.0
    """Seconds spent waiting between sends."""
    upcoming_sleep: float = 0.0
    start_time: float = 0.0
    outcome: None = None
    outcome_timestamp: float | None = None


Stop: TypeAlias = Callable[[Any], bool]
"""`tenacity.stop_*`, their `&` and `|`, or any function of the state: true means no further send."""
WaitFor: TypeAlias = Callable[[Any], float]
"""`tenacity.wait_*`, their sums, or any function of the state: seconds before the next send."""


class Policy:
    """Counts one exchange's sends and says whether, and after how long, there may be another."""

    def __init__(
        self, start: float, *, stop: Stop | None = None, wait: WaitFor | None = None, deadline: float | None = None
    ) -> None:
        self._stop = stop
        self._wait = wait
        self._deadline = deadline
        self.state = PolicyState(start_time=start)

    def sent(self) -> None:
        """Count a send."""
        self.state.attempt_number += 1

    def left(self, at: float) -> float | None:
        """Give the seconds left of the deadline, never below zero; None when there is none."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - (at - self.state.start_time))

    def again(self, at: float) -> float | str:
        """Give the seconds to wait before another send, or why there shall be none."""
        state = self.state
        state.outcome_timestamp = at
        state.seconds_since_start = at - state.start_time
        state.upcoming_sleep = max(0.0, float(self._wait(state))) if self._wait else 0.0
        if self._stop and self._stop(state):
            return f"the stop policy allowed no more than {state.attempt_number} sends"
        left = self.left(at)
        if left is not None and left <= state.upcoming_sleep:
            return f"the deadline of {self._deadline:g} s is used up"
        state.idle_for += state.upcoming_sleep
        return state.upcoming_sleep
