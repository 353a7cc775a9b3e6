"""The HTTP client that the proxy creates for itself."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from promptools.proxy.upstream.duplex import use_duplex_connections

if TYPE_CHECKING:
    from promptools.transport.driver.http_library import HttpLibrary

READ_TIMEOUT = 600.0
"""Maximum number of seconds between two pieces of a response, as in the OpenAI SDK: a long prompt takes long."""
CONNECT_TIMEOUT = 10.0


def create_client(library: HttpLibrary) -> Any:
    """Create a client that stores no cookies, since they belong to the clients of the proxy."""
    module = library.module
    client = module.AsyncClient(
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=module.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
        limits=module.Limits(max_connections=None, max_keepalive_connections=100),
    )
    use_duplex_connections(client, library)
    return client
