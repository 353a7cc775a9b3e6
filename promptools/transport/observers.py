"""Observers of the settings: checked once, and guarded, so that an error in one of them changes no response."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from promptools.errors import UsageError
from promptools.log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, Observer, SentRequest
    from promptools.exchange.observer import Received


class GuardedObservers:
    """Observers, called in order; what one of them raises is logged."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def began(self, exchange: ObservedExchange) -> None:
        """Pass the beginning on."""
        self._call("began", exchange)

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Pass a request to the server on."""
        self._call("sent", exchange, sent)

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Pass what arrived on."""
        self._call("received", exchange, received)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Pass the end on."""
        self._call("ended", exchange, end)

    def _call(self, method: str, *values: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(*values)
            except Exception:
                log.exception("the observer's %s raised; the answer goes on without it", method)


def guard_observers(observers: Sequence[Observer]) -> Observer | None:
    """Return one observer that calls all of them; None if there are none, `UsageError` for what is no observer."""
    for observer in observers:
        for name in ("began", "sent", "received", "ended"):
            method = getattr(observer, name, None)
            if not callable(method) or inspect.iscoroutinefunction(method):
                raise UsageError(
                    f"observer.{name} must be a plain function; an observer has began, sent, received and ended"
                )
    return GuardedObservers(observers) if observers else None


def as_observers(observer: Observer | Sequence[Observer] | None) -> Sequence[Observer]:
    """Return the observers of a setting, which may be one, several or none."""
    if observer is None:
        return ()
    return (
        cast("Sequence[Observer]", observer) if isinstance(observer, (list, tuple)) else (cast("Observer", observer),)
    )
