"""The config with which the proxy serves requests. A reload replaces it as a whole.

A request keeps the config with which it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from promptools.errors import UsageError
from promptools.profiles import Config, ProxyOptions, UntrustedConfig, reach_of, require_trust
from promptools.profiles.server_detection import server_root
from promptools.proxy.access import AccessControl, check_origins, collect_keys
from promptools.proxy.admission import Limits, config_limits, key_limits
from promptools.proxy.model_directory import ModelDirectory
from promptools.proxy.routing import build_table
from promptools.proxy.upstream_url import UpstreamAddress, parse_base_url
from promptools.transport.http_library import split_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.profiles import Target
    from promptools.proxy.access import ApiKey
    from promptools.proxy.model_directory import RunExchange
    from promptools.proxy.routing import RouteTable
    from promptools.transport import Session


T = TypeVar("T")

MAX_BODY = 64 * 2**20
"""Default maximum number of bytes of a body that is read whole into memory, such as that of a chat completion."""


@dataclass(frozen=True, slots=True)
class ServedConfig:
    """Everything that the proxy derives from one config: a session, the servers, the access rules and the limits."""

    session: Session
    target: Target
    """Where requests that name no model go: to the default provider, or to the only server."""
    upstream: UpstreamAddress
    """The address of the only server, or the first address of the default provider."""
    authorization: str | None = field(repr=False)
    """The authorization sent to `upstream` in place of the client's keys."""
    host: str
    """The host name in the address of `upstream`."""
    access: AccessControl
    limits: Limits
    key_limits: dict[str, Limits]
    """Maps the name of each named API key in the config to the limits of this key."""
    origins: list[str]
    """The origins whose web pages may use the proxy."""
    max_body: int
    table: RouteTable | None
    """The routes to the providers; None if all requests go to `upstream`."""
    directory: ModelDirectory | None
    """Asks all providers for their models; None if there is only one provider."""


class ServedProperties:
    """Base class of the proxy: its properties return parts of the config that is in use now."""

    served: ServedConfig

    @property
    def session(self) -> Session:
        """The session, which holds the settings and starts the processing of each request."""
        return self.served.session

    @property
    def target(self) -> Target:
        """Where requests that name no model go: to the default provider, or to the only server."""
        return self.served.target

    @property
    def authorization(self) -> str | None:
        """The authorization sent to `upstream` instead of the client's keys."""
        return self.served.authorization

    @property
    def access(self) -> AccessControl:
        """The object that decides who may use the proxy."""
        return self.served.access

    @property
    def upstream(self) -> UpstreamAddress:
        """The address of the only server, or the first address of the default provider."""
        return self.served.upstream

    @property
    def max_body(self) -> int:
        """The maximum size in bytes of a body that is read."""
        return self.served.max_body

    @property
    def base_url(self) -> str:
        """The base URL of `upstream`, without credentials."""
        return self.served.upstream.base_url


@dataclass(frozen=True, slots=True)
class ProxyArguments:
    """The arguments with which the proxy was started.

    They override the config; only keys, hosts and origins are added to those of the config.
    """

    provider: str | None
    base_url: str | None
    allow_provider: bool | None
    max_body: int | None
    attempt_timeout: float | None
    limits: Limits | None
    cors_origins: tuple[str, ...]
    api_keys: tuple[str | ApiKey, ...] = field(repr=False)
    allowed_hosts: tuple[str, ...]


def serve_config(
    session: Session, arguments: ProxyArguments, http: Any, run: RunExchange, old: RouteTable | None = None
) -> ServedConfig:
    """Return the `ServedConfig` to use; raise `UsageError` if no server is configured, or a server's key is missing.

    If the arguments have `base_url` or `provider`, all requests go there. Otherwise requests are routed among all
    providers of the session's config. `http` is the HTTP library's module. `run` sends the requests that ask providers
    for their models. Servers that are also in the table `old` keep their load and health.
    """
    session = _usable_session(session, arguments)
    options = session.config.proxy
    allowed = options.allow_provider if arguments.allow_provider is None else arguments.allow_provider
    max_body = next(limit for limit in (arguments.max_body, options.max_body, MAX_BODY) if limit is not None)
    if max_body < 1:
        raise UsageError(f"max_body must be 1 byte or more, not {max_body}")
    target = session.resolve_target(None, base_url=arguments.base_url, provider=arguments.provider)
    if target.base_url is None:
        raise UsageError("no server is configured: pass base_url=, provider=, or a config with a default provider")
    late = options.attempt_timeout if arguments.attempt_timeout is None else arguments.attempt_timeout
    changes = {"allow_provider": allowed, "provider": target.provider, "attempt_timeout": late}
    session = session.with_settings(changes)
    upstream = parse_base_url(target.base_url, http)
    key = session.find_key(target)
    authorization = upstream.authorization or (f"Bearer {key}" if key else None)
    pinned = arguments.provider is not None
    table = None if arguments.base_url else build_table(session, target, http, pinned=pinned, old=old)
    has_key = authorization is not None or (table is not None and any(to.has_key for to in table.providers.values()))
    keys = collect_keys(arguments.api_keys, options)
    origins = check_origins([*arguments.cors_origins, *options.cors_origins], requires_key=bool(keys))
    hosts = [*arguments.allowed_hosts, *options.allowed_hosts]
    access = AccessControl(keys, hosts, origins=origins, has_provider_key=has_key)
    limits = arguments.limits or config_limits(options)
    named = {name: key_limits(key, limits) for name, key in options.keys.items()}
    several = table is not None and len(table.providers) > 1
    directory = ModelDirectory(table, run, ask=session.detect) if table is not None and several else None
    host = urlsplit(upstream.base_url).hostname or ""
    return ServedConfig(
        session, target, upstream, authorization, host, access, limits, named, origins, max_body, table, directory
    )


def _usable_session(session: Session, arguments: ProxyArguments) -> Session:
    """Return the session; if its config is untrusted, return the session without a config.

    Raises `UsageError` if the untrusted config would affect the requests or the proxy.
    """
    config = session.config
    if config.standing != "untrusted":
        return session
    require_trust(config, arguments.base_url, arguments.provider)
    # without these options the proxy might be open to others; `models` has no effect where a server is named
    if replace(config.proxy, models={}) != ProxyOptions():
        raise UntrustedConfig(config, reach_of(config))
    return session.with_settings({"config": Config()})


def forget_changed(old: Config, session: Session) -> None:
    """Forget what was learned about providers that differ from those in the `old` config.

    This covers the modes that failed, how requests had to be reworded, and the detected kind of server.
    """
    for name, provider in old.providers.items():
        if session.config.providers.get(name) != provider:
            session.context.breaker.forget(name)
            session.context.refusals.forget(name)
            for base_url in (provider.base_url, *provider.replicas):
                session.context.detection_cache.evict(server_root(split_credentials(base_url or "")[0]))


def as_values(values: Iterable[T] | str) -> Iterable[T | str]:
    """Return the values; a single string is returned in a list."""
    return [values] if isinstance(values, str) else values
