"""Decide when to stop retrying and how long to wait, with tenacity's `stop` and `wait` objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(slots=True)
class RetryState:
    """The argument for `stop=` and `wait=` objects: the time and count fields of tenacity's `RetryCallState`.

    `stop_after_attempt`, `stop_after_delay` and `stop_before_delay` work with it, and so does every `wait_*` that uses
    only these fields.
    """

    attempt_number: int = 0
    """Number of attempts made so far."""
    seconds_since_start: float = 0.0
    idle_for: float = 0.0
    """Seconds spent waiting between attempts."""
    upcoming_sleep: float = 0.0
    start_time: float = 0.0
    outcome: None = None
    outcome_timestamp: float | None = None


Stop: TypeAlias = Callable[[Any], bool]
"""A function that takes a `RetryState` and returns True to end the attempts.

It may be a `tenacity.stop_*` object, several such objects joined by `&` or `|`, or a function of your own.
"""
WaitFor: TypeAlias = Callable[[Any], float]
"""A function that takes a `RetryState` and returns the number of seconds to wait.

It may be a `tenacity.wait_*` object, a sum of such objects, or a function of your own.
"""


class RetryPolicy:
    """Counts the attempts of one exchange, and decides whether another attempt may follow, and when."""

    def __init__(
        self, start: float, *, stop: Stop | None = None, wait: WaitFor | None = None, deadline: float | None = None
    ) -> None:
        self._stop = stop
        self._wait = wait
        self._deadline = deadline
        self.state = RetryState(start_time=start)

    def count_attempt(self) -> None:
        """Count an attempt."""
        self.state.attempt_number += 1

    def seconds_left(self, at: float) -> float | None:
        """Return the seconds left until the deadline, at least zero; None without a deadline."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - (at - self.state.start_time))

    def next_wait(self, at: float) -> float | str:
        """Return the seconds to wait before another attempt, or the reason why there must not be another attempt."""
        state = self.state
        state.outcome_timestamp = at
        state.seconds_since_start = at - state.start_time
        state.upcoming_sleep = max(0.0, float(self._wait(state))) if self._wait else 0.0
        if self._stop and self._stop(state):
            return f"the stop policy allowed no more than {state.attempt_number} sends"
        left = self.seconds_left(at)
        if left is not None and left <= state.upcoming_sleep:
            return f"the deadline of {self._deadline:g} s is used up"
        state.idle_for += state.upcoming_sleep
        return state.upcoming_sleep
