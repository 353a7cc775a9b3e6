"""How many requests may be under way: more while the server keeps up, half as many when it does not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import monotonic

START = 4
"""Requests at once in the beginning."""
INFLATION = 3.0
"""How many times as long as before answers take when the server has too many of them."""
ROUND = 8
"""Minimum number of answers between two comparisons of how long they take."""
BASELINE_WEIGHT = 0.2
"""Weight of the last round in what answers usually take."""


class AdaptiveLimit:
    """A bound between 1 and `most`, which grows additively and is halved by back-pressure.

    It grows by one for each answer until the first back-pressure, and after that by one for each round of answers.
    Refused requests that were sent before it was last halved do not halve it again. `clock` returns seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.most = most
        self.bound = float(min(most, START))
        self.in_flight = 0
        self._clock = clock
        self._paused_until = 0.0
        self._halved_at = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._round = _Round()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[float, None]:
        """Wait until another request may be sent; yield the time when it is."""
        await self._acquire()
        try:
            yield self._clock()
        finally:
            self.in_flight -= 1
            self._wake()

    def succeeded(self, sent_at: float, tokens: int) -> None:
        """Count an answer of `tokens` tokens (0: not known) to a request that was sent at `sent_at`."""
        used = self.in_flight >= int(self.bound)
        inflated = self._round.add(self._clock() - sent_at, max(1, tokens), max(ROUND, int(self.bound)))
        if inflated:
            self._halve()
        elif used:
            growing = self._halved_at == float("-inf")
            self.bound = min(float(self.most), self.bound + (1.0 if growing else 1.0 / self.bound))
            self._wake()

    def pushed_back(self, sent_at: float, retry_after: float | None = None) -> None:
        """Count a request, sent at `sent_at`, that the server did not take; it asks for `retry_after` seconds."""
        if sent_at >= self._halved_at:
            self._halve()
        if retry_after:
            self._paused_until = max(self._paused_until, self._clock() + retry_after)

    def _halve(self) -> None:
        self.bound = max(1.0, self.bound / 2)
        self._halved_at = self._clock()

    async def _acquire(self) -> None:
        while True:
            pause = self._paused_until - self._clock()
            if pause > 0:
                await asyncio.sleep(pause)
            elif self.in_flight < int(self.bound):
                self.in_flight += 1
                return
            else:
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter

    def _wake(self) -> None:
        free = int(self.bound) - self.in_flight
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1


class FixedLimit(AdaptiveLimit):
    """A bound that stays `most`: an engine in this process queues what it cannot compute yet, and is best kept full."""

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(most, clock)
        self.bound = float(most)

    def _halve(self) -> None:
        """Do nothing: the time of a token grows with the number of requests, and is no sign of too many."""


class _Round:
    """Compares what a token takes in each round of answers with what it took before.

    The sums of seconds and of tokens are compared: a single answer may be short, and most of its time its prompt's.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0
        self._answers = 0
        self._baseline: float | None = None

    def add(self, seconds: float, tokens: int, size: int) -> bool:
        """Count an answer; return whether the round is complete, of `size` answers, and took far too long."""
        self._seconds += seconds
        self._tokens += tokens
        self._answers += 1
        if self._answers < size:
            return False
        now, before = self._seconds / self._tokens, self._baseline
        self._seconds, self._tokens, self._answers = 0.0, 0, 0
        self._baseline = now if before is None else before + BASELINE_WEIGHT * (now - before)
        return before is not None and now > INFLATION * before
