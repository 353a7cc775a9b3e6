"""Time as a last resort: what no count can see, such as a pattern that is matched again from its start at every piece.

What is decided by it has the marker `clock`: `make fuzz` runs it, `make test` does not.

Work that grows with the square of the text fails on every try; a machine that is busy with something else does not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIES = 6


def seconds(run: Callable[[], object]) -> float:
    """Measure the processor's time, without the collector's: what it takes depends on all that the process holds."""
    was = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        run()
        return time.process_time() - start
    finally:
        if was:
            gc.enable()


def assert_linear(run: Callable[[int], object], small: int, large: int, slack: float = 0.02) -> None:
    """Assert that the cost of a size grows as the size does, or at most three times as fast, on one of some tries."""
    allowed = 3 * large / small
    seen: list[tuple[float, float]] = []
    for _ in range(TRIES):
        first, second = seconds(lambda: run(small)), seconds(lambda: run(large))
        seen.append((first, second))
        if min(each for _, each in seen) <= allowed * max(each for each, _ in seen) + slack:
            return
    raise AssertionError(f"{large} costs more than {allowed:.0f} times what {small} does: {seen}")
