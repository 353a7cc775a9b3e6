"""Narrow JSON values to the wanted type, or to an empty one: a body off the wire may hold anything."""

from __future__ import annotations

import math
from typing import Any

from promptools.json_values import is_array, is_object

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""
MAX_TIMESTAMP = 253_402_300_799
"""The last second of the year 9999, since 1970."""


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is an array, else an empty one."""
    return value if is_array(value) else []


def as_text(value: Any) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_int(value: Any) -> int | None:
    """Return `value` if it is an integer; True and False are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: Any) -> int | float | None:
    """Return `value` if it is a finite number within `MAX_SAFE_INTEGER`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and not math.isnan(value) else None


def as_count(value: Any) -> int | None:
    """Return a count of tokens or nanoseconds, an integer from 0 on; some servers write 9.0 for 9."""
    number = as_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def as_timestamp(value: Any) -> int:
    """Return seconds since 1970; 0 for anything that is not a time before the year 10000."""
    number = as_number(value)
    return int(number) if number is not None and 0 <= number <= MAX_TIMESTAMP else 0
