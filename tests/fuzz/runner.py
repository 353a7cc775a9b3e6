"""One process of `make fuzz`: inputs until the time is over, and what they find."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz import replies, upstream
from fuzz.check import Failure, Input, failures
from fuzz.minimise import minimised
from fuzz.seeds import keep

ENOUGH = 3
"""Findings of one kind that are made small and kept."""
HANGS = 60
"""Seconds after which an input counts as one that hangs."""


UPSTREAM = "upstream"
"""Stands among the dialects for answers of a server, in any dialect."""
REQUEST = "request"
"""The same for odd requests of a client."""
EVERYTHING = (*replies.DIALECTS, *[UPSTREAM] * 6, *[REQUEST] * 3)


def made(seed: str, dialect: str) -> Input:
    """Return the input of a seed."""
    if dialect == REQUEST:
        return upstream.make_request(seed)
    return upstream.make(seed) if dialect == UPSTREAM else replies.make(seed, dialect)


@dataclass(slots=True)
class Found:
    """What one process did."""

    executions: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    kept: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Task:
    """What one process of several does."""

    number: int
    of: int
    seed: str
    seconds: float
    dialects: tuple[str, ...]
    folder: Path

    def inputs(self) -> Iterator[Input]:
        """Yield this process's share of the inputs, the dialects in turn."""
        place = self.number
        while True:
            dialect = place % len(self.dialects)
            yield made(f"{self.seed}:{place}", self.dialects[dialect])
            place += self.of


def work(task: Task) -> Found:
    """Try inputs until the time is over."""
    vars(re)["_MAXCACHE"] = 1 << 16  # as in tests/conftest.py
    signal.signal(signal.SIGALRM, _hangs)
    until = time.monotonic() + task.seconds
    found = Found()
    for given in task.inputs():
        with _alarm():
            failed = list(failures(given))
        found.executions[_kind(given)] += 1
        for each in failed:
            found.kinds[each.key] += 1
            if found.kinds[each.key] <= ENOUGH:
                found.kept.append(_report(given, each, task.folder))
        if time.monotonic() > until:
            return found
    raise AssertionError("inputs never end")


def _kind(given: Input) -> str:
    if isinstance(given, upstream.ExchangeInput):
        return REQUEST if given.odd_request else UPSTREAM
    return given.dialect


def _report(given: Input, failed: Failure, folder: Path) -> str:
    small = minimised(given, failed)
    path = keep(small, failed, folder)
    print(f"\n{failed.name} {failed.place} ({_kind(given)})\n  {small.text[:300]!r}\n  {failed.why[:500]}")
    print(f"  kept as {path}", flush=True)
    return str(path)


@contextmanager
def _alarm() -> Iterator[None]:
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)


def _hangs(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"an input took more than {HANGS} s")
