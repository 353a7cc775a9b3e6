"""A time limit on others, which does not count the time in which the event loop itself was late.

`asyncio.timeout` looks at the clock alone. After the loop was blocked, its limit is over before the loop has looked at
what arrived meanwhile: a server that answered at once is reported as one that did not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_LOOKS = 20
"""Times that the loop looks at what has arrived before the limit is over; each counts as an equal part of it."""


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; raise `TimeoutError` after so many seconds (None: never) in which the loop ran."""
    if seconds is None:
        return await work
    if seconds <= 0:
        work.close()
        raise TimeoutError
    task = asyncio.ensure_future(work)
    try:
        for _ in range(_LOOKS):
            await asyncio.wait({task}, timeout=seconds / _LOOKS)
            if task.done():
                return task.result()
    finally:
        task.cancel()
    raise TimeoutError
