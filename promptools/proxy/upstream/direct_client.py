"""The client that sends the requests of exchanges: connections of its own to each server, and httpx where it must.

It needs asyncio and httptools. Elsewhere, and for a server that the environment's settings (`HTTPS_PROXY`) put beyond a
proxy, httpx sends the requests. TLS uses httpx's context, so certificates come from the same places.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from promptools.transport.driver.http_library import HttpLibrary, encode_headers, library_of

if TYPE_CHECKING:
    from promptools.exchange import Headers
    from promptools.proxy.upstream.http1_connection import Http1Connection

KEEP_ALIVE_SECONDS = 4.0
"""Seconds for which an idle connection is kept; uvicorn, llama.cpp and Node close one after five."""
MAX_IDLE = 100
"""Maximum number of idle connections to one server."""
MAX_CACHED_URLS = 256
"""Maximum number of URLs whose parts are cached; parsing one takes longer than sending the request."""
MAX_CACHED_URL_LENGTH = 1024
LARGE_BODY = 1 << 16
"""Bytes from which a body is not copied to be sent in one piece with its head."""
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_PORTS = {"http": 80, "https": 443}


class DirectRequest:
    """A request: what the driver needs of one of httpx."""

    def __init__(
        self,
        library: HttpLibrary,
        method: str,
        url: str,
        fields: list[tuple[bytes, bytes]],
        body: bytes,
        extensions: Any,
    ) -> None:
        from promptools.proxy.upstream.http1_connection import Fields

        self.method = method
        self.address = url
        self.headers = Fields(fields)
        self.content = body
        self.extensions = extensions
        self._library = library

    @cached_property
    def url(self) -> Any:
        """The URL, as the HTTP library parses it."""
        return self._library.module.URL(self.address)


class DirectLibrary(HttpLibrary):
    """An HTTP library whose requests are `DirectRequest`s."""

    __slots__ = ()

    def build_request(self, method: str, url: Any, headers: Headers, body: bytes, extensions: Any) -> Any:
        """Build a request, with its whole body."""
        return DirectRequest(self, method, str(url), encode_headers(headers), body, extensions)


@dataclass(slots=True, eq=False)
class _UpstreamServer:
    """A server and its idle connections, the one that was used last at the end."""

    scheme: str
    host: str
    port: int
    via_proxy: bool
    """Whether the environment puts a proxy before it."""
    idle: deque[Http1Connection] = field(default_factory=deque["Http1Connection"])


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a URL leads, and what goes into the head of its requests."""

    server: _UpstreamServer
    path: bytes
    host_field: bytes


class DirectClient:
    """Sends requests with whole bodies over HTTP/1.1; follows no redirects, and stores no cookies."""

    def __init__(self, http: Any) -> None:
        library = library_of(http)
        self.library = DirectLibrary(library.name, library.module)
        self._http = http
        self._targets: dict[str, _Target] = {}
        self._servers: dict[tuple[str, str, int], _UpstreamServer] = {}
        self._tls: ssl.SSLContext | None = None

    async def send(self, request: Any) -> Any:
        """Send a request; return the response once its head has arrived. Raises the HTTP library's errors."""
        if not isinstance(request, DirectRequest):
            return await self._http.send(request, stream=True, follow_redirects=False)
        target = self._targets.get(request.address) or self._locate(request.address)
        if target.server.via_proxy:
            build = self.library.module.Request
            fields, body, extensions = request.headers.raw, request.content, request.extensions
            sent = build(request.method, request.address, headers=fields, content=body, extensions=extensions)
            return await self._http.send(sent, stream=True, follow_redirects=False)
        data = self._encode(request, target)
        timeouts: dict[str, float | None] = request.extensions.get("timeout") or {}
        connection = self._idle_connection(target.server)
        trace = request.extensions.get("trace")
        if connection is None:
            connection = await self._connect(target.server, timeouts.get("connect"))
            if trace is not None:
                await trace("connection.connect_tcp.complete", {})
        elif trace is not None:
            await trace("http11.send_request_headers.started", {})
        return await connection.send(data, self.library.module, timeouts.get("read"))

    def close(self) -> None:
        """Close the idle connections."""
        for server in self._servers.values():
            for connection in tuple(server.idle):
                connection.close()
            server.idle.clear()

    def _locate(self, address: str) -> _Target:
        """Parse a URL as the HTTP library does; raise its `InvalidURL` or `UnsupportedProtocol`."""
        module = self.library.module
        url = module.URL(address)
        if url.scheme not in _PORTS or not url.host:
            raise module.UnsupportedProtocol(f"the URL {url.scheme}://{url.host} is none of http or https")
        key = (url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
        server = self._servers.get(key)
        if server is None:
            direct = self._http._transport_for_url(url) is self._http.__dict__["_transport"]  # noqa: SLF001 - as in the interceptor
            server = self._servers[key] = _UpstreamServer(*key, via_proxy=not direct)
        target = _Target(server, url.raw_path, url.netloc)
        if len(address) <= MAX_CACHED_URL_LENGTH:
            if len(self._targets) >= MAX_CACHED_URLS:
                self._targets.clear()
            self._targets[address] = target
        return target

    def _encode(self, request: DirectRequest, target: _Target) -> list[bytes]:
        """Return the request's bytes; raise `LocalProtocolError` for a field that would end before its line does."""
        body = request.content
        lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), target.path), b"Host: " + target.host_field]
        lines += [b"%b: %b" % pair for pair in request.headers.raw if pair[0].lower() != b"host"]
        if body or request.method in _METHODS_WITH_BODY:
            lines.append(b"Content-Length: %d" % len(body))
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            raise self.library.module.LocalProtocolError("a header field holds a line break or a null character")
        head += b"\r\n\r\n"
        return [head, body] if len(body) > LARGE_BODY else [head + body]

    def _idle_connection(self, server: _UpstreamServer) -> Http1Connection | None:
        """Return the connection that was used last, if it is still usable; close those that have been idle too long."""
        loop = asyncio.get_running_loop()
        until = loop.time() - KEEP_ALIVE_SECONDS
        while server.idle and (server.idle[0].loop is not loop or server.idle[0].idle_since < until):
            expired = server.idle.popleft()
            if expired.loop is loop:
                expired.close()
        while server.idle:
            connection = server.idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _connect(self, server: _UpstreamServer, timeout: float | None) -> Http1Connection:
        from promptools.proxy.upstream.http1_connection import Http1Connection

        module, loop = self.library.module, asyncio.get_running_loop()

        def on_idle(connection: Http1Connection) -> None:
            if len(server.idle) >= MAX_IDLE:
                connection.close()
                return
            connection.idle_since = loop.time()
            server.idle.append(connection)

        def on_lost(connection: Http1Connection) -> None:
            if connection in server.idle:
                server.idle.remove(connection)

        def build() -> Http1Connection:
            return Http1Connection(loop, on_idle, on_lost)

        tls = self._tls_context() if server.scheme == "https" else None
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(build, server.host, server.port, ssl=tls)
        except TimeoutError as error:
            raise module.ConnectTimeout(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            raise module.ConnectError(str(error)) from error
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            context: ssl.SSLContext = self.library.module.create_ssl_context()
            context.set_alpn_protocols(["http/1.1"])
            self._tls = context
        return self._tls


def can_send_directly() -> bool:
    """Whether `DirectClient` works here: on asyncio, with httptools."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return find_spec("httptools") is not None
