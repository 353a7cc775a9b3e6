"""A user name and password in a base URL: sent as httpx sends them, and kept out of the URL from there on."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote_to_bytes


def split_credentials(base_url: str) -> tuple[str, str | None]:
    """Return a base URL without its user name and password, and the `authorization` field that they make."""
    scheme, mark, rest = base_url.partition("://")
    authority, slash, path = rest.partition("/")
    userinfo, _, place = authority.rpartition("@")
    url = f"{scheme}{mark}{place}{slash}{path}"
    if not userinfo.strip(":"):
        return url, None
    name, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return url, f"Basic {b64encode(pair).decode('ascii')}"
