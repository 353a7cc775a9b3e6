"""Redirects: followed within an origin only, so that no key and no prompt reach a server that was not named.

httpx drops `authorization` on a redirect to another origin, and sends the body and every other field: `x-api-key`,
`api-key`, what the caller set. An upgrade from http to https on the default ports is the one exception, as in httpx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.transport.driver.http_library import HttpLibrary

MAX_REDIRECTS = 20
"""Maximum number of redirects that are followed in a row, as in httpx."""
_PORTS = {"http": 80, "https": 443}
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding", b"content-type", b"content-encoding"})


def redirect_location(library: HttpLibrary, request: Any, response: Any) -> Any:
    """Return the URL that a response redirects to; None if it is no redirect."""
    if not response.has_redirect_location:
        return None
    try:
        return request.url.join(response.headers["location"]).copy_with(userinfo=b"")
    except library.module.InvalidURL:
        return library.module.URL("")  # it has no origin, so it is never followed


def is_same_origin_redirect(url: Any, location: Any) -> bool:
    """Whether a location has the same origin as a URL, or is its https upgrade on the default ports."""
    if _origin(url) == _origin(location):
        return True
    return url.host == location.host and (_origin(url)[::2], _origin(location)[::2]) == (("http", 80), ("https", 443))


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme)


def build_redirect(library: HttpLibrary, request: Any, status: int, location: Any) -> Any:
    """Build the request for a redirect; as in httpx, 303 makes it a GET, and so do 301 and 302 after a POST."""
    if request.method != "HEAD" and (status == 303 or (status in {301, 302} and request.method == "POST")):
        fields = [pair for pair in request.headers.raw if pair[0].lower() not in _BODY_FIELDS]
        return library.module.Request("GET", location, headers=fields, extensions=request.extensions)
    fields = [pair for pair in request.headers.raw if pair[0].lower() not in {b"content-length", b"transfer-encoding"}]
    content = request.content
    return library.module.Request(
        request.method, location, headers=fields, content=content, extensions=request.extensions
    )


def cross_origin_message(location: Any) -> str:
    """Return the error message for a redirect to another origin; it shows neither credentials nor the query."""
    target = (
        f"{location.scheme}://{location.netloc.decode('ascii')}{location.path}"
        if location.host
        else "something that is not a URL"
    )
    return f"redirected to {target}: another origin gets neither the prompt nor a key; if it is right, make it base_url"
