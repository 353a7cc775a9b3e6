"""Find out what a config reaches: where it sends prompts and keys, which files it reads, whom it admits to the proxy.

A config that was only found, for example in a cloned repository, needs the user's trust if it reaches another machine
or names a dialect file outside its own folder. The trust is stored with `ConfigReach.digest`, which changes if an
address or the name of an API key's environment variable changes, but not if a model changes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from shlex import quote
from typing import Any

from promptools.errors import UsageError, clip
from promptools.masking import mask_url
from promptools.patterns import lazy_pattern
from promptools.profiles.config import Config, Model, Provider, ProxyOptions
from promptools.profiles.facts import kind_of, load_builtin
from promptools.profiles.tables import is_array, is_table

_LOCAL_URL = lazy_pattern(
    # no backslash, blank, `@` or `?` after the host: HTTP libraries do not agree on what those mean
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[A-Za-z0-9._~!$&'()*+,;=:%-]*@)?(?P<host>[A-Za-z0-9.]+|\[::1\])(?::[0-9]{1,5})?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?",
    re.ASCII,
)
_LOCAL_SOCKET = lazy_pattern(r"unix:///[A-Za-z0-9._/-]+", re.ASCII)
_URL = lazy_pattern(r":[/\\]{1,2}[^/\\\s]|^[/\\]{2}[^/\\\s]|^(?:https?|wss?|ftp):[^/\\\s]", re.IGNORECASE)
"""Matches the beginning of a URL in request defaults. Some servers fetch such a URL, or send data to it."""
_IGNORED_IN_URLS = lazy_pattern(r"^[\x00-\x20]+|[\t\n\r]+")
"""Matches characters that browsers, and servers on Node, leave out of a URL.

For example, a URL still works if a tab follows `https:`.
"""
SHOWN_ADDRESSES = 3


@dataclass(frozen=True, slots=True)
class Reached:
    """One thing that a config reaches, such as an address, a file, or an environment variable that holds a key."""

    what: str
    value: str
    is_remote: bool = False
    """Whether this is on another machine, or admits clients from other machines."""
    is_outside: bool = False
    """Whether this is a dialect file that is outside the config's folder, and so did not come with the config."""
    is_variable: bool = False
    """Whether the value is the name of an environment variable that holds an API key."""

    def __str__(self) -> str:
        """Return a line for a terminal or an error message, without credentials; all but printable ASCII is escaped."""
        return f"{clip(shown_text(self.what))}: {clip(shown_text(mask_url(self.value)))}"


@dataclass(frozen=True, slots=True)
class ConfigReach:
    """Everything that a config reaches.

    The entries come from its providers, then from the proxy's options, then from its list of dialect files.
    """

    entries: tuple[Reached, ...]

    @property
    def asked_about(self) -> tuple[Reached, ...]:
        """The entries for which a config found in the current folder needs the user's trust."""
        return tuple(entry for entry in self.entries if entry.is_remote or entry.is_outside)

    @property
    def digest(self) -> str:
        """A digest of everything that the config reaches: addresses, files, and environment variables with API keys.

        Credentials in URLs are included. The digest does not depend on the order of the entries.
        """
        pairs = sorted((entry.what, entry.value) for entry in self.entries)
        return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


class UntrustedConfig(UsageError):
    """Raised if an untrusted config in the current folder would affect a request or the proxy.

    A config needs the user's trust if it reaches another machine or a dialect file outside its folder, or if another
    user may have put it there.
    """

    def __init__(self, config: Config, reach: ConfigReach) -> None:
        reasons = reach.asked_about
        shown = [str(entry) for entry in reasons[:SHOWN_ADDRESSES]]
        more = [f"{len(reasons) - SHOWN_ADDRESSES} more"] if len(reasons) > SHOWN_ADDRESSES else []
        named = "; ".join([*shown, *more]) or "another user put it there"
        file = shown_text(config.file)
        super().__init__(
            f"{file} was found in the current folder, and is not trusted ({named}), so nothing is sent. To use it, run"
            f" `promptools config trust {quote(file)}`, or name it with config=, --config or PROMPTOOLS_CONFIG; to use"
            " another server, name one that the file does not have with base_url= or --base-url"
        )
        self.config = config
        self.reach = reach


def shown_text(text: str) -> str:
    """Return text with all characters except printable ASCII escaped, since some characters look like others."""
    return "".join(char if char.isascii() and char.isprintable() else ascii(char)[1:-1] for char in text)


def is_loopback_url(url: str, schemes: tuple[str, ...] = ("http", "https")) -> bool:
    """Return whether a URL certainly leads to this machine: to `localhost`, 127.0.0.0/8 or `[::1]`.

    Names are not looked up. Any other host counts as another machine. This includes 127.1 and 2130706433, which only
    some libraries understand, as well as 0.0.0.0, IPv4 in IPv6, names below `.localhost`, and `host.docker.internal`.
    """
    found = _LOCAL_URL.fullmatch(url)
    return found is not None and found["scheme"] in schemes and is_loopback_host(found["host"])


def is_loopback_host(host: str) -> bool:
    """Return whether the name of a host certainly means this machine."""
    if host.lower() == "localhost" or host in {"[::1]", "::1"}:
        return True
    try:
        return IPv4Address(host).is_loopback
    except AddressValueError:
        return False


def reach_of(config: Config) -> ConfigReach:
    """Return what a config reaches: addresses, files, and environment variables with API keys."""
    folder = Path(config.file).parent
    entries = [entry for provider in config.providers.values() for entry in _of_provider(provider, folder)]
    return ConfigReach((*entries, *_of_proxy(config.proxy), *_of_dialects(config.dialect_files, folder)))


def require_trust(config: Config, base_url: str | None, provider: str | None) -> None:
    """Raise `UntrustedConfig` if an untrusted config would affect requests to a server.

    The requests go to the server at `base_url` (which an argument or the environment names), or else to that of
    `provider`, or else to the config's default. If the config would have no effect on them, nothing is raised, and the
    caller ignores the config. A config with an effect is never ignored silently, because the request might then go to
    another server, with another key, or without the settings of its tools (marks).
    """
    if config.standing == "untrusted" and _concerns(config, base_url, provider):
        raise UntrustedConfig(config, reach_of(config))


def _concerns(config: Config, base_url: str | None, provider: str | None) -> bool:
    marks, descriptions = config.tools, config.descriptions
    if marks or descriptions.everywhere or descriptions.by_provider or descriptions.by_model or config.dialect_files:
        return True
    if provider is not None and (provider in config.providers or kind_of(provider) is None):
        return True
    if base_url is not None:
        return any(
            same_url(url, base_url) for entry in config.providers.values() for _, url in _addresses(entry) if url
        )
    return provider is None and bool(config.providers or config.default_provider)


def same_url(one: str, other: str) -> bool:
    """Return whether two base URLs are equal apart from case and a trailing slash."""
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def _of_provider(provider: Provider, folder: Path) -> Iterator[Reached]:
    owner = f"provider {provider.name!r}"
    for what, url in _addresses(provider):
        yield Reached(f"{owner}, {what}", url, is_remote=not is_loopback_url(url))
    if provider.api_key_env:
        yield Reached(f"{owner}, key in the variable", provider.api_key_env, is_variable=True)
    yield from _of_parts(owner, provider, folder)
    for model in provider.models.values():
        yield from _of_parts(f"{owner}, model {model.name!r}", model, folder)


def _addresses(provider: Provider) -> Iterator[tuple[str, str]]:
    """Yield `(what it is, address)` for a provider's base URL (or its kind's default URL) and for its replicas."""
    kind = provider.kind or kind_of(provider.name)
    first = provider.base_url or (load_builtin(kind).base_url if kind else None)
    if first:
        yield "server", first
    for url in provider.replicas:
        yield "another server", url


def _of_parts(owner: str, part: Provider | Model, folder: Path) -> Iterator[Reached]:
    """Yield the files and URLs in the facts and request defaults of a provider or of a model."""
    template = part.facts.get("chat_template")
    if template is not None:
        yield Reached(f"{owner}, chat template in the file", str(folder / Path(str(template)).expanduser()))
    for key, url in _urls(part.defaults, "defaults"):
        yield Reached(f"{owner}, {key}", url, is_remote=not is_loopback_url(url))


def _urls(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield `(path of keys, URL)` for each URL in request defaults, such as the URL of an MCP server."""
    if is_table(value):
        table: Mapping[str, Any] = value
        for key, member in table.items():
            yield from _urls(member, f"{where}.{key}")
    elif is_array(value):
        for member in value:
            yield from _urls(member, where)
    elif isinstance(value, str) and _URL.search(_IGNORED_IN_URLS.sub("", value)):
        yield where, value


def _of_proxy(options: ProxyOptions) -> Iterator[Reached]:
    """Yield what the proxy's options reach, including origins and host names, since these admit more clients."""
    url = options.redis_url
    if url:
        is_local = _LOCAL_SOCKET.fullmatch(url) is not None or is_loopback_url(url, ("redis", "rediss"))
        yield Reached("[proxy] redis_url", url, is_remote=not is_local)
    for origin in options.cors_origins:
        yield Reached("[proxy] cors_origins", origin, is_remote=not is_loopback_url(origin))
    for host in options.allowed_hosts:
        yield Reached("[proxy] allowed_hosts", host, is_remote=not is_loopback_host(host))
    if options.allow_provider:
        yield Reached("[proxy] allow_provider", "true")
    if options.key_file:
        yield Reached("[proxy] key_file", options.key_file)
    variables = {"api_key_env": options.api_key_env, **{f"keys.{name}": key.env for name, key in options.keys.items()}}
    for name, variable in variables.items():
        if variable:
            yield Reached(f"[proxy] {name}, key in the variable", variable, is_variable=True)


def _of_dialects(files: Iterable[str], folder: Path) -> Iterator[Reached]:
    """Yield the dialect files that a config names."""
    for file in files:
        yield Reached("dialect in the file", file, is_outside=not _is_below(file, folder))


def _is_below(file: str, folder: Path) -> bool:
    """Return whether a file is inside a folder, at any depth, after following links."""
    try:
        return Path(file).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a link to itself, a null character
        return False
