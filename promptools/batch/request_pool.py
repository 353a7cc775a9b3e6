"""Send many requests concurrently, each until it has a result, and wait for the server if necessary.

The number of concurrent requests is fixed, or follows an `AdaptiveLimit`, which grows while the server keeps up, and is
halved when the server falls behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from promptools.batch.answering import BatchAnswer, BatchRequest, LineProblem, TemporaryFailureError, failed_answer
from promptools.errors import UpstreamError, UsageError, clip, install_command

if TYPE_CHECKING:
    import tenacity


# How many requests may be under way.


START = 4
"""Initial number of concurrent requests."""
INFLATION = 3.0
"""The server has too many requests if the time per token grows to this many times its earlier average."""
ROUND = 8
"""Minimum number of answers in a round; after each round, its time per token is compared with the earlier average."""
BASELINE_WEIGHT = 0.2
"""Weight of the latest round of answers in the moving average of the time per token."""


class AdaptiveLimit:
    """A limit on concurrent requests, from 1 to `most`. It grows while the server keeps up; else it is halved.

    The limit is halved if a request is rejected, or if answers take far longer than before. It grows by one for each
    answer until it is halved for the first time, and by one for each round of answers after that. It grows only while
    as many requests are in progress as it allows. A rejected request that was sent before the last halving does not
    halve the limit again. `clock` returns seconds.
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
        """Wait until another request may be sent; yield the time when the wait ended."""
        await self._acquire()
        try:
            yield self._clock()
        finally:
            self.in_flight -= 1
            self._wake()

    def succeeded(self, sent_at: float, tokens: int) -> None:
        """Count an answer to a request that was sent at `sent_at`.

        `tokens` is the number of tokens in the answer, or 0 if it is unknown.
        """
        used = self.in_flight >= int(self.bound)
        inflated = self._round.add(self._clock() - sent_at, max(1, tokens), max(ROUND, int(self.bound)))
        if inflated:
            self._halve()
        elif used:
            growing = self._halved_at == float("-inf")
            self.bound = min(float(self.most), self.bound + (1.0 if growing else 1.0 / self.bound))
            self._wake()

    def pushed_back(self, sent_at: float, retry_after: float | None = None) -> None:
        """Count a rejected request, which was sent at `sent_at`. Pause all requests for `retry_after` seconds."""
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
    """A constant limit, for an engine in this process.

    The engine queues requests that it cannot compute yet, and so stays busy.
    """

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(most, clock)
        self.bound = float(most)

    def _halve(self) -> None:
        """Do nothing.

        With an engine, the time per token always grows with the number of requests, so its growth does not mean that
        there are too many.
        """


class _Round:
    """Compares the time per token in each round of answers with the time per token in earlier rounds.

    The time is computed from the sums of seconds and of tokens in a round, because a single answer proves little: it
    may be short, with most of its time spent on the prompt.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0
        self._answers = 0
        self._baseline: float | None = None

    def add(self, seconds: float, tokens: int, size: int) -> bool:
        """Count an answer; return whether it completes a round of `size` answers that took far too long per token."""
        self._seconds += seconds
        self._tokens += tokens
        self._answers += 1
        if self._answers < size:
            return False
        now, before = self._seconds / self._tokens, self._baseline
        self._seconds, self._tokens, self._answers = 0.0, 0, 0
        self._baseline = now if before is None else before + BASELINE_WEIGHT * (now - before)
        return before is not None and now > INFLATION * before


TRIES = 3
"""Maximum number of times to send a request that may itself be the reason why the server fails."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 20.0
"""The longest wait between two tries of a request, in seconds.

Each wait is random. Its maximum is `FIRST_WAIT` at first, and is doubled after each try, up to `LONGEST_WAIT`.
"""

SendRequest: TypeAlias = Callable[[BatchRequest], Awaitable[BatchAnswer]]
"""A function that sends a request once and returns its result.

It raises `TemporaryFailureError` if the request may get a result later.
"""
RecordAnswer: TypeAlias = Callable[[BatchAnswer], None]


def require_tenacity() -> None:
    """Raise `UsageError` if tenacity is not installed."""
    if find_spec("tenacity") is None:
        raise UsageError(f"a batch needs tenacity: {install_command('batch')}")


class RequestPool:
    """Sends requests, as many concurrently as `limit` allows.

    If the server cannot answer a request now, the request is sent again for up to `patience` seconds. If no other
    request was answered in that time, `run` raises `UpstreamError`. Otherwise only this request counts as failed.
    """

    def __init__(self, send: SendRequest, limit: AdaptiveLimit, *, patience: float) -> None:
        self._send_once = send
        self.limit = limit
        self._patience = patience
        self._last_success = float("-inf")

    async def run(self, requests: Iterator[BatchRequest | LineProblem], record: RecordAnswer) -> None:
        """Send all requests, and call `record` with each result as soon as it is available.

        The number of requests that are read ahead is the maximum number of concurrent requests. If `record` raises an
        exception, the run ends.
        """
        feed = _Feed(requests, self.limit.most)
        workers = [asyncio.create_task(self._work(feed, record)) for _ in range(self.limit.most)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, feed: _Feed, record: RecordAnswer) -> None:
        while (request := await feed.next()) is not None:
            record(await self.answer(request))

    async def answer(self, request: BatchRequest | LineProblem) -> BatchAnswer:
        """Send a request until it has a result. For an invalid line, return a failure.

        Raises `UpstreamError` if the server is down for too long or refuses the key.
        """
        import tenacity

        if isinstance(request, LineProblem):
            return failed_answer(request)

        stop = _Stop(self._patience)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TemporaryFailureError),
            wait=_wait_seconds(tenacity.wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT)),
            stop=stop,
            reraise=True,
        )
        try:
            return await retrying(self._send, request)
        except TemporaryFailureError as error:
            if not error.may_be_request and self._last_success < stop.first_failure:
                raise UpstreamError(
                    f"the server has answered no request for {self._patience:g} s: {clip(str(error))};"
                    " start it, and run the batch again"
                ) from error
            return error.answer or failed_answer(_no_response(request, error))

    async def _send(self, request: BatchRequest) -> BatchAnswer:
        async with self.limit.slot() as sent_at:
            try:
                answer = await self._send_once(request)
            except TemporaryFailureError as error:
                pause = error.retry_after and min(error.retry_after, self._patience)
                self.limit.pushed_back(sent_at, pause)
                raise
            self._last_success = monotonic()
            self.limit.succeeded(sent_at, answer.usage[1])
            return answer


class _Stop:
    """Decides when to stop sending a request again: after `patience` seconds, or after `TRIES` suspicious failures.

    A failure is suspicious if the request itself may be its cause.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._suspicious = 0
        self.first_failure = 0.0

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome and state.outcome.exception()
        now = monotonic()
        self.first_failure = self.first_failure or now
        self._suspicious += isinstance(error, TemporaryFailureError) and error.may_be_request
        return self._suspicious >= TRIES or now - self.first_failure >= self._patience


def _wait_seconds(backoff: Callable[[tenacity.RetryCallState], float]) -> Callable[[tenacity.RetryCallState], float]:
    """Return a wait function for tenacity.

    The function returns 0 if the server asked for a wait, because `AdaptiveLimit` pauses all requests for that time.
    In all other cases, it returns the result of `backoff`.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome and state.outcome.exception()
        asked = error.retry_after if isinstance(error, TemporaryFailureError) else None
        # the limit is paused for the time that the server asked for; the request queues there with the others
        return 0.0 if asked else backoff(state)

    return wait


def _no_response(request: BatchRequest, error: TemporaryFailureError) -> LineProblem:
    message = f"no response: {clip(str(error))}"
    advice = "send the request again in another batch; if it fails there too, it is the request"
    return LineProblem(request.line, request.custom_id, "no_response", message, advice)


class _Feed:
    """Hands out requests one by one; a thread reads them, a few at a time."""

    def __init__(self, requests: Iterator[BatchRequest | LineProblem], ahead: int) -> None:
        self._requests = requests
        self._ahead = ahead
        self._ready: deque[BatchRequest | LineProblem] = deque()
        self._lock = asyncio.Lock()

    async def next(self) -> BatchRequest | LineProblem | None:
        """Return the next request; None after the last one."""
        async with self._lock:
            if not self._ready:
                self._ready.extend(await asyncio.to_thread(self._read))
            return self._ready.popleft() if self._ready else None

    def _read(self) -> list[BatchRequest | LineProblem]:
        return list(islice(self._requests, self._ahead))
