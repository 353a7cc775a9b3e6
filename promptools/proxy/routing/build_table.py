"""The table of routes of a config, for a proxy that serves all of its providers, or several servers of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.log import log
from promptools.profiles import Provider
from promptools.profiles.tables import Location
from promptools.proxy.routing.replica import Replica, RoutedProvider
from promptools.proxy.routing.route_table import RouteTable
from promptools.proxy.upstream.upstream_url import parse_base_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.profiles import Target
    from promptools.transport import Session


def build_table(
    session: Session, default: Target, http: Any, *, pinned: bool, old: RouteTable | None
) -> RouteTable | None:
    """Return the table of a session's config; None if there is only one server and all requests go there.

    `pinned`: all requests go to the provider of `default`. Replicas that `old` has too are taken from it, with their
    load and health.
    """
    providers = session.config.providers
    first = providers.get(default.provider or "")
    if first is None:
        return None
    known = {(replica.address, replica.authorization): replica for replica in (old.replicas() if old else ())}
    routed = [_route_provider(session, first, http, known, is_default=True)]
    models: Mapping[str, tuple[str, ...]] = session.config.proxy.models
    if pinned:
        models = dict[str, tuple[str, ...]]()
    if not pinned:
        routed += _others(session, [other for other in providers.values() if other is not first], http, known)
    if len(routed) == 1 and len(routed[0].replicas) == 1 and not models:
        return None
    return RouteTable(routed, models)


def _others(
    session: Session, providers: Iterable[Provider], http: Any, known: dict[Any, Replica]
) -> list[RoutedProvider]:
    """Return the providers that can be used; the others are left out with a line in the log."""
    routed: list[RoutedProvider] = []
    for provider in providers:
        try:
            routed.append(_route_provider(session, provider, http, known))
        except UsageError as error:
            log.warning("provider %r is left out: %s", provider.name, error)
    return routed


def _route_provider(
    session: Session, provider: Provider, http: Any, known: dict[Any, Replica], *, is_default: bool = False
) -> RoutedProvider:
    """Return a provider with its replicas; raise `UsageError` for an address that is none, or a key that is not set."""
    target = session.resolve_target(None, provider=provider.name)
    assert target.base_url is not None, "a provider of a config has an address"
    key = session.find_key(target)
    replicas: list[Replica] = []
    for base_url in (target.base_url, *provider.replicas):
        try:
            address = parse_base_url(base_url, http)
        except UsageError as error:
            location = Location(session.config.file) / "providers" / provider.name / "base_url"
            raise location.error(str(error)) from None
        authorization = address.authorization or (f"Bearer {key}" if key else None)
        replicas.append(known.get((address, authorization)) or Replica(address, authorization))
    return RoutedProvider(provider, tuple(replicas), is_default)
