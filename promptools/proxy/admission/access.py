"""Access control of the proxy: the API keys that it requires or, without any, the host names that it accepts."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from promptools.errors import UsageError, clip
from promptools.exchange.response_store import owner_of, owner_of_keys
from promptools.masking import KEY_FIELDS as _KEY_FIELDS
from promptools.masking import key_in
from promptools.proxy.asgi import RefusedError

if TYPE_CHECKING:
    from promptools.proxy.admission.api_keys import ApiKey
    from promptools.proxy.asgi import Scope

KEY_FIELDS = frozenset(name.encode("ascii") for name in _KEY_FIELDS)
"""Header fields that carry an API key, of the proxy or of the server."""
ANY_HOST = "*"

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{0,5})?")
_KEY = re.compile(r"[!-~]+")
_PORT = re.compile(r":[0-9]+$")


class AccessControl:
    """Checks the Host field and the API key of each request, before its body is read.

    Without keys, a proxy that is reached over loopback accepts only loopback names and `hosts`: otherwise a web page
    whose name is made to resolve to this machine (DNS rebinding) could use it. With keys, which such a page cannot
    know, host names are not checked.

    Where the proxy has a provider's key to spend (`has_provider_key`), requests from web pages of other origins are
    refused too: such a page could not read the response, but its browser sends the request all the same.
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
        """Whether a request carries one of the keys."""
        return self._find_key(scope) is not None

    def shares_key(self, other: AccessControl) -> bool:
        """Whether another one has any of the keys too."""
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
        """Return the name of the key that a request carries; empty if it has none."""
        return (self._find_key(scope) or (b"", ""))[1]

    def owner(self, scope: Scope) -> str:
        """Return whom the responses that a request stores belong to: the key that was checked, or its name.

        A name keeps its responses while its key is replaced. A proxy without keys checks none: there it is the client's
        own keys, which the server may check, and all requests without one have the same owner.
        """
        found = self._find_key(scope)
        if found is None:
            return owner_of((*((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),))
        digest, name = found
        return owner_of_keys([f"name {name}" if name else f"sha256 {digest.hex()}"])

    def _check_names(self, scope: Scope, name: str) -> None:
        """Raise `RefusedError` for a request that a web page may have made from a user's browser."""
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
        """Return digest and name of the key that a request carries; None if none is valid.

        Every key is compared, and in constant time. Of several valid keys one with a name counts.
        """
        digests = [_digest(_key_in(name, value)) for name, value in scope["headers"] if name.lower() in KEY_FIELDS]
        same = [(hmac.compare_digest(digest, key), (key, name)) for digest in digests for key, name in self._keys]
        return max((found for equal, found in same if equal), key=lambda found: (found[1], found[0]), default=None)

    def _accepts_name(self, name: str) -> bool:
        return ANY_HOST in self._hosts or name in self._hosts or is_loopback(name)


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether a host name or address is a loopback one."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address: IPv4Address | IPv6Address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _read_host(scope: Scope) -> tuple[str, str]:
    """Return the Host field and the name in it; HTTP/1.0 may omit the field (RFC 9112, section 3.2)."""
    fields = [value for name, value in scope["headers"] if name.lower() == b"host"]
    if not fields and scope.get("http_version") == "1.0":
        return "", "localhost"
    match = _HOST.fullmatch(fields[0]) if len(fields) == 1 else None
    if match is None:
        raise RefusedError(400, "the request needs one Host field, with a host and perhaps a port", code="bad_host")
    return match[0].decode("ascii"), match[1].decode("ascii").lower().strip("[]").rstrip(".")


def _origin_host(origin: bytes) -> str | None:
    """Return the host of a web page's origin, or "null"; None for an origin off the web, such as an editor's window."""
    scheme, mark, authority = origin.decode("latin-1").lower().partition("://")
    if not mark:
        return scheme
    host = authority.rpartition(":")[0] if _PORT.search(authority) else authority
    return host.strip("[]").rstrip(".") if scheme in {"http", "https"} else None


def _local_address(scope: Scope) -> str:
    """Return the local address of the connection; empty if the ASGI server does not know it."""
    server = scope.get("server")
    return str(server[0]).lower() if server else ""


def _key_in(name: bytes, value: bytes) -> bytes:
    return key_in(name.decode("latin-1"), value.decode("latin-1")).encode("latin-1")


def _digest(key: bytes) -> bytes:
    """Hash a key: digests have the same length, and no error message can show the key."""
    return sha256(key).digest()


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise UsageError("an API key of the proxy is empty, or holds blanks or what is not ASCII; it is not shown here")
    return key
