"""Processor time, best of several rounds, with the jobs taking turns inside each round."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

ROUNDS = 5
ROUND_SECONDS = 0.02
"""Processor time of one job in one round; a job that takes longer runs once per round."""

Job = Callable[[], object]


def best_of(jobs: Mapping[str, Job], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the seconds that each job takes: its best round, in processor time of this process.

    The jobs take turns inside a round, so that other load on the machine affects all of them; the garbage collector is
    off.
    """
    best = dict.fromkeys(jobs, float("inf"))
    for job in jobs.values():
        job()  # warm up: caches are filled
    repeats = {name: max(1, int(ROUND_SECONDS / max(_spent(job, 1), 1e-9))) for name, job in jobs.items()}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, job in jobs.items():
                best[name] = min(best[name], _spent(job, repeats[name]))
    finally:
        gc.enable()
    return best


def _spent(job: Job, repeats: int) -> float:
    begin = time.process_time_ns()
    for _ in range(repeats):
        job()
    return (time.process_time_ns() - begin) / repeats / 1e9


def seconds(value: float) -> str:
    """Format a duration with three significant digits: `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
