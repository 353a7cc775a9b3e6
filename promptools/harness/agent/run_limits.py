"""The limits of a run: steps, tokens, seconds, consecutive failures, repeated calls.

The error that is raised at a limit names the limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.harness.agent.harness_errors import LimitsExceeded

if TYPE_CHECKING:
    from promptools.types import Call, Result


# Count how many times in a row the same calls are at the end of a series: `A A A`, and `A B A B A B` too.


MAX_PERIOD = 3
"""Maximum number of calls in a repeated pattern."""


class Repetition:
    """Counts how many times a pattern of one, two or three keys is repeated at the end of a series of keys.

    A key stands for a call with its arguments. After `a b c c c` the count is 3, and after `a b a b` it is 2. Adding a
    key takes constant time: for each pattern length p, the class counts how many keys in a row equal the key p places
    earlier.
    """

    def __init__(self) -> None:
        self._latest: list[str] = []
        self._matches = [0] * MAX_PERIOD

    def add(self, key: str) -> int:
        """Add a key to the series; return how many times the pattern at the end of the series occurs in a row.

        The pattern is the last key, the last two keys, or the last three keys, whichever gives the highest number. The
        number is at least 1.
        """
        for period in range(1, MAX_PERIOD + 1):
            same = len(self._latest) >= period and self._latest[-period] == key
            self._matches[period - 1] = self._matches[period - 1] + 1 if same else 0
        self._latest = [*self._latest[-MAX_PERIOD + 1 :], key]
        return max(1 + matches // period for period, matches in enumerate(self._matches, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits of a run; None means no limit. `LimitsExceeded` is raised at a limit, with the transcript so far."""

    steps: int | None = 50
    """Maximum number of replies that are used. If the last of these replies makes calls, the calls are not run."""
    tokens: int | None = None
    """Maximum number of tokens of all prompts and replies together. Tokens that the server does not report are
    not counted."""
    seconds: float | None = None
    """Maximum number of seconds for the whole run. The limit is checked before each request, and the time that is left
    becomes the timeout of a request that has none of its own. A tool that is running is not interrupted."""
    failures: int | None = 10
    """Number of consecutive failed calls at which the run ends."""
    repeats: int | None = 3
    """The same call is rejected when it is made this many times in a row. With 3, the same call is run twice; the third
    time it is not run, and its result tells the model so. Patterns of two or three calls that are made in turn are
    counted in the same way. If the call after a rejected one is a repetition too, the run ends."""
    nudges: int = 1
    """Maximum number of times that the model is asked to make a call that it announced but did not make."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 0 if limit.name in {"nudges", "seconds"} else 2 if limit.name == "repeats" else 1
            if value is not None and value < least:
                raise UsageError(
                    f"RunLimits.{limit.name} is {value!r}; it must be at least {least}, or None for no limit"
                )


NO_LIMITS = RunLimits(steps=None, failures=None, repeats=None, nudges=0)


class LimitTracker:
    """Tracks what a run has used, and checks it against the limits."""

    def __init__(self, limits: RunLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._began = clock()
        self._failures = 0
        self._last_result = ""
        self._nudges = 0
        self._warned = False
        self._repetition = Repetition()

    @property
    def seconds_left(self) -> float | None:
        """The seconds that are left until the limit; None without a limit."""
        limit = self.limits.seconds
        return None if limit is None else limit - (self._clock() - self._began)

    def check_request(self, usage: dict[str, Any] | None) -> None:
        """Raise `LimitsExceeded` if no further request may be sent."""
        left, limit, used = self.seconds_left, self.limits.tokens, total_tokens(usage)
        if left is not None and left <= 0:
            raise LimitsExceeded(f"the limit of {self.limits.seconds:g} seconds is used up", limit="seconds")
        if limit is not None and used >= limit:
            raise LimitsExceeded(f"{used} tokens are used, of at most {limit}", limit="tokens")

    def check_call(self, call: Call) -> str | None:
        """Return None if a call may be run, or an error text for the model if the call was repeated too many times.

        Raises `LimitsExceeded` if the previous call was rejected for the same reason.
        """
        limit = self.limits.repeats
        if limit is None:
            return None
        arguments = json.dumps(call.arguments, sort_keys=True) if call.arguments else call.arguments_json
        times = self._repetition.add(f"{call.name} {arguments}")
        warned, self._warned = self._warned, times >= limit
        if not self._warned:
            return None
        if warned:
            raise LimitsExceeded(f"the model repeats the same calls, the last is of {call.name!r}", limit="repeats")
        return (
            f"Error: not run: the same calls with the same arguments were made {times} times in a row. Their results"
            " will not change. Do something else, or answer."
        )

    def add_result(self, result: Result) -> None:
        """Count a result toward the limit on consecutive failures."""
        self._failures = self._failures + 1 if result.is_error else 0
        self._last_result = result.content

    def check_failures(self) -> None:
        """Raise `LimitsExceeded` after too many consecutive failures."""
        limit = self.limits.failures
        if limit is not None and self._failures >= limit:
            raise LimitsExceeded(
                f"{self._failures} calls in a row failed, the last with {clip(self._last_result)!r}", limit="failures"
            )

    def take_nudge(self) -> bool:
        """Count a nudge (a request to make an announced call); return whether the limit `nudges` allows it."""
        self._nudges += 1
        return self._nudges <= self.limits.nudges


def total_tokens(usage: dict[str, Any] | None) -> int:
    """Return the total number of tokens in the `usage` of a reply; 0 if the server reports none."""
    counts = usage or {}
    total = counts.get("total_tokens")
    if isinstance(total, int):
        return total
    parts = (counts.get("prompt_tokens"), counts.get("completion_tokens"))
    return sum(part for part in parts if isinstance(part, int))
