"""The client that sends the proxy's requests: connections of its own to the servers, and an HTTP library's client."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import anyio

from promptools.proxy.upstream.direct_client import (
    DirectClient,
    DirectRequest,
    can_send_directly,
    send_with_library,
)
from promptools.proxy.upstream.key_masking import mask_error
from promptools.transport import AsyncDriver, installed_library, library_of
from promptools.transport.driver import capped_timeouts

if TYPE_CHECKING:
    from promptools.exchange import Exchange
    from promptools.proxy.upstream.http1_connection import StreamedBody
    from promptools.transport.http_library import HttpLibrary

READ_TIMEOUT = 600.0
"""Maximum number of seconds between two pieces of a response, as in the OpenAI SDK: a long prompt takes long."""
CONNECT_TIMEOUT = 10.0


class UpstreamClient:
    """Sends requests to all servers: with a `DirectClient`, or with the caller's `http` if there is one.

    An HTTP library's client is made on first use in any case: it knows the environment's settings and certificates.
    """

    def __init__(self, http: Any = None) -> None:
        self._http = http
        self._owns_http = http is None
        self._direct: DirectClient | None = None
        self.library: HttpLibrary = installed_library() if http is None else library_of(http)
        """The HTTP library, with its errors."""

    @property
    def http(self) -> Any:
        """The HTTP client."""
        if self._http is None:
            module = self.library.module
            self._http = module.AsyncClient(
                cookies=CookieJar(
                    DefaultCookiePolicy(allowed_domains=())
                ),  # stores no cookies: they belong to the clients
                timeout=module.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
                limits=module.Limits(max_connections=None, max_keepalive_connections=0),
            )
            self._direct = DirectClient(self._http) if can_send_directly() else None
        return self._http

    @property
    def direct(self) -> DirectClient | None:
        """The client of the proxy's own connections, where they are possible."""
        return self._direct

    @property
    def extensions(self) -> dict[str, Any]:
        """The extensions of each request: its timeouts."""
        return {"timeout": self.http.timeout.as_dict()}

    def extensions_within(self, seconds: float | None) -> dict[str, Any]:
        """Return the extensions of a request whose server may be silent for `seconds` only; None: as long as any."""
        extensions = self.extensions
        return extensions if seconds is None else {"timeout": capped_timeouts(extensions["timeout"], seconds)}

    def build_request(
        self,
        method: str,
        url: str,
        fields: list[tuple[bytes, bytes]],
        content: bytes | StreamedBody,
        timeout: float | None = None,
    ) -> Any:
        """Build a request whose server may be silent for `timeout` seconds only; None: for as long as any."""
        library = self.library if self._direct is None else self._direct.library
        request = DirectRequest(library, method, url, fields, content, self.extensions_within(timeout))
        return request if self._direct is not None else request.for_library()

    def driver(
        self, exchange: Exchange, client_authorization: str | None, owner: bytes = b"", **options: Any
    ) -> AsyncDriver:
        """Return a driver that sends an exchange's requests here."""

        async def send(request: Any) -> Any:
            return await self.send(request, client_authorization=client_authorization, owner=owner)

        extensions = self.extensions
        library = self.library if self._direct is None else self._direct.library
        return AsyncDriver(exchange, library, send, extensions=extensions, **options)

    async def run_probe(self, exchange: Exchange) -> None:
        """Run an exchange that emits nothing."""
        await self.driver(exchange, None).head()

    async def send(self, request: Any, *, client_authorization: str | None, owner: bytes = b"") -> Any:
        """Send a request without following redirects: the HTTP library would send keys and the prompt to any host.

        It goes over no connection that carries the requests of another `owner`. A key other than the client's
        `client_authorization` is masked in an error response.
        """
        http = self.http
        if self._direct is not None:
            response = await self._direct.send(request, owner)
        else:
            response = await send_with_library(http, request)
        sent: str | None = request.headers.get("authorization")
        return response if sent in {None, client_authorization} else mask_error(response, self.library, str(sent))

    async def status_of(self, url: str, fields: list[tuple[bytes, bytes]], timeout: float) -> int | None:
        """Return the status of the response to a GET request; None if there is none."""
        http = self.http  # decides which client sends
        request = self.build_request("GET", url, fields, b"", timeout)
        try:
            response = await self.send(request, client_authorization=None)
        except library_of(http).module.RequestError:
            return None
        with anyio.CancelScope(shield=True):
            await response.aclose()
        status: int = response.status_code
        return status

    async def aclose(self) -> None:
        """Close the connections to the servers, unless the HTTP client is the caller's."""
        http, self._http = self._http, None if self._owns_http else self._http
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        if http is not None and self._owns_http:
            await http.aclose()
