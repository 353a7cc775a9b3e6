"""Choose the provider and base URL for each request to a proxy with several providers or several servers.

A provider has replicas (`Replica`), each with its load and its health. `build_table` makes the `RouteTable` of a
config, which finds the provider for the name of a model. `open_router` returns the `RequestRouter` of one request. Its
`Failover` decides which server is tried next, and after which failures. `model_directory` learns the names that the
config does not list.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, without_credentials
from promptools.exchange import Route
from promptools.exchange.response_writer import encode_json
from promptools.exchange.state import api_base
from promptools.log import log
from promptools.profiles import Provider
from promptools.profiles.config import split_provider
from promptools.profiles.tables import Location
from promptools.proxy.asgi import RefusedError
from promptools.proxy.upstream_url import parse_base_url
from promptools.transport import CHAT_ENDPOINT
from promptools.transport.http_library import error_text
from promptools.transport.session import CREDENTIAL_FIELDS
from promptools.wire.json_body import as_text, parse_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from promptools.exchange import Headers, Request
    from promptools.profiles import Target
    from promptools.proxy.asgi import Send
    from promptools.proxy.model_directory import ModelDirectory
    from promptools.proxy.upstream_url import UpstreamAddress
    from promptools.transport import Endpoint, Session


# The servers to which one client request may go: which server is next, and whether a failure leads to another.
#
# A request goes on to the next server only while the client has got nothing. One reason is that no response came.
# Another is a status which means that this server failed: 500, 502, 503 or 504. The exchange itself responds with 502
# when every mode has failed. The last reason is a 429, since another server may have room for the request. All other
# statuses are about the request itself: a missing model or a wrong key is a mistake that must not be hidden.
#
# After a failed connection any other replica may be next. If every mode has failed, only another provider may be next,
# since the replicas of one provider have the same model.


FAILOVER_STATUSES = frozenset({429, 500, 502, 503, 504})
_EXHAUSTED = ("x-should-retry", "false")
"""Header field that marks a 502 as sent by the exchange itself after its last attempt failed, not by the server."""


class Failover:
    """Chooses the servers to which one request is sent, one after the other, until one succeeds.

    A server is a replica, which is one base URL of a provider. A destination is a provider and its name for the model.
    """

    def __init__(self, *, deadline: float | None = None) -> None:
        self.started_at = time.monotonic()
        self.notes: list[str] = []
        """Sentences for the trace of the reply, one for each server that failed."""
        self.committed = False
        """Whether no other server may be tried, because the response has begun or the body can be sent only once."""
        self.only_unreachable = False
        """Whether another server may be tried only if no connection to the previous one was made."""
        self.last: tuple[Destination, Replica] | None = None
        """The current destination and replica; after the end of the request, the ones that were used last."""
        self._deadline = deadline
        self._destinations: tuple[Destination, ...] = ()
        self._tried: set[tuple[Destination, Replica]] = set()
        self._current: tuple[Destination, Replica] | None = None

    def choose(self, destinations: tuple[Destination, ...]) -> None:
        """Set the destinations of the request, and choose the first replica."""
        self._destinations = destinations
        self._set(self._next())

    @property
    def current(self) -> tuple[Destination, Replica] | None:
        """The destination and replica that the request goes to; None before the first is chosen, and after the end."""
        return self._current

    @property
    def base_url(self) -> str | None:
        """The base URL of the current replica; after the end of the request, of the replica that was used last."""
        return None if self.last is None else self.last[1].address.base_url

    def rejects(self, status: int, headers: Headers) -> bool:
        """Move to the next server if a response means that its server failed; return whether the request moved.

        If the request moved, the response must be dropped. Returns False if no other server may be tried.
        """
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
        """Move to the next server after an HTTP library error; return False if no other server may be tried."""
        if self._current is None:
            return False
        if unreachable:
            self._current[1].mark_unreachable(time.monotonic())
        if self.committed or (self.only_unreachable and not unreachable):
            return False
        text = without_credentials(error_text(error))
        return self._fail_over(text if text == type(error).__name__ else f"{type(error).__name__} {text}")

    def release(self) -> None:
        """End the request, which then no longer counts toward the load of a replica."""
        self._set(None)

    def _fail_over(self, why: str, *, whole_provider: bool = False) -> bool:
        """Move to the next replica, and log the move; return False if none is left or the deadline has passed."""
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
        """Return the next replica that has not been tried, and its destination; None if all have been tried.

        Healthy replicas come before all others. Then the order of the destinations decides, and then the least load.
        """
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
        """Set the current replica, and count the request toward its load."""
        if self._current is not None:
            self._current[1].outstanding -= 1
        if current is not None:
            current[1].outstanding += 1
            self.last = current
        self._current = current


# Which provider a model's name leads to.
#
# In this order:
#
# 1. a name of the config's `[proxy.models]`;
# 2. a name or alias that the config lists under a provider: first the default one, then in the config's order;
# 3. a name that a server of a provider has listed, with the providers in the same order;
# 4. `PROVIDER/MODEL`;
# 5. any other name goes to the default provider.
#
# Exact names come before `PROVIDER/MODEL`, because names of models contain slashes: a provider named `openai` must not
# get the requests for a model that another server lists as `openai/gpt-oss-20b`.


@dataclass(frozen=True, slots=True, eq=False)
class Destination:
    """A provider, and its name for the model; the name is None if the request names no model."""

    provider: RoutedProvider
    model: str | None


class RouteTable:
    """Maps the names of models to the providers that the proxy serves; the default provider comes first."""

    def __init__(self, providers: Iterable[RoutedProvider], models: Mapping[str, tuple[str, ...]]) -> None:
        self.providers = {routed.name: routed for routed in providers}
        self.default = next(iter(self.providers.values()))
        self.models = models
        """Maps each name in `[proxy.models]` to its `PROVIDER/MODEL` entries; unknown providers are ignored."""
        self._configured: dict[str, RoutedProvider] = {}
        for routed in self.providers.values():
            for name in routed.names():
                self._configured.setdefault(name, routed)
        self._listed: dict[str, RoutedProvider] = {}
        self._listed_by: dict[str, frozenset[str]] = {}

    def find(self, name: str | None) -> tuple[Destination, ...]:
        """Return the destinations of a request for a model: the preferred one, then those to try after a failure."""
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
        """Return whether the table knows this name; an unknown name leads to the default provider."""
        if name is None or name in self.models or name in self._configured or name in self._listed:
            return True
        return self._split(name) is not None

    def learn(self, models: Mapping[str, Iterable[str]]) -> None:
        """Remember which models the servers of each provider have listed."""
        self._listed_by.update({provider: frozenset(names) for provider, names in models.items()})
        listed: dict[str, RoutedProvider] = {}
        for name, routed in self.providers.items():
            for model in self._listed_by.get(name, ()):
                listed.setdefault(model, routed)
        self._listed = listed

    def replicas(self) -> Iterable[Replica]:
        """Return the replicas of all providers."""
        return [replica for routed in self.providers.values() for replica in routed.replicas]

    def _destination(self, name: str) -> Destination:
        routed = self._configured.get(name) or self._listed.get(name)
        if routed is not None:
            return Destination(routed, name)
        return self._split(name) or Destination(self.default, name)

    def _split(self, name: str) -> Destination | None:
        """Return the destination for a name of the form `PROVIDER/MODEL`; None for any other name."""
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


# Where one client request goes.


class RequestRouter:
    """Chooses the provider and the server of one request, and the next ones after a failure."""

    def __init__(
        self, table: RouteTable, session: Session, directory: ModelDirectory | None, path: str, query: str
    ) -> None:
        self._table = table
        self._session = session
        self._directory = directory
        self._path = path
        self._query = query
        self.failover = Failover(deadline=session.context.deadline)

    async def run(self, attempt: Callable[[], Awaitable[bool]], library: Any) -> None:
        """Call `attempt` for one server after another, until it returns True because the client got a response.

        `library` is the HTTP library's module. Raises the library's error if no other server may be tried.
        """
        try:
            while not await self._succeeds(attempt, library):
                pass
        finally:
            self.failover.release()

    async def _succeeds(self, attempt: Callable[[], Awaitable[bool]], library: Any) -> bool:
        try:
            return await attempt()
        except library.RequestError as error:
            unreachable = isinstance(error, (library.ConnectError, library.ConnectTimeout))
            if not self.failover.recovers(error, unreachable=unreachable):
                raise
            return False

    # -- exchanges

    def exchange_route(self, request: Request, endpoint: Endpoint, model: str | None, provider: str | None) -> Route:
        """Return the server, the header fields and the profile for the request of an exchange.

        `model` and `provider` are those that the request names. The exchange calls this method as its `Router`. Raises
        `UsageError` if the request may not choose the provider.
        """
        session, config = self._session, self._session.config
        session.check_provider(provider)
        if provider is not None and provider in config.providers and provider != session.provider:
            return session.route_to_provider(session.route(model, None, provider), request.headers)
        pinned = provider is not None and provider == session.provider
        destination, base_url = self._choose(model, pinned=pinned)
        assert self.failover.current is not None, "it was chosen"
        _, replica = self.failover.current
        url = base_url + CHAT_ENDPOINT.path
        if endpoint.api.wire == "chat":
            url = replica.address.url(self._path, self._query)
            base_url = api_base(url)
        kind = provider if provider is not None and provider not in config.providers else None
        route = session.route(destination.model, base_url, kind or destination.provider.name)
        headers = destination.provider.credentials(replica, request.headers)
        return replace(route, url=url, headers=headers, notes=tuple(self.failover.notes))

    # -- requests that pass through

    async def pass_through(
        self, method: str, content: Any, forward: Callable[[str, Any, Send], Awaitable[bool]], library: Any, send: Send
    ) -> None:
        """Forward a request to one server after another, until the client gets a response.

        A streamed body can be sent only once, so a request with such a body goes to one server only.
        """
        try:
            self._choose_for_body(method, content)
            await self.run(lambda: forward(self._url(), self._body_for_destination(content), send), library)
        except UsageError as error:
            raise RefusedError(400, str(error), code="usage") from error

    def _choose_for_body(self, method: str, content: Any) -> None:
        """Choose the server of a forwarded request; `content` is its body, as bytes if it can be sent again.

        A request without a model goes to the default provider, since the request may concern something that only this
        provider has. Such a request is sent again to another replica only if it cannot have changed anything.
        """
        model = as_text(parse_object(content).get("model")) or None if isinstance(content, bytes) else None
        if model is not None:
            self._choose(model)
            return
        self.failover.choose((Destination(self._table.default, None),))
        self.failover.only_unreachable = method not in {"GET", "HEAD"}
        self.failover.committed = content is not None and not isinstance(content, bytes)

    def _body_for_destination(self, body: Any) -> Any:
        """Return the body with the destination's name for the model; unchanged if the body already has this name."""
        assert self.failover.current is not None, "it was chosen"
        destination, replica = self.failover.current
        if destination.model is None:
            return body
        target = self._session.resolve_target(
            destination.model, base_url=replica.address.base_url, provider=destination.provider.name
        )
        data = parse_object(body)
        return body if data.get("model") == target.model else encode_json({**data, "model": target.model})

    def credentials(self, client: Headers) -> Headers:
        """Return the credentials for the current replica, as header fields that replace the client's fields."""
        assert self.failover.current is not None, "it was chosen"
        destination, replica = self.failover.current
        return destination.provider.credentials(replica, client)

    def keys(self) -> Headers:
        """Return header fields with the last server's key, to mask the key in errors; empty if no server was chosen."""
        if self.failover.last is None:
            return ()
        destination, replica = self.failover.last
        return destination.provider.credentials(replica, ())

    def _url(self) -> str:
        """Return the request's URL at the current replica."""
        assert self.failover.current is not None, "it was chosen"
        return self.failover.current[1].address.url(self._path, self._query)

    def _choose(self, model: str | None, *, pinned: bool = False) -> tuple[Destination, str]:
        """Return the current destination and the base URL of its replica; choose them first if necessary."""
        if self.failover.current is None:
            if self._directory is not None and not self._table.knows(model):
                self._directory.report_unknown()
            self.failover.choose((Destination(self._table.default, model),) if pinned else self._table.find(model))
        assert self.failover.current is not None, "a provider has a replica"
        destination, replica = self.failover.current
        return destination, replica.address.base_url


async def open_router(
    table: RouteTable | None, session: Session, directory: ModelDirectory | None, path: str, query: str
) -> RequestRouter | None:
    """Return the object that routes a request; None if there is only one server.

    If necessary, the providers are first asked for their models.
    """
    if table is None:
        return None
    if directory is not None:
        await directory.prepare()
    return RequestRouter(table, session, directory, path, query)


# The servers of the proxy's providers: each replica is one base URL, with its load and its health.


COOL_DOWN = 10.0
"""Seconds for which a server that could not be reached gets a request only if no other server is left to try."""


@dataclass(slots=True, eq=False)
class Replica:
    """A server of a provider: its base URL, its load and its health."""

    address: UpstreamAddress
    authorization: str | None = field(repr=False)
    """The `Authorization` field that the proxy sends to this server."""
    outstanding: int = 0
    """The number of requests that are in progress at this server."""
    unhealthy_until: float = 0.0

    def is_healthy(self, at: float) -> bool:
        """Return whether the server counts as healthy at the time `at`.

        After a failed connection, the server counts as unhealthy for `COOL_DOWN` seconds, or until it responds.
        """
        return at >= self.unhealthy_until

    def mark_unreachable(self, at: float) -> None:
        """Record that no connection could be made."""
        self.unhealthy_until = at + COOL_DOWN

    def mark_reachable(self) -> None:
        """Record that the server responded."""
        self.unhealthy_until = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RoutedProvider:
    """A provider in the config to which the proxy routes requests, with its servers (replicas)."""

    provider: Provider
    replicas: tuple[Replica, ...]
    is_default: bool = False

    @property
    def name(self) -> str:
        """The provider's name in the config."""
        return self.provider.name

    @property
    def has_key(self) -> bool:
        """Whether the proxy sends a key or a password to any of its replicas."""
        return any(replica.authorization is not None for replica in self.replicas)

    def names(self) -> Iterable[str]:
        """Yield the names and aliases of the models that the config lists under this provider."""
        for model in self.provider.models.values():
            yield from (model.name, *model.aliases)

    def model_elsewhere(self, name: str | None, other: RoutedProvider) -> str | None:
        """Return the name to use when this provider's model `name` is requested from the provider `other`.

        That is `name` itself, unless `name` is an alias that `other` does not list; then it is the model's own name.
        """
        if name is None or name in other.names():
            return name
        models = self.provider.models.values()
        return next((model.name for model in models if name in model.aliases), name)

    def credentials(self, replica: Replica, client: Headers) -> Headers:
        """Return the credentials for a replica, as fields that replace the client's; an empty value removes a field.

        A provider's key is sent only to that provider. The client's own key is sent only to the default provider, and
        only if that provider has no key.
        """
        if self.is_default:
            return (("authorization", replica.authorization or ""),) if self.has_key else ()
        blank = {name.lower(): "" for name, _ in client if name.lower() in CREDENTIAL_FIELDS}
        return tuple({**blank, "authorization": replica.authorization or ""}.items())


# The table of routes of a config, for a proxy that serves all of its providers, or several servers of one.


def build_table(
    session: Session, default: Target, http: Any, *, pinned: bool, old: RouteTable | None
) -> RouteTable | None:
    """Return the table that routes requests to a config's providers; None if all requests go to a single server.

    If `pinned`, all requests go to the provider of `default`. Replicas of the table `old` that are still configured are
    reused, and so keep their load and health.
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
    """Return the usable providers other than the default; log a warning for each one that cannot be used."""
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
    """Return a provider with its replicas; raise `UsageError` for an invalid address, or a key that is not set."""
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
