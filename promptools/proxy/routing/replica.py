"""The servers of the proxy's providers: each replica is one base URL, with its load and its health."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from promptools.transport.session import CREDENTIAL_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange import Headers
    from promptools.profiles.config import Provider
    from promptools.proxy.upstream.upstream_url import UpstreamAddress

COOL_DOWN = 10.0
"""Seconds for which a server that could not be reached gets requests only if no other one is left."""


@dataclass(slots=True, eq=False)
class Replica:
    """One base URL of a provider."""

    address: UpstreamAddress
    authorization: str | None = field(repr=False)
    """What the proxy sends there."""
    outstanding: int = 0
    """The number of requests that it is working on."""
    unhealthy_until: float = 0.0

    def is_healthy(self, at: float) -> bool:
        """Whether it could be reached lately, as far as is known."""
        return at >= self.unhealthy_until

    def mark_unreachable(self, at: float) -> None:
        """Record that no connection was made."""
        self.unhealthy_until = at + COOL_DOWN

    def mark_reachable(self) -> None:
        """Record a response."""
        self.unhealthy_until = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RoutedProvider:
    """A provider of the config that the proxy serves."""

    provider: Provider
    replicas: tuple[Replica, ...]
    is_default: bool = False

    @property
    def name(self) -> str:
        """Its name in the config."""
        return self.provider.name

    @property
    def has_key(self) -> bool:
        """Whether the proxy sends a key or a password to any of its replicas."""
        return any(replica.authorization is not None for replica in self.replicas)

    def names(self) -> Iterable[str]:
        """Return the names and aliases of the models that the config lists."""
        for model in self.provider.models.values():
            yield from (model.name, *model.aliases)

    def model_elsewhere(self, name: str | None, other: RoutedProvider) -> str | None:
        """Return the name of a model of this provider at another one: an alias only if that provider has it too."""
        if name is None or name in other.names():
            return name
        models = self.provider.models.values()
        return next((model.name for model in models if name in model.aliases), name)

    def credentials(self, replica: Replica, client: Headers) -> Headers:
        """Return the fields that replace the client's; a blank value removes a field.

        A key goes to its own provider only. The client's own goes to the default provider, if that has no key.
        """
        if self.is_default:
            return (("authorization", replica.authorization or ""),) if self.has_key else ()
        blank = {name.lower(): "" for name, _ in client if name.lower() in CREDENTIAL_FIELDS}
        return tuple({**blank, "authorization": replica.authorization or ""}.items())
