"""Long computations off the event loop, in a few threads: they share one interpreter with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")
T = TypeVar("T")

MAX_THREADS = 2
"""Maximum number of threads of one event loop: more would not be faster, and leave the loop less time."""
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("promptools_limiter")


async def in_thread(work: Callable[[A], T], argument: A) -> T:
    """Call a function in a thread; a cancelled task ends only after the function has returned."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _LIMITER.set(limiter)
    return await anyio.to_thread.run_sync(work, argument, limiter=limiter)
