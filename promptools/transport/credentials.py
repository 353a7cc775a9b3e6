"""A user name and password in a base URL: removed from the URL, and sent as httpx sends them."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import unquote_to_bytes


def split_credentials(base_url: str) -> tuple[str, str | None]:
    """Return a base URL without its user name and password, and the `Authorization` value made of them, if any."""
    scheme, mark, remainder = base_url.partition("://")
    authority, slash, path = remainder.partition("/")
    userinfo, _, host = authority.rpartition("@")
    url = f"{scheme}{mark}{host}{slash}{path}"
    if not userinfo.strip(":"):
        return url, None
    name, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return url, f"Basic {b64encode(pair).decode('ascii')}"
