"""Build the upstream URL of a request: host and port come from the base URL, only path and query from the request.

A request target is never appended to the base URL unchecked. It must be a path that begins with a slash (RFC 9112,
section 3.2.1), or an absolute URL with the proxy's own authority (3.2.2). The upstream URL is built from parts of the
base URL and of the target. ASGI servers differ: given an absolute URL, uvicorn with h11 passes on the whole request
target, and with httptools only the path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_from_bytes, unquote

from promptools.errors import UsageError, bad_url_message, clip, without_credentials
from promptools.proxy.asgi import RefusedError
from promptools.transport.endpoints import CHAT_ENDPOINT
from promptools.transport.http_library import split_credentials

if TYPE_CHECKING:
    from promptools.proxy.asgi import Scope


VERSION_PREFIX = "/v1"
CHAT_PATH = CHAT_ENDPOINT.path
CHAT_PATHS = frozenset({CHAT_PATH, VERSION_PREFIX + CHAT_PATH})
"""The paths of chat completions, in which clients may omit /v1. A request to any other path keeps its path."""
MISTAKEN_SUFFIXES = (CHAT_PATH, "/completions", "/responses")
"""API routes that users put into a base URL by mistake."""
REFUSED_METHODS = frozenset({"CONNECT", "TRACE", "TRACK"})
"""Methods that are refused: CONNECT names another host, and the others echo the request, including the key."""

_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^?]*)")
_FORBIDDEN = re.compile(rb"[\x00-\x20\x7f#]")
"""Matches a control character, a blank or the `#` of a fragment, which are not allowed in a request target."""
_PLAIN = re.compile(rb"(?:/[A-Za-z0-9_-]+)+")
"""Matches a path that needs no further checks; nearly all paths are of this form."""
_SEPARATOR = re.compile(r"[/\\]")
_URL_SAFE = "".join(map(chr, range(0x21, 0x7F)))
_PATH_SAFE = "/:@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """The parts of the server's base URL."""

    origin: str
    """Scheme, host and port, as in `http://127.0.0.1:8000`."""
    path: str
    """Path of the API, without a trailing slash."""
    authorization: str | None = field(repr=False)
    """Basic authorization, from the user name and password in the base URL."""

    @property
    def base_url(self) -> str:
        """The base URL without credentials."""
        return self.origin + self.path

    def url(self, path: str, query: str) -> str:
        """Return the server's URL for a path: under `base_url` if the path is under /v1, else at the root."""
        if path.rstrip("/") in CHAT_PATHS:
            full_path = self.path + CHAT_PATH
        elif path == VERSION_PREFIX or path.startswith(f"{VERSION_PREFIX}/"):
            full_path = self.path + path.removeprefix(VERSION_PREFIX)
        else:
            full_path = self.path.removesuffix(VERSION_PREFIX) + path
        return f"{self.origin}{full_path}?{query}" if query else self.origin + full_path


def parse_base_url(text: str, http: Any) -> UpstreamAddress:
    """Parse a base URL; raise `UsageError` if the proxy cannot use it.

    `http` is the module of the HTTP library that parses the URL, such as `httpx`.
    """
    if "://" not in text:
        raise UsageError(bad_url_message(text))
    address, authorization = split_credentials(text)
    shown = without_credentials(text)
    try:
        url = http.URL(address)
    except http.InvalidURL as error:
        raise UsageError(f"the base URL {shown!r} is not a valid URL: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host or not 0 < (url.port or 80) < 65536:
        raise UsageError(bad_url_message(text))
    if "?" in text or "#" in text:
        raise UsageError(f"the base URL {shown!r} must end with its path: leave out the `?` or `#`")
    route = next((candidate for candidate in MISTAKEN_SUFFIXES if url.path.rstrip("/").endswith(candidate)), None)
    if route:
        raise UsageError(
            f"the base URL {shown!r} is the URL of one route; write the root of the API, without {route!r}"
        )
    origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
    return UpstreamAddress(origin, url.raw_path.decode("ascii").rstrip("/"), authorization)


def read_request_target(scope: Scope, host: str) -> tuple[str, str]:
    """Return the path and query of a request; raise `RefusedError` if its target is unsafe, or names another host."""
    if scope["method"] in REFUSED_METHODS:
        raise RefusedError(405, f"the method {scope['method']} is not proxied", code="bad_method")
    target: bytes = scope.get("raw_path") or quote(scope["path"], safe=_PATH_SAFE).encode("ascii")
    if _PLAIN.fullmatch(target) and not scope.get("query_string"):
        return _without_root_path(target.decode("ascii"), scope.get("root_path", "")), ""
    path, query = _origin_form(target.partition(b"?")[0], host), scope.get("query_string", b"")
    if path[:1] != b"/" or path[:2] == b"//":
        raise _refusal(target, "it must begin with one slash")
    if b"\\" in path or _FORBIDDEN.search(path + query):
        raise _refusal(target, "it holds a backslash, a fragment or a control character")
    text = _percent_encode(path)
    if any(part.partition(";")[0] == ".." for part in _SEPARATOR.split(unquote(text, "latin-1"))):
        raise _refusal(target, "it holds a '..' segment")
    return _without_root_path(text, scope.get("root_path", "")), _percent_encode(query)


def route_path(scope: Scope) -> str:
    """Return the decoded path of a request, without the prefix at which the proxy is mounted."""
    path: str = scope["path"]
    root = scope.get("root_path", "")
    return _without_root_path(path, root) if root else path


def _origin_form(target: bytes, host: str) -> bytes:
    """Return the path of a target that is an absolute URL of this proxy; return any other target unchanged.

    Raises `RefusedError` for an absolute URL with another host.
    """
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return target
    if absolute[1].decode("latin-1").lower() != host.lower():
        raise _refusal(target, "it names another host")
    return absolute[2] or b"/"


def _without_root_path(path: str, root: str) -> str:
    """Return a path without the prefix at which the application is mounted."""
    root = root.rstrip("/")
    return path.removeprefix(root) or "/" if path == root or path.startswith(f"{root}/") else path


def _percent_encode(text: bytes) -> str:
    """Percent-encode all bytes that are not visible ASCII characters."""
    return quote_from_bytes(text, safe=_URL_SAFE)


def _refusal(target: bytes, why: str) -> RefusedError:
    shown = clip(without_credentials(target.decode("latin-1")))
    return RefusedError(400, f"the request target {shown!r} is refused: {why}", code="bad_target")
