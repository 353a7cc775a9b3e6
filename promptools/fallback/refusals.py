"""Remember for an hour what servers have refused, so that the next request is reworded before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from promptools.fallback.rules import Adaptation


MAX_REWORDINGS = 64
"""Maximum number of rewordings kept for one model on one server. Different requests may cause any number of them."""


class Rewording(NamedTuple):
    """What a server refused in a request, and the adaptation (the change to the request) that avoids the refusal."""

    adaptation: Adaptation
    what: tuple[str, ...] = ()
    """What the server refused, if `adaptation` does not say it: parameter names, values of `tool_choice`, or a role."""
    beside: str = ""
    """A digest of the reasoning parameters in the refused request; only requests with the same digest are reworded.

    If the digest is empty, all requests are reworded, whatever their reasoning parameters are.
    """


class Refusals:
    """Keeps, by provider and model, how requests had to be reworded before the server accepted them.

    After `lifetime` seconds, requests are sent unchanged again, because the server may have been updated. Times are in
    seconds of the exchange's clock. Thread-safe: each step is a single operation of a dict.
    """

    def __init__(self, *, lifetime: float = 3600.0, limit: int = 1024) -> None:
        self.lifetime = lifetime
        self.limit = limit
        self._known: dict[tuple[str, str], dict[Rewording, float]] = {}

    def get(self, provider_model: tuple[str, str], at: float) -> tuple[Rewording, ...]:
        """Return the rewordings of the last `lifetime` seconds, in the order in which they were added."""
        known = self._known.get(provider_model)
        if not known:
            return ()
        return tuple(rewording for rewording, since in known.copy().items() if at < since + self.lifetime)

    def add(self, provider_model: tuple[str, str], rewording: Rewording, at: float) -> None:
        """Record a rewording that the server accepted; for each model the latest `MAX_REWORDINGS` are kept."""
        known = self._known.setdefault(provider_model, {})
        known.pop(rewording, None)
        known[rewording] = at
        for oldest in tuple(known)[:-MAX_REWORDINGS]:
            known.pop(oldest, None)
        if len(self._known) > self.limit:
            self._evict()

    def forget(self, provider: str) -> None:
        """Forget what a provider refused, because its server may have changed."""
        for key in [key for key in tuple(self._known) if key[0] == provider]:
            self._known.pop(key, None)

    def _evict(self) -> None:
        """Evict the providers and models whose last refusal was longest ago."""
        entries = sorted(self._known.copy().items(), key=lambda item: max(item[1].copy().values(), default=0.0))
        for provider_model, _ in entries[: len(entries) - self.limit]:
            self._known.pop(provider_model, None)
