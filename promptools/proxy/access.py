"""Access to the proxy: the accepted API keys and host names, and the web pages that may read responses.

`AccessControl` checks each request before its body is read: the request's key or, if the proxy requires no key, the
request's `Host` field. `collect_keys` reads the keys from the arguments, the config and the environment. `with_cors`
lets web pages from some origins read the responses. Limits on the number of requests are in `admission`.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip, install_command
from promptools.exchange.response_store import owner_of, owner_of_keys
from promptools.masking import KEY_FIELDS as _KEY_FIELDS
from promptools.masking import key_in
from promptools.proxy.asgi import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.profiles import ProxyOptions
    from promptools.proxy.asgi import Message, Receive, Scope, Send


# Access control: the API keys that the proxy requires or, without any, the host names that it accepts.


KEY_FIELDS = frozenset(name.encode("ascii") for name in _KEY_FIELDS)
"""Names of the header fields that may carry an API key, whether for the proxy or for the server."""
ANY_HOST = "*"

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{0,5})?")
_KEY = re.compile(r"[!-~]+")
_PORT = re.compile(r":[0-9]+$")


class AccessControl:
    """Checks the Host field and the API key of each request, before its body is read.

    Without keys, the Host field of a request over loopback must contain a loopback host or one of `hosts`. If other
    hosts were accepted, a web page could use the proxy by making its own host name resolve to this machine (DNS
    rebinding). With keys, which such a page cannot know, host names are not checked.

    A proxy that requires no key may still send a provider's key upstream (`has_provider_key`). In this case, requests
    over loopback from web pages of other origins are refused too. Such a page could not read the response, but the
    browser would send the page's request, and the provider would charge for it.
    """

    def __init__(
        self,
        keys: Iterable[ApiKey],
        hosts: Iterable[str],
        *,
        origins: Iterable[str] = (),
        has_provider_key: bool = False,
    ) -> None:
        self._has_provider_key = has_provider_key
        self._keys = [(_digest(_check_key(key.key).encode("ascii")), key.name) for key in keys]
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._origins = frozenset(origin.lower().encode("latin-1") for origin in origins)

    @property
    def requires_key(self) -> bool:
        """Whether the proxy requires a key."""
        return bool(self._keys)

    def has_key(self, scope: Scope) -> bool:
        """Return whether a request carries a valid key."""
        return self._find_key(scope) is not None

    def shares_key(self, other: AccessControl) -> bool:
        """Return whether any key is accepted by both this object and `other`."""
        return not {digest for digest, _ in self._keys}.isdisjoint(digest for digest, _ in other._keys)

    def check(self, scope: Scope) -> str:
        """Return the Host field of a request; raise `RefusedError` if the request may not use the proxy."""
        host, name = _read_host(scope)
        if self._keys and self._find_key(scope) is None:
            message = "this proxy requires its own API key, as `Authorization: Bearer KEY`; the key is missing or wrong"
            headers = ((b"www-authenticate", b"Bearer"),)
            raise RefusedError(401, message, kind="invalid_request_error", code="invalid_api_key", headers=headers)
        if not self._keys and is_loopback(_local_address(scope)):
            self._check_names(scope, name)
        return host

    def key_name(self, scope: Scope) -> str:
        """Return the name of the key that a request carries.

        The name is empty if the key has none, or if the request carries no valid key.
        """
        return (self._find_key(scope) or (b"", ""))[1]

    def owner(self, scope: Scope) -> str:
        """Return an id for the owner of a request, who alone may use the responses that the request stores.

        The id is derived from the name of the request's key, and so stays the same when the key is replaced. If the
        key has no name, the id is derived from the key itself. If the proxy requires no key, the id is derived from the
        key that the client sends to the server. All requests without a key have the same id.
        """
        found = self._find_key(scope)
        if found is None:
            return owner_of((*((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),))
        digest, name = found
        return owner_of_keys([f"name {name}" if name else f"sha256 {digest.hex()}"])

    def _check_names(self, scope: Scope, name: str) -> None:
        """Raise `RefusedError` if a malicious web page in a user's browser may have made the request.

        The request is refused if `name`, the host in its `Host` field, is not accepted. If the proxy sends a provider's
        key, the request is also refused if the host in its `Origin` field is not accepted, unless the operator allows
        the origin.
        """
        origin = next((value for field, value in scope["headers"] if field.lower() == b"origin"), None)
        listed = origin is None or origin.lower() in self._origins
        foreign = _origin_host(origin) if origin and not listed and self._has_provider_key else None
        refused = next(
            (candidate for candidate in (name, foreign) if candidate is not None and not self._accepts_name(candidate)),
            None,
        )
        if refused is not None:
            message = (
                f"this proxy does not answer to the name {clip(refused)!r}: use localhost, or let its operator allow"
                " the name with --allowed-host, or ask for an API key"
            )
            raise RefusedError(403, message, code="host_not_allowed")

    def _find_key(self, scope: Scope) -> tuple[bytes, str] | None:
        """Return the digest and the name of the key that a request carries; None if it carries no valid key.

        All keys are compared, each in constant time. If several are valid, a key with a name is preferred.
        """
        digests = [_digest(_key_in(name, value)) for name, value in scope["headers"] if name.lower() in KEY_FIELDS]
        same = [(hmac.compare_digest(digest, key), (key, name)) for digest in digests for key, name in self._keys]
        return max((found for equal, found in same if equal), key=lambda found: (found[1], found[0]), default=None)

    def _accepts_name(self, name: str) -> bool:
        return ANY_HOST in self._hosts or name in self._hosts or is_loopback(name)


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Return whether a host name or an address belongs to the loopback interface, such as `localhost` or `::1`."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address: IPv4Address | IPv6Address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _read_host(scope: Scope) -> tuple[str, str]:
    """Return the Host field and the host name in it, such as `localhost:8100` and `localhost`.

    An HTTP/1.0 request may omit the field (RFC 9112, section 3.2); its host name is assumed to be `localhost`. Raises
    `RefusedError` for any other request without exactly one valid Host field.
    """
    fields = [value for name, value in scope["headers"] if name.lower() == b"host"]
    if not fields and scope.get("http_version") == "1.0":
        return "", "localhost"
    match = _HOST.fullmatch(fields[0]) if len(fields) == 1 else None
    if match is None:
        raise RefusedError(400, "the request needs one Host field, with a host and perhaps a port", code="bad_host")
    return match[0].decode("ascii"), match[1].decode("ascii").lower().strip("[]").rstrip(".")


def _origin_host(origin: bytes) -> str | None:
    """Return the host in an `Origin` field, or "null" if that is its value.

    Returns None for an origin whose scheme is not HTTP or HTTPS, such as the origin of an editor's own pages.
    """
    scheme, mark, authority = origin.decode("latin-1").lower().partition("://")
    if not mark:
        return scheme
    host = authority.rpartition(":")[0] if _PORT.search(authority) else authority
    return host.strip("[]").rstrip(".") if scheme in {"http", "https"} else None


def _local_address(scope: Scope) -> str:
    """Return the address at which the proxy received the request; empty if the ASGI server does not know it."""
    server = scope.get("server")
    return str(server[0]).lower() if server else ""


def _key_in(name: bytes, value: bytes) -> bytes:
    return key_in(name.decode("latin-1"), value.decode("latin-1")).encode("latin-1")


def _digest(key: bytes) -> bytes:
    """Return the SHA-256 hash of a key. All hashes have the same length, and an error that shows one reveals no key."""
    return sha256(key).digest()


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise UsageError(
            "an API key of the proxy is empty, or contains blanks or non-ASCII characters; it is not shown here"
        )
    return key


# The API keys that the proxy accepts, from the environment, a file and the config; keys with a name can have limits.
#
# A name may have several keys, so that a key can be replaced while clients still use the old one.


API_KEY_VARIABLE = "PROMPTOOLS_API_KEY"
"""Environment variable with the API keys that the proxy accepts, separated by blanks or commas."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAMED_LINE = re.compile(r"(\S+)\s+=\s+(\"?)(\S+)\2")
"""Matches `NAME = KEY`.

Blanks around the `=` are required, since a key may contain `=`. Quotes around the key are allowed, so that the file can
be valid TOML.
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key that the proxy accepts; `name` is empty if the key has no name."""

    key: str = field(repr=False)
    name: str = ""


def read_key_file(text: str, source: str) -> list[ApiKey]:
    """Return the API keys in the text of a file; raise `UsageError` if there is none.

    A line is `NAME = KEY`, or one or more keys without names, separated by blanks. A line that begins with `#` is a
    comment. `source` is the name of the file, for the error.
    """
    keys: list[ApiKey] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            continue
        named = _NAMED_LINE.fullmatch(stripped)
        keys += [ApiKey(named[3], named[1])] if named else [ApiKey(word) for word in stripped.split()]
    if not keys:
        raise UsageError(f"{source!r} holds no API key; write one a line, or NAME = KEY")
    return keys


def read_keys(variable: str) -> list[str]:
    """Return the keys in an environment variable; raise `UsageError` if it contains none."""
    keys = _split(os.environ.get(variable, ""))
    if not keys:
        raise UsageError(f"the environment variable {variable!r} is not set; set it to the API keys")
    return keys


def collect_keys(given: Iterable[str | ApiKey] | str, options: ProxyOptions) -> list[ApiKey]:
    """Return all API keys that the proxy accepts: those in `given`, in the config, and in the environment.

    Raises `UsageError` if a key to which the config refers is missing, and for names that `_check_names` refuses.
    """
    values = [given] if isinstance(given, str) else given
    keys = [ApiKey(value) if isinstance(value, str) else value for value in values]
    if options.key_file is not None:
        keys += _read_config_file(options.key_file)
    if options.api_key_env is not None:
        keys += [ApiKey(key) for key in _variable(options.api_key_env, "api_key_env")]
    for name, key_options in options.keys.items():
        if key_options.env is not None:
            keys += [ApiKey(key, name) for key in _variable(key_options.env, f"keys.{name}.env")]
    keys += [ApiKey(key) for key in _split(os.environ.get(API_KEY_VARIABLE, ""))]
    _check_names(keys, options.keys)
    return keys


def _read_config_file(path: str) -> list[ApiKey]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"[proxy] key_file: cannot read {path!r}: {error}") from None
    return read_key_file(text, path)


def _variable(variable: str, option: str) -> list[str]:
    keys = _split(os.environ.get(variable, ""))
    if not keys:
        raise UsageError(f"[proxy] {option}: the environment variable {variable!r} is not set; set it to the API keys")
    return keys


def _split(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _check_names(keys: list[ApiKey], named: Mapping[str, object]) -> None:
    """Raise `UsageError` for an invalid name, a name without a key, and a key with two names."""
    names: dict[str, str] = {}
    for key in keys:
        if key.name and not _NAME.fullmatch(key.name):
            raise UsageError(f"{clip(key.name)!r} cannot be the name of an API key: use letters, digits and `._-`")
        if key.name and names.setdefault(key.key, key.name) != key.name:
            raise UsageError(f"{names[key.key]!r} and {key.name!r} have the same API key; each needs its own")
    missing = [name for name in named if name not in names.values()]
    if missing:
        raise UsageError(
            f"[proxy] keys.{missing[0]}: it has no key; name the variable that holds it with `env`,"
            f" or write `{missing[0]} = KEY` into the file of keys"
        )


# Cross-origin requests: which web pages may read the proxy's responses. Without origins no page may.
#
# Starlette's middleware answers preflights, which browsers send without a key, and adds the fields about origins to the
# responses. The server's own fields about origins are dropped: they are about access to the server, not to the proxy.


ANY_ORIGIN = "*"
EXPOSED_FIELDS = (
    *("retry-after", "x-request-id"),
    *("x-promptools-mode", "x-promptools-attempts", "x-promptools-notes", "x-promptools-unfit"),
    "x-promptools-healing",
)
"""Header fields of a response that web pages from other origins may read."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_CORS_PREFIX = b"access-control-"


def check_origins(origins: Iterable[str] | str, *, requires_key: bool) -> list[str]:
    """Return the origins as a list; raise `UsageError` if one is invalid, or if "*" is used without API keys."""
    checked = [origins] if isinstance(origins, str) else list(origins)
    for origin in checked:
        if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
            raise UsageError(f"{clip(origin)!r} is not a valid origin; write https://HOST, without a path")
    if ANY_ORIGIN in checked and not requires_key:
        raise UsageError("the origin '*' needs an API key: any web page that a user opens could use the proxy")
    return checked


def with_cors(app: Callable[[Scope, Receive, Send], Awaitable[None]], origins: list[str]) -> Any:
    """Wrap the ASGI application `app` in CORS middleware, so that web pages of these origins may use it."""
    try:
        from starlette.middleware.cors import CORSMiddleware
    except ImportError as error:
        raise UsageError(f"CORS needs Starlette: {install_command('server')}") from error

    async def without_servers_fields(scope: Scope, receive: Receive, send: Send) -> None:
        async def filtered(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if not pair[0].lower().startswith(_CORS_PREFIX)]
                message = {**message, "headers": kept}
            await send(message)

        await app(scope, receive, filtered)

    return CORSMiddleware(
        without_servers_fields,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED_FIELDS,
    )
