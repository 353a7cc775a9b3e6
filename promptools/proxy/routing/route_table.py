"""Which provider a model's name leads to.

In this order:

1. a name of the config's `[proxy.models]`;
2. a name or alias that the config lists under a provider; the default provider's first, then in the config's order;
3. a name that a server listed itself, in the same order;
4. `PROVIDER/MODEL`;
5. any other name goes to the default provider.

Exact names come before `PROVIDER/MODEL`, because names of models contain slashes: where a server has the model
`openai/gpt-oss-20b`, a provider named `openai` does not take it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from promptools.profiles.config import split_provider

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.proxy.routing.replica import Replica, RoutedProvider


@dataclass(frozen=True, slots=True, eq=False)
class Destination:
    """A provider and its name of the model; None: the request names none."""

    provider: RoutedProvider
    model: str | None


class RouteTable:
    """The providers that the proxy serves, the default one first, and the names that lead to them."""

    def __init__(self, providers: Iterable[RoutedProvider], models: Mapping[str, tuple[str, ...]]) -> None:
        self.providers = {routed.name: routed for routed in providers}
        self.default = next(iter(self.providers.values()))
        self.models = models
        """The names of `[proxy.models]`; those of other providers than the table's lead nowhere."""
        self._configured: dict[str, RoutedProvider] = {}
        for routed in self.providers.values():
            for name in routed.names():
                self._configured.setdefault(name, routed)
        self._listed: dict[str, RoutedProvider] = {}
        self._listed_by: dict[str, frozenset[str]] = {}

    def find(self, name: str | None) -> tuple[Destination, ...]:
        """Return where a request for a model goes: the first destination, then those of its failover."""
        if name is None:
            return self._with_failover(Destination(self.default, None))
        entries = self.models.get(name)
        if entries is None:
            return self._with_failover(self._destination(name))
        served = [self._split(entry) for entry in entries]
        destinations = [destination for destination in served if destination is not None]
        if len(entries) > 1 and destinations:
            return tuple(destinations)
        return self._with_failover(destinations[0] if destinations else Destination(self.default, name))

    def knows(self, name: str | None) -> bool:
        """Whether a name leads to a provider for another reason than that all others do."""
        if name is None or name in self.models or name in self._configured or name in self._listed:
            return True
        return self._split(name) is not None

    def learn(self, models: Mapping[str, Iterable[str]]) -> None:
        """Remember the models that servers have listed, by provider."""
        self._listed_by.update({provider: frozenset(names) for provider, names in models.items()})
        listed: dict[str, RoutedProvider] = {}
        for name, routed in self.providers.items():
            for model in self._listed_by.get(name, ()):
                listed.setdefault(model, routed)
        self._listed = listed

    def replicas(self) -> Iterable[Replica]:
        """Return all replicas."""
        return [replica for routed in self.providers.values() for replica in routed.replicas]

    def _destination(self, name: str) -> Destination:
        routed = self._configured.get(name) or self._listed.get(name)
        if routed is not None:
            return Destination(routed, name)
        return self._split(name) or Destination(self.default, name)

    def _split(self, name: str) -> Destination | None:
        """Return the destination of `PROVIDER/MODEL`."""
        provider, model = split_provider(name, self.providers)
        return Destination(self.providers[provider], model) if model and provider else None

    def _with_failover(self, first: Destination) -> tuple[Destination, ...]:
        destinations = [first]
        for entry in first.provider.provider.failover:
            name, model = split_provider(entry, self.providers)
            other = self.providers.get(name)
            if other is not None:
                same = first.provider.model_elsewhere(first.model, other)
                destinations.append(Destination(other, model or same))
        return tuple(destinations)
