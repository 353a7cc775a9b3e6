"""Read numbers in JSON from the network, where a value may have any type, and 9 may be written as 9.0."""

from __future__ import annotations

import math
from typing import Any

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""
MAX_TIMESTAMP = 253_402_300_799
"""The last second of the year 9999, in seconds since 1970."""


def as_int(value: Any) -> int | None:
    """Return `value` if it is an integer, else None; True and False do not pass as integers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: Any) -> int | float | None:
    """Return `value` if it is a number from `-MAX_SAFE_INTEGER` to `MAX_SAFE_INTEGER`, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and not math.isnan(value) else None


def as_count(value: Any) -> int | None:
    """Return `value`, a count of tokens or nanoseconds, as a non-negative integer; None if it is anything else.

    A float such as 9.0 is accepted too, because some servers write 9.0 for 9.
    """
    number = as_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def as_timestamp(value: Any) -> int:
    """Return `value` as whole seconds since 1970; 0 if it is not a time from 1970 to the end of the year 9999."""
    number = as_number(value)
    return int(number) if number is not None and 0 <= number <= MAX_TIMESTAMP else 0
