"""Keys and other credentials: where a request carries them, and how they are replaced in text.

All that must not show a key uses this: errors of the proxy, recordings, the inspector, tapes of agents. Masking by the
names of fields alone would not do, since servers repeat the key that they got. So the values are searched for, as they
are and in the forms that JSON, HTML and URLs give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_FIELDS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""Header fields that carry an API key, of the proxy or of the server."""
_BEARER = "bearer "


def key_in(name: str, value: str) -> str:
    """Return the key in a header field that carries one."""
    value = value.strip()
    bearer = name.lower() == "authorization" and value[: len(_BEARER)].lower() == _BEARER
    return value[len(_BEARER) :].strip() if bearer else value


def keys_in(headers: Iterable[tuple[str, str]]) -> set[str]:
    """Return the API keys that header fields carry."""
    keys = {key_in(name, value) for name, value in headers if name.lower() in KEY_FIELDS}
    return keys - {""}
