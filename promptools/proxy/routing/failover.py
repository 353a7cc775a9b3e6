"""The servers that one client request may go to: which is next, and whether a failure leads to another.

A request goes on to the next server if no response came, or one that means that this server failed, and the client
has got nothing yet. Of the statuses these are: 500, 502, 503 and 504, which the exchange also responds with after the
last of its modes; and 429, since the server did not serve the request and another one can. Other statuses are about the
request itself, and a missing model or a wrong key is a mistake that must not be hidden.

After a failed connection any replica may follow. After exhausted modes the next provider does: a replica has the same
model.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from promptools.errors import without_credentials
from promptools.log import log
from promptools.transport.http_library import error_text

if TYPE_CHECKING:
    from promptools.exchange import Headers
    from promptools.proxy.routing.replica import Replica
    from promptools.proxy.routing.route_table import Destination

FAILOVER_STATUSES = frozenset({429, 500, 502, 503, 504})
_EXHAUSTED = ("x-should-retry", "false")
"""With a 502, the exchange's own error after its last attempt."""


class Failover:
    """The way of one request over the replicas of its destinations."""

    def __init__(self, *, deadline: float | None = None) -> None:
        self.started_at = time.monotonic()
        self.notes: list[str] = []
        """What happened on earlier servers, for the trace."""
        self.committed = False
        """Whether the client is being sent a response: from then on no other server is tried."""
        self.only_unreachable = False
        """Whether another server is tried only if no connection was made."""
        self.base_url: str | None = None
        """The base URL of the current replica, or of the last one."""
        self._deadline = deadline
        self._destinations: tuple[Destination, ...] = ()
        self._tried: set[tuple[Destination, Replica]] = set()
        self._current: tuple[Destination, Replica] | None = None

    def choose(self, destinations: tuple[Destination, ...]) -> None:
        """Choose the first replica."""
        self._destinations = destinations
        self._set(self._next())

    @property
    def current(self) -> tuple[Destination, Replica] | None:
        """The destination and replica that the request goes to; None if none was chosen yet."""
        return self._current

    def rejects(self, status: int, headers: Headers) -> bool:
        """Whether a response is dropped for the next server's; if not, the client gets it."""
        if self._current is None or self.committed:
            return False
        self._current[1].mark_reachable()
        exhausted = status == 502 and _EXHAUSTED in headers
        failed = status in FAILOVER_STATUSES and not self.only_unreachable
        if failed and self._fail_over(f"HTTP {status}", whole_provider=exhausted):
            return True
        self.committed = True
        return False

    def recovers(self, error: Exception, *, unreachable: bool) -> bool:
        """Whether another server is tried after an error of the HTTP library."""
        if self._current is None:
            return False
        if unreachable:
            self._current[1].mark_unreachable(time.monotonic())
        if self.committed or (self.only_unreachable and not unreachable):
            return False
        text = without_credentials(error_text(error))
        return self._fail_over(text if text == type(error).__name__ else f"{type(error).__name__} {text}")

    def release(self) -> None:
        """End the request."""
        self._set(None)

    def _fail_over(self, why: str, *, whole_provider: bool = False) -> bool:
        """Move to the next replica, and log it; False if there is none."""
        assert self._current is not None, "a replica was chosen"
        destination, replica = self._current
        replicas = destination.provider.replicas if whole_provider else (replica,)
        self._tried.update((destination, tried) for tried in replicas)
        following = None if self._deadline_passed() else self._next()
        if following is None:
            return False
        to, at = following
        step = (
            f"provider {destination.provider.name!r} at {replica.address.base_url} failed ({why});"
            f" the request goes to provider {to.provider.name!r} at {at.address.base_url}"
        )
        log.warning("%s", step)
        self.notes.append(step)
        self._set(following)
        return True

    def _next(self) -> tuple[Destination, Replica] | None:
        """Return the next replica: the healthy ones first, and of a provider's replicas the one with least load."""
        now = time.monotonic()
        for healthy in (True, False):
            for destination in self._destinations:
                replicas = [
                    replica
                    for replica in destination.provider.replicas
                    if replica.is_healthy(now) is healthy and (destination, replica) not in self._tried
                ]
                if replicas:
                    return destination, min(replicas, key=lambda replica: replica.outstanding)
        return None

    def _deadline_passed(self) -> bool:
        return self._deadline is not None and time.monotonic() - self.started_at >= self._deadline

    def _set(self, current: tuple[Destination, Replica] | None) -> None:
        """Set the current replica, and count it."""
        if self._current is not None:
            self._current[1].outstanding -= 1
        if current is not None:
            current[1].outstanding += 1
            self.base_url = current[1].address.base_url
        self._current = current
