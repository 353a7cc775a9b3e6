"""The header fields of requests to a server, and of responses.

`forwarded_fields` decides which of a client's fields are forwarded, and whether they carry the client's key or the
provider's. `upstream_client` sends `Fields`, and `http1_connection` receives them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from promptools.proxy.access import KEY_FIELDS
from promptools.proxy.asgi import end_to_end_fields
from promptools.transport.response_content import supported_encodings

if TYPE_CHECKING:
    from promptools.exchange import Headers
    from promptools.proxy.asgi import Scope
    from promptools.proxy.served_config import ServedConfig


class Fields:
    """Header fields as sent on the wire; names are compared case-insensitively."""

    __slots__ = ("raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the values of a field, joined with commas; `default` if the field is absent."""
        key = name.encode("latin-1").lower()
        values = [value for field, value in self.raw if field.lower() == key]
        return b", ".join(values).decode("latin-1") if values else default

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


# The header fields of a client's request that are forwarded to a server, and the key that is sent with them.


LIBRARY_FIELDS = frozenset({b"host", b"content-length", b"expect"})
"""Fields that are not forwarded, since the HTTP client sets its own."""
ACCOUNT_FIELDS = frozenset({b"openai-organization", b"openai-project"})
"""Fields that name the account to bill; they are forwarded only with the client's own key."""
ACCEPT_ENCODING = b"accept-encoding"


def client_authorization(served: ServedConfig, fields: list[tuple[bytes, bytes]]) -> str | None:
    """Return the client's `Authorization` field; None if it is absent, or if a key of the provider replaces it."""
    values = (value.decode("latin-1") for name, value in fields if name.lower() == b"authorization")
    return next(values, None) if served.authorization is None else None


def forwarded_fields(served: ServedConfig, scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a client's request to forward to the server.

    If the provider or the proxy has a key, the client's keys are removed. The provider's key is added if there is one.
    """
    fields = [pair for pair in end_to_end_fields(scope["headers"]) if pair[0].lower() not in LIBRARY_FIELDS]
    if served.authorization is None and not served.access.requires_key:
        return fields
    forwarded = [_readable(name, value) for name, value in fields if name.lower() not in KEY_FIELDS | ACCOUNT_FIELDS]
    return [*forwarded, *([(b"authorization", served.authorization.encode())] if served.authorization else [])]


def owner_of_connections(scope: Scope) -> bytes:
    """Return a digest of the keys in a client's request. Requests with different digests never share a connection."""
    keys = sorted((name.lower(), value) for name, value in scope["headers"] if name.lower() in KEY_FIELDS)
    return blake2b(repr(keys).encode(), digest_size=16).digest() if keys else b""


def replace_fields(fields: list[tuple[bytes, bytes]], replaced: Headers) -> list[tuple[bytes, bytes]]:
    """Return `fields` with `replaced` in place of fields with the same names; an empty value removes a field."""
    if not replaced:
        return fields
    names = {name.encode("latin-1") for name, _ in replaced}
    kept = [_readable(name, value) for name, value in fields if name.lower() not in names]
    return [*kept, *((name.encode("latin-1"), value.encode("latin-1")) for name, value in replaced if value)]


def decode_fields(fields: list[tuple[bytes, bytes]]) -> Headers:
    """Return header fields with their names and values as text."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)


def _readable(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header field; limit `Accept-Encoding` to codings that the proxy can decode.

    The proxy masks keys in responses, so it must be able to decode them.
    """
    if name.lower() == ACCEPT_ENCODING:
        return name, supported_encodings(value.decode("latin-1")).encode("latin-1")
    return name, value
