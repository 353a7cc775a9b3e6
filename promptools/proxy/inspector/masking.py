"""Credentials never reach the page: header fields are masked when they come, and their values wherever they recur.

Masking by name alone would not do: servers repeat the key that they got in their errors. So the values of masked
fields are remembered for as long as the exchange is, and replaced in every text that is shown of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from promptools.errors import without_credentials
from promptools.proxy.upstream.key_masking import MIN_KEY_LENGTH
from promptools.schema.documents.json_guards import is_array, is_object
from promptools.transport.session import CREDENTIAL_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange import Headers

MASK = "***"
_SECRET_NAME = re.compile(
    r"auth|cookie|secret|passw|credential|session|api-?key|signature|(?:^|[-_])(?:key|token|sig)$"
)
_QUERY = re.compile(r"([?&])([^=&#]*)=([^&#]*)")
_SCHEME = re.compile(r"(?:bearer|basic|digest|token) +", re.IGNORECASE)
_COOKIE_PAIR = re.compile(r"[;,\s]+")


def is_secret(name: str) -> bool:
    """Whether a header field, or a parameter of a URL, holds a credential, by its name."""
    name = name.lower()
    return name in CREDENTIAL_FIELDS or _SECRET_NAME.search(name) is not None


def mask_headers(headers: Headers) -> Headers:
    """Return the fields with the values of credentials masked; the scheme of an authorization stays."""
    return tuple(
        (name, _mask_field(value) if is_secret(name) else without_credentials(value)) for name, value in headers
    )


def mask_url(url: str) -> str:
    """Return a URL with its user name, password and keys in the query masked."""
    return _QUERY.sub(
        lambda pair: f"{pair[1]}{pair[2]}={MASK if is_secret(unquote(pair[2])) else pair[3]}", without_credentials(url)
    )


def secrets_in(headers: Headers, url: str) -> set[str]:
    """Return the values of all credentials of a request or response that are too long to occur in text by accident."""
    values = {value for name, field in headers if is_secret(name) for value in _values(field)}
    values |= {unquote(pair[3]) for pair in _QUERY.finditer(url) if is_secret(unquote(pair[2]))}
    return {value for value in values if len(value) >= MIN_KEY_LENGTH}


def mask_secrets(value: Any, secrets: Iterable[str]) -> Any:
    """Return a JSON value with every secret in its strings replaced by asterisks, as many as it has characters."""
    if not secrets:
        return value
    # the longest first: one may be part of another
    pattern = re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))
    return _mask_value(value, pattern)


def _mask_value(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda match: "*" * len(match[0]), value)
    if is_object(value):
        return {_mask_value(key, pattern): _mask_value(entry, pattern) for key, entry in value.items()}
    if is_array(value):
        return [_mask_value(entry, pattern) for entry in value]
    return value


def _mask_field(value: str) -> str:
    scheme = _SCHEME.match(value)
    return f"{scheme[0]}{MASK}" if scheme else MASK


def _values(field: str) -> list[str]:
    """Return the credentials in a field: all of it without its scheme, the values of cookies, and a password."""
    scheme = _SCHEME.match(field)
    bare = field[scheme.end() if scheme else 0 :].strip()
    pairs = [pair.partition("=")[2] for pair in _COOKIE_PAIR.split(bare)]
    return [bare, *pairs, *_password(bare)]


def _password(text: str) -> list[str]:
    """Return the password of Basic authorization."""
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return []
    return [decoded.partition(":")[2]]
