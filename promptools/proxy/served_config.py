"""The config as the proxy serves it: all that a reload replaces at once. A request keeps the one that it began with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from promptools.errors import UsageError
from promptools.proxy.admission.access import AccessControl
from promptools.proxy.routing.build_table import build_table
from promptools.proxy.routing.model_directory import ModelDirectory
from promptools.proxy.upstream.upstream_url import UpstreamAddress, parse_base_url

if TYPE_CHECKING:
    from promptools.profiles import Target
    from promptools.proxy.routing.model_directory import RunExchange
    from promptools.proxy.routing.route_table import RouteTable
    from promptools.transport import Session


MAX_BODY = 64 * 2**20
"""Maximum size of a body that is read in bytes, as those of chat completions are; it is held in memory."""
API_KEY_VARIABLE = "PROMPTOOLS_API_KEY"
"""Environment variable with the API keys that the proxy accepts, separated by blanks or commas."""


@dataclass(frozen=True, slots=True)
class ServedConfig:
    """A session, and where its requests go."""

    session: Session
    target: Target
    """The default provider's, or that of the one server."""
    upstream: UpstreamAddress
    """The server's address; the default provider's first one."""
    authorization: str | None = field(repr=False)
    """What is sent to `upstream` in place of the client's keys."""
    host: str
    """The name of the server's host."""
    access: AccessControl
    max_body: int
    table: RouteTable | None
    """None: all requests go to `upstream`."""
    directory: ModelDirectory | None
    """The models of all providers; None if there is only one."""


@dataclass(frozen=True, slots=True)
class ProxyArguments:
    """What the proxy was started with; it overrides the config, and keys and hosts are added to the config's."""

    provider: str | None
    base_url: str | None
    allow_provider: bool | None
    max_body: int | None
    api_keys: tuple[str, ...] = field(repr=False)
    allowed_hosts: tuple[str, ...]


def serve_config(
    session: Session, arguments: ProxyArguments, http: Any, run: RunExchange, old: RouteTable | None = None
) -> ServedConfig:
    """Return what a proxy serves; raise `UsageError` if it does not know its server, or has no key for it.

    With `base_url` or `provider` all requests go there. Otherwise they are routed over all providers of the session's
    config. `http` is the HTTP library's module.
    """
    options = session.config.proxy
    allowed = options.allow_provider if arguments.allow_provider is None else arguments.allow_provider
    max_body = next(limit for limit in (arguments.max_body, options.max_body, MAX_BODY) if limit is not None)
    if max_body < 1:
        raise UsageError(f"max_body must be 1 byte or more, not {max_body}")
    target = session.resolve_target(None, base_url=arguments.base_url, provider=arguments.provider)
    if target.base_url is None:
        raise UsageError(
            "the proxy does not know its server: pass base_url=, provider=, or a config with a default provider"
        )
    session = session.with_settings({"allow_provider": allowed, "provider": target.provider})
    upstream = parse_base_url(target.base_url, http)
    key = session.find_key(target)
    authorization = upstream.authorization or (f"Bearer {key}" if key else None)
    pinned = arguments.provider is not None
    table = None if arguments.base_url else build_table(session, target, http, pinned=pinned, old=old)
    has_key = authorization is not None or (table is not None and any(to.has_key for to in table.providers.values()))
    access = AccessControl(
        [*arguments.api_keys, *_environment_keys(options.api_key_env)],
        [*arguments.allowed_hosts, *options.allowed_hosts],
        has_provider_key=has_key,
    )
    several = table is not None and len(table.providers) > 1
    directory = ModelDirectory(table, run, ask=session.detect) if table is not None and several else None
    host = urlsplit(upstream.base_url).hostname or ""
    return ServedConfig(session, target, upstream, authorization, host, access, max_body, table, directory)


def _environment_keys(variable: str | None) -> list[str]:
    """Read the API keys from the environment; raise `UsageError` if the config's variable holds none."""
    named = os.environ.get(variable, "").replace(",", " ").split() if variable else []
    if variable and not named:
        raise UsageError(
            f"[proxy] api_key_env: the environment variable {variable!r} is not set; set it to the API keys"
        )
    return [*named, *os.environ.get(API_KEY_VARIABLE, "").replace(",", " ").split()]
