"""How tests wait: for what happens, not for time. A machine may be a hundred times slower than this one at its best."""

import time

LONG = 300
"""Seconds after which what is waited for does not come any more: a safety net, which no slow machine reaches."""
LIMITS = (0.3, 3, 30, LONG)
"""Limits that have to run out, the shortest first: each gives a slow machine more time for what happens before."""


def until(condition):
    """Wait until a condition holds, and return what it gave."""
    end = time.monotonic() + LONG
    while not (result := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return result
