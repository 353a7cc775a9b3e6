"""The two HTTP libraries that are supported: `httpx`, and `httpx2`, which openai 3 uses.

Their classes look the same but cannot be mixed: a transport must return responses of the same library. So nothing here
imports either library by name; the library is found from the class of the client that will use the transport.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from promptools.errors import UsageError
from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from promptools.exchange import Headers, ResponseHead


LIBRARY_NAMES = ("httpx2", "httpx")
_QUOTED_BYTES = lazy_pattern(r":? (?:bytearray\()?b['\"].*", re.DOTALL)


def error_text(error: Exception) -> str:
    """Return an error's text without the bytes that h11 quotes, which may be part of a reply."""
    return _QUOTED_BYTES.sub("", str(error)) or type(error).__name__


def encode_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Encode header fields as bytes, as they go over the wire."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def decode_headers(headers: Any) -> Headers:
    """Decode a library's headers; names keep the case in which they were received."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw)


@dataclass(frozen=True, slots=True)
class HttpLibrary:
    """The library httpx or httpx2. `module` is untyped because the library is known at run time only."""

    name: str
    module: Any

    def build_request(self, method: str, url: Any, headers: Headers, body: bytes, extensions: Any) -> Any:
        """Build a request of this library, with its whole body; `url` is a string or a URL of this library."""
        return self.module.Request(method, url, headers=encode_headers(headers), content=body, extensions=extensions)

    def build_response(self, head: ResponseHead, stream: Any, extensions: Any) -> Any:
        """Build a response of this library around a body stream."""
        return self.module.Response(
            head.status, headers=encode_headers(head.headers), stream=stream, extensions=extensions
        )


@cache
def import_library(name: str) -> HttpLibrary:
    """Import and return the HTTP library called `name`."""
    return HttpLibrary(name, import_module(name))


def library_of(client: object) -> HttpLibrary:
    """Return the library that an HTTP client belongs to; raise `UsageError` if it belongs to neither library."""
    for base in type(client).__mro__:
        root = base.__module__.partition(".")[0]
        if root in LIBRARY_NAMES:
            return import_library(root)
    raise UsageError(
        f"http_client is a {type(client).__name__!r}; promptools needs an httpx or httpx2 client (or a subclass)"
    )


def is_http_client(value: object) -> bool:
    """Return whether an object is a client of either library, sync or async."""
    roots = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    modules = [import_library(name).module for name in LIBRARY_NAMES if name in roots]
    return any(isinstance(value, (module.Client, module.AsyncClient)) for module in modules)


def installed_library() -> HttpLibrary:
    """Return `httpx2` if it is installed, else the older `httpx`.

    This is used if there is no client whose library must be used. Raises `UsageError` if neither is installed.
    """
    for name in LIBRARY_NAMES:
        if find_spec(name) is not None:
            return import_library(name)
    raise UsageError("neither httpx2 nor httpx is installed; install openai, which brings one of them")


# A user name and password in a base URL: removed from the URL, and sent as httpx sends them.


def split_credentials(base_url: str) -> tuple[str, str | None]:
    """Return a base URL without user name and password, and the `Authorization` value made from them, if any."""
    scheme, mark, remainder = base_url.partition("://")
    authority, slash, path = remainder.partition("/")
    userinfo, _, host = authority.rpartition("@")
    url = f"{scheme}{mark}{host}{slash}{path}"
    if not userinfo.strip(":"):
        return url, None
    name, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return url, f"Basic {b64encode(pair).decode('ascii')}"
