"""Admission: limits on requests per minute and on concurrent requests, for all clients together and for each named key.

The limits per minute are checked before the body of a request is read. When the request is ready to be sent, it takes
slots, which limit how many requests are in progress: first a slot of its key, then one of the proxy. If no slot is
free, the request waits in a queue, which has a maximum length and waiting time. Since the key's slot is taken first,
a key that has reached its limit does not make the requests of other clients wait.

Beyond the limits, requests are refused: with 429 if a key exceeds its limits or the proxy's limit per minute is
exceeded, with 503 if the proxy has too many requests in progress.

`Limits` come from the config; `check_header` limits the header of a request. `Admission` applies the limits, with a
token bucket for each rate, and `Slots` for the requests in progress.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import anyio

from promptools.errors import UsageError
from promptools.proxy.asgi import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.profiles import KeyOptions, ProxyOptions
    from promptools.proxy.asgi import Scope


# The limits of the proxy, and of each named key; the bounds of a request's header.


QUEUE = 100
QUEUE_TIMEOUT = 30.0
MAX_HEADER_FIELDS = 200
MAX_HEADER_BYTES = 1 << 16
"""Maximum size in bytes of a request's header fields, as in most HTTP servers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all clients together, or for one named key; None means no limit."""

    requests_per_minute: int | None = None
    concurrency: int | None = None
    """Maximum number of requests in progress; further requests wait."""
    queue: int = QUEUE
    """Maximum number of requests that wait."""
    queue_timeout: float = QUEUE_TIMEOUT
    """Maximum number of seconds that a request waits."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for an invalid limit."""
        for name, least in (("requests_per_minute", 1), ("concurrency", 1), ("queue", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be {least} or more, not {value}")
        if not 0 < self.queue_timeout < float("inf"):
            raise UsageError(f"queue_timeout must be a number of seconds above 0, not {self.queue_timeout}")


def config_limits(options: ProxyOptions) -> Limits:
    """Return the limits in the proxy options of a config."""
    return Limits(
        options.requests_per_minute,
        options.concurrency,
        QUEUE if options.queue is None else options.queue,
        options.queue_timeout or QUEUE_TIMEOUT,
    )


def key_limits(key: KeyOptions, limits: Limits) -> Limits:
    """Return the limits of a named key. Its queue has the same limits as the proxy's queue, given in `limits`."""
    return Limits(key.requests_per_minute, key.concurrency, limits.queue, limits.queue_timeout)


def check_header(scope: Scope) -> None:
    """Raise `RefusedError` for a request whose header has too many fields or bytes."""
    fields = scope["headers"]
    if len(fields) > MAX_HEADER_FIELDS or sum(map(len, chain.from_iterable(fields))) > MAX_HEADER_BYTES:
        message = f"a request's header may have {MAX_HEADER_FIELDS} fields and {MAX_HEADER_BYTES} bytes"
        raise RefusedError(431, message, kind="invalid_request_error", code="header_too_large")


# A token bucket: it holds the requests of one minute at most, and is refilled steadily.


class TokenBucket:
    """Limits a rate: allows a burst of `per_minute` requests, and then that many per minute.

    A token stands for one request that is allowed now. Times are in seconds of a monotonic clock.
    """

    def __init__(self, per_minute: int, at: float) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60
        self._tokens = self._capacity
        self._at = at

    def wait(self, at: float) -> float:
        """Return the seconds from the time `at` until a token is available; 0 if one is available now."""
        self._tokens = min(self._capacity, self._tokens + max(0.0, at - self._at) * self._rate)
        self._at = max(at, self._at)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate

    def take(self) -> None:
        """Take a token, for a request that is allowed."""
        self._tokens -= 1


RETRY_SECONDS = 1.0
"""Seconds after which a client may retry if too many requests were in progress.

The time is short, since any of those requests may end at any time.
"""
_ALL = ""
"""The name under which all requests are counted, including those without a named key."""


_NO_SLOT: AbstractAsyncContextManager[None] = nullcontext()


class SharedCounts(Protocol):
    """Counts requests jointly with other proxies; while that is impossible, each proxy counts its own requests."""

    async def take(self, rates: Mapping[str, int]) -> list[float] | None:
        """Count a request under every name in `rates`, which maps names to requests per minute.

        Returns the seconds to wait for each name. If any of these waits is not 0, the request is not counted at all.
        Returns None if Redis cannot be used now.
        """
        ...

    async def acquire(self, name: str, concurrency: int) -> str | None:
        """Wait until one of the `concurrency` slots of `name` is free, and take it.

        Returns the id (lease) with which to release the slot; None if Redis cannot be used now.
        """
        ...

    def release(self, name: str, lease: str) -> None:
        """Release the slot for which `acquire` returned `lease`."""
        ...


class Admission:
    """Enforces the limits of the proxy and of the named keys."""

    def __init__(self, limits: Limits, keys: Mapping[str, Limits], shared: SharedCounts | None = None) -> None:
        named = {**keys, _ALL: limits}
        now = time.monotonic()
        self._rates = {name: limit.requests_per_minute for name, limit in named.items() if limit.requests_per_minute}
        self._buckets = {name: TokenBucket(rate, now) for name, rate in self._rates.items()}
        self._slots = {name: Slots(name, limit) for name, limit in named.items() if limit.concurrency}
        self.has_keys = len(named) > 1
        """Whether any key has its own limits."""
        self.has_limits = bool(self._buckets or self._slots)
        self.shared = shared
        """The object that counts requests jointly with other proxies; None if this proxy counts alone."""

    async def check_rate(self, key: str) -> None:
        """Count a request that carries the key named `key`; raise `RefusedError` if a rate is exceeded."""
        names = [name for name in dict.fromkeys((key, _ALL)) if name in self._buckets]
        if not names:
            return
        wait = None if self.shared is None else await self.shared.take({name: self._rates[name] for name in names})
        waits = dict(zip(names, wait or self._take(names), strict=True))
        late = max(names, key=lambda name: waits[name])
        if waits[late] > 0:
            whose = f"the key {late!r}" if late else "this proxy"
            raise RefusedError(
                429,
                f"{whose} may make {self._rates[late]} requests a minute; the next one in {waits[late]:.1f} s",
                kind="requests",
                code="rate_limit_exceeded",
                retry_after=waits[late],
            )

    def _take(self, names: Sequence[str]) -> list[float]:
        """Count a request under every name, or under no name if any of them requires a wait.

        Returns the seconds to wait for each name.
        """
        now = time.monotonic()
        waits = [self._buckets[name].wait(now) for name in names]
        if not any(waits):
            for name in names:
                self._buckets[name].take()
        return waits

    def slot(self, key: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager inside which a request counts as in progress, for both the key `key` and the proxy.

        Entering the context waits while a limit is reached, and raises `RefusedError` if the queue is full or the wait
        takes too long.
        """
        return self._hold(key) if self._slots else _NO_SLOT

    @asynccontextmanager
    async def _hold(self, key: str) -> AsyncGenerator[None]:
        slots = [self._slots[name] for name in dict.fromkeys((key, _ALL)) if name in self._slots]
        async with AsyncExitStack() as stack:
            for one in slots:
                await stack.enter_async_context(one.hold(self.shared))
            yield


class Slots:
    """Limits how many requests of a key, or of the whole proxy, are in progress; further requests wait in a queue."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._concurrency = limits.concurrency or 1
        self._limiter = anyio.CapacityLimiter(self._concurrency)

    @asynccontextmanager
    async def hold(self, shared: SharedCounts | None) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it during the block.

        Raises `RefusedError` if the queue is full or the wait takes too long.
        """
        statistics = self._limiter.statistics()
        if statistics.borrowed_tokens >= self._concurrency and statistics.tasks_waiting >= self._limits.queue:
            raise self._refusal(f"{statistics.tasks_waiting} more are waiting")
        borrower = object()
        lease: str | None = None
        with anyio.move_on_after(self._limits.queue_timeout) as scope:
            await self._limiter.acquire_on_behalf_of(borrower)
        if scope.cancelled_caught:
            raise self._refusal(f"none ended within {self._limits.queue_timeout:g} s")
        try:
            if shared is not None:
                lease = await self._lease(shared)
            yield
        finally:
            self._limiter.release_on_behalf_of(borrower)
            if shared is not None and lease is not None:
                shared.release(self._name, lease)

    async def _lease(self, shared: SharedCounts) -> str | None:
        """Wait for one of the slots that all proxies share, and return its id; None if Redis cannot be used now.

        Raises `RefusedError` if no slot becomes free in time.
        """
        with anyio.move_on_after(self._limits.queue_timeout):
            return await shared.acquire(self._name, self._concurrency)
        raise self._refusal(f"none ended within {self._limits.queue_timeout:g} s")

    def _refusal(self, why: str) -> RefusedError:
        if self._name:
            message = f"the key {self._name!r} may have {self._concurrency} requests in progress, and {why}"
            return RefusedError(429, message, kind="requests", code="rate_limit_exceeded", retry_after=RETRY_SECONDS)
        message = f"this proxy has {self._concurrency} requests in progress, as many as it may, and {why}"
        return RefusedError(503, message, kind="server_error", code="overloaded", retry_after=RETRY_SECONDS)
