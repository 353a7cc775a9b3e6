"""The limits of the proxy, and of each named key; the bounds of a request's header."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.proxy.asgi import RefusedError

if TYPE_CHECKING:
    from promptools.profiles import KeyOptions, ProxyOptions
    from promptools.proxy.asgi import Scope

QUEUE = 100
QUEUE_TIMEOUT = 30.0
MAX_HEADER_FIELDS = 200
MAX_HEADER_BYTES = 1 << 16
"""Maximum size of the header fields of a request, as in most HTTP servers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be requested by all clients together, or with one named key; None: no limit."""

    requests_per_minute: int | None = None
    concurrency: int | None = None
    """How many requests may be in progress; others wait."""
    queue: int = QUEUE
    """How many requests may wait."""
    queue_timeout: float = QUEUE_TIMEOUT
    """Seconds that a request may wait."""

    def __post_init__(self) -> None:
        """Check the limits."""
        for name, least in (("requests_per_minute", 1), ("concurrency", 1), ("queue", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be {least} or more, not {value}")
        if not 0 < self.queue_timeout < float("inf"):
            raise UsageError(f"queue_timeout must be a number of seconds above 0, not {self.queue_timeout}")


def config_limits(options: ProxyOptions) -> Limits:
    """Return the limits of a config."""
    return Limits(
        options.requests_per_minute,
        options.concurrency,
        QUEUE if options.queue is None else options.queue,
        options.queue_timeout or QUEUE_TIMEOUT,
    )


def key_limits(key: KeyOptions, limits: Limits) -> Limits:
    """Return the limits of a named key; its queue is as long as the proxy's."""
    return Limits(key.requests_per_minute, key.concurrency, limits.queue, limits.queue_timeout)


def check_header(scope: Scope) -> None:
    """Refuse a request whose header has too many fields or bytes."""
    fields = scope["headers"]
    if len(fields) > MAX_HEADER_FIELDS or sum(map(len, chain.from_iterable(fields))) > MAX_HEADER_BYTES:
        message = f"a request's header may have {MAX_HEADER_FIELDS} fields and {MAX_HEADER_BYTES} bytes"
        raise RefusedError(431, message, kind="invalid_request_error", code="header_too_large")
