"""The client that sends the proxy's requests: over its own connections where possible, else with an HTTP library.

`UpstreamClient` sends requests to all servers, and masks keys in the responses. It contains a `DirectClient`, whose
connections are the proxy's own (`http1_connection`); they need asyncio and httptools. Without these two, and for
servers that are reached through an HTTP proxy (`HTTPS_PROXY`), httpx sends the requests, each over a new connection.
TLS uses httpx's context, and therefore the same certificates.

A connection carries the requests of one owner only: if a server sends data beyond a response, and the next request is
sent before the data is noticed, only the same user can get the data. Once a server has sent such data, each
request to it gets a new connection, for `DISTRUST_SECONDS`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from promptools.exchange.state import DEFAULT_PORTS
from promptools.proxy.header_fields import Fields
from promptools.proxy.key_masking import mask_error
from promptools.transport import AsyncDriver, installed_library, library_of
from promptools.transport.driver import capped_timeouts
from promptools.transport.http_library import HttpLibrary, encode_headers

if TYPE_CHECKING:
    from promptools.exchange import Exchange, Headers
    from promptools.proxy.http1_connection import Http1Connection, StreamedBody


# A time limit for work that waits for others. The time for which the event loop itself was blocked does not count.
#
# `asyncio.timeout` looks only at the clock. While the loop is blocked, the limit may pass before the loop looks at what
# has arrived: a server that answered at once would be reported as silent.


T = TypeVar("T")

_LOOKS = 20
"""Number of waits into which `within` divides its time limit.

If the event loop is blocked during one wait, what arrived in that time can be handled during the next wait.
"""


async def within(seconds: float | None, work: Coroutine[Any, Any, T], unused: Callable[[asyncio.Task[T]], object]) -> T:
    """Return the result of `work`; raise `TimeoutError` if it takes longer than `seconds`.

    Time in which the event loop was blocked does not count, since a result may then have arrived unnoticed.

    `work` runs in a separate task. If time is up, or the caller is cancelled, the separate task is cancelled. Once the
    task has ended, `unused` is called with the task, to clean up a result that nobody will use.
    """
    if seconds is None:
        return await work
    if seconds <= 0:
        work.close()
        raise TimeoutError
    task, is_taken = asyncio.ensure_future(work), False
    try:
        for _ in range(_LOOKS):
            await asyncio.wait({task}, timeout=seconds / _LOOKS)
            if task.done():
                is_taken = True
                return task.result()
    finally:
        if not is_taken:
            task.cancel()
            task.add_done_callback(unused)
    raise TimeoutError


# The proxy's own connections, and requests over connections that are not reused.


KEEP_ALIVE_SECONDS = 4.0
"""Seconds for which an idle connection is kept; uvicorn, llama.cpp and Node close idle connections after 5 s."""
MAX_IDLE = 100
"""Maximum number of idle connections to one server."""
MAX_CACHED_URLS = 256
"""Maximum number of URLs whose parts are cached, since parsing a URL takes longer than sending the request."""
MAX_CACHED_URL_LENGTH = 1024
LARGE_BODY = 1 << 16
"""Number of bytes above which a body is sent separately from the header, since joining the two would copy it."""
DISTRUST_SECONDS = 600.0
"""Seconds for which connections to a server are not reused after it has sent data beyond the end of a response."""
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Safe methods, whose requests may be sent twice (RFC 9110, section 9.2.1)."""
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD = re.compile(rb"%b [!-~]+ HTTP/1\.1(?:\r\n%b: [^\0\r\n]*)+" % (_TOKEN, _TOKEN))


class DirectRequest:
    """A request to a server, with the attributes of httpx's `Request` that are needed to send it."""

    def __init__(
        self,
        library: HttpLibrary,
        method: str,
        url: str,
        fields: list[tuple[bytes, bytes]],
        body: bytes | StreamedBody,
        extensions: Any,
    ) -> None:
        self.method = method
        self.address = url
        self.headers = Fields(fields)
        self.content = body
        self.extensions = extensions
        self._library = library

    @cached_property
    def url(self) -> Any:
        """The URL as parsed by the HTTP library."""
        return self._library.module.URL(self.address)

    def for_library(self) -> Any:
        """Return this request as a `Request` of the HTTP library."""
        module, body, fields = self._library.module, self.content, self.headers.raw
        if not isinstance(body, bytes) and body.length is not None:
            fields = [*fields, (b"content-length", b"%d" % body.length)]
        return module.Request(
            self.method, self.address, headers=fields, content=body or None, extensions=self.extensions
        )


class DirectLibrary(HttpLibrary):
    """The HTTP library, except that `build_request` returns a `DirectRequest`."""

    __slots__ = ()

    def build_request(self, method: str, url: Any, headers: Headers, body: bytes, extensions: Any) -> Any:
        """Build a request with its whole body."""
        return DirectRequest(self, method, str(url), encode_headers(headers), body, extensions)


@dataclass(slots=True, eq=False)
class _UpstreamServer:
    """A server, and the idle connections to it in the order of their last use."""

    scheme: str
    host: str
    port: int
    via_proxy: bool
    """Whether the environment configures an HTTP proxy for this server."""
    idle: deque[Http1Connection] = field(default_factory=deque["Http1Connection"])
    distrusted_until: float = 0.0
    """Time, by the event loop's clock, until which no connection is reused."""

    def drop(self, connection: Http1Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Remove an idle connection; close it unless it belongs to another event loop, which may have ended."""
        self.idle.remove(connection)
        if connection.loop is loop:
            connection.close()


@dataclass(frozen=True, slots=True)
class _Target:
    """The parts of a URL: its server, the path to request, and the value of the `Host` field."""

    server: _UpstreamServer
    path: bytes
    host_field: bytes


class DirectClient:
    """Sends requests over HTTP/1.1, without following redirects or storing cookies."""

    def __init__(self, http: Any) -> None:
        library = library_of(http)
        self.library = DirectLibrary(library.name, library.module)
        self._http = http
        self._targets: dict[str, _Target] = {}
        self._servers: dict[tuple[str, str, int], _UpstreamServer] = {}
        self._tls: ssl.SSLContext | None = None

    async def send(self, request: Any, owner: bytes = b"") -> Any:
        """Send a request; return the response once its header has arrived. Raises the HTTP library's errors.

        A request with a safe method and no body is sent again if the server had closed the idle connection that was
        used.
        """
        if not isinstance(request, DirectRequest):
            return await send_with_library(self._http, request)
        target = self._targets.get(request.address) or self._locate(request.address)
        if target.server.via_proxy:
            return await send_with_library(self._http, request.for_library())
        data = self._encode(request, target)
        streamed = None if isinstance(request.content, bytes) else request.content
        timeouts: dict[str, float | None] = request.extensions.get("timeout") or {}
        module = self.library.module
        while True:
            connection = await self._connection(request, target.server, owner)
            try:
                return await connection.send(data, module, timeouts, method=request.method, body=streamed)
            except module.RequestError:
                is_stale = connection.is_reused and connection.closed_unanswered
                if not is_stale or request.content or request.method not in _SAFE_METHODS:
                    raise

    async def _connection(self, request: DirectRequest, server: _UpstreamServer, owner: bytes) -> Http1Connection:
        """Return an idle or a new connection; tell the request's `trace` whether the connection is new."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout") or {}
        trace = request.extensions.get("trace")
        connection = self._idle_connection(server, owner)
        if connection is None:
            connection = await self._connect(server, timeouts.get("connect"))
            connection.owner = owner
            if trace is not None:
                await trace("connection.connect_tcp.complete", {})
        elif trace is not None:
            await trace("http11.send_request_headers.started", {})
        return connection

    def close(self) -> None:
        """Close the idle connections."""
        for server in self._servers.values():
            for connection in tuple(server.idle):
                connection.close()
            server.idle.clear()

    def _locate(self, address: str) -> _Target:
        """Return the parts of a URL; raise the HTTP library's `InvalidURL` or `UnsupportedProtocol` for a bad URL."""
        module = self.library.module
        url = module.URL(address)
        if url.scheme not in DEFAULT_PORTS or not url.host:
            raise module.UnsupportedProtocol(f"the URL {url.scheme}://{url.host} is neither http nor https")
        key = (url.scheme, url.raw_host.decode("ascii"), url.port or DEFAULT_PORTS[url.scheme])
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
        """Return the bytes of a request, except for a streamed body.

        Raises `LocalProtocolError` if the method or a field contains a line break or another forbidden character.
        """
        body = request.content
        lines = [b"%b %b HTTP/1.1" % (request.method.encode("latin-1"), target.path), b"Host: " + target.host_field]
        lines += [b"%b: %b" % pair for pair in request.headers.raw if pair[0].lower() != b"host"]
        if isinstance(body, bytes):
            if body or request.method in _METHODS_WITH_BODY:
                lines.append(b"Content-Length: %d" % len(body))
        elif body.length is None:
            lines.append(b"Transfer-Encoding: chunked")
        else:
            lines.append(b"Content-Length: %d" % body.length)
        head = b"\r\n".join(lines)
        if not _HEAD.fullmatch(head) or head.count(b"\n") != len(lines) - 1:
            raise self.library.module.LocalProtocolError(
                "the method or a header field contains characters that HTTP does not allow"
            )
        head += b"\r\n\r\n"
        if not isinstance(body, bytes):
            return [head]
        return [head, body] if len(body) > LARGE_BODY else [head + body]

    def _idle_connection(self, server: _UpstreamServer, owner: bytes) -> Http1Connection | None:
        """Return the owner's most recently used idle connection, or None; close connections that were idle too long."""
        loop = asyncio.get_running_loop()
        until = loop.time() - KEEP_ALIVE_SECONDS
        while server.idle and (server.idle[0].loop is not loop or server.idle[0].idle_since < until):
            server.drop(server.idle[0], loop)
        for connection in [idle for idle in reversed(server.idle) if idle.owner == owner]:
            server.idle.remove(connection)
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _connect(self, server: _UpstreamServer, timeout: float | None) -> Http1Connection:
        from promptools.proxy.http1_connection import Http1Connection

        module, loop = self.library.module, asyncio.get_running_loop()

        def on_idle(connection: Http1Connection) -> None:
            connection.idle_since = loop.time()
            if connection.idle_since < server.distrusted_until:
                connection.close()
                return
            if len(server.idle) >= MAX_IDLE:
                server.drop(server.idle[0], loop)
            server.idle.append(connection)

        def on_lost(connection: Http1Connection) -> None:
            if connection in server.idle:
                server.idle.remove(connection)

        def on_surplus() -> None:
            server.distrusted_until = loop.time() + DISTRUST_SECONDS
            for connection in tuple(server.idle):
                server.drop(connection, loop)

        def build() -> Http1Connection:
            return Http1Connection(loop, on_idle, on_lost, on_surplus)

        tls = self._tls_context() if server.scheme == "https" else None
        connecting = loop.create_connection(build, server.host, server.port, ssl=tls)
        try:
            _, connection = await within(timeout, connecting, _close_unused)
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


def _close_unused(connecting: asyncio.Task[tuple[asyncio.Transport, Http1Connection]]) -> None:
    """Close a connection that was made too late: its request was cancelled or timed out."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[1].close()


async def send_with_library(http: Any, request: Any) -> Any:
    """Send a request with an HTTP library's client, over a connection that is not reused.

    If the connection were reused, httpx and httpx2 would treat data after the end of a response as the answer to the
    next request. HTTP/2 is not affected, because each of its frames belongs to one request.
    """
    pool = getattr(http._transport_for_url(request.url), "_pool", None)  # noqa: SLF001 - as in the interceptor
    if not getattr(pool, "_http2", False):
        request.headers["connection"] = "close"
    return await http.send(request, stream=True, follow_redirects=False)


def can_send_directly() -> bool:
    """Return whether `DirectClient` can be used: the event loop is asyncio's, and httptools is installed."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return find_spec("httptools") is not None


# The client for all servers.


READ_TIMEOUT = 600.0
"""Maximum number of seconds between two pieces of a response, as in the OpenAI SDK, since long prompts take time."""
CONNECT_TIMEOUT = 10.0


class UpstreamClient:
    """Sends requests to all servers: with a `DirectClient`, or with the caller's `http` if there is one.

    Without `http`, a client of the HTTP library is made on first use. The `DirectClient` needs that client too, since
    it knows the proxies and certificates that the environment configures.
    """

    def __init__(self, http: Any = None) -> None:
        self._http = http
        self._owns_http = http is None
        self._direct: DirectClient | None = None
        self.library: HttpLibrary = installed_library() if http is None else library_of(http)
        """The HTTP library (httpx or httpx2), whose errors this client raises."""

    @property
    def http(self) -> Any:
        """The client of the HTTP library; it is made on first use."""
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
        """The client with the proxy's own connections; None if it cannot be used, and before `http` is first used."""
        return self._direct

    @property
    def extensions(self) -> dict[str, Any]:
        """The `extensions` of an httpx request, with the usual timeouts."""
        return {"timeout": self.http.timeout.as_dict()}

    def extensions_within(self, seconds: float | None) -> dict[str, Any]:
        """Return `extensions` with timeouts that let the server be silent for `seconds`; None means the usual time."""
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
        """Build a request whose server may be silent for `timeout` seconds; None means the usual time."""
        library = self.library if self._direct is None else self._direct.library
        request = DirectRequest(library, method, url, fields, content, self.extensions_within(timeout))
        return request if self._direct is not None else request.for_library()

    def driver(
        self, exchange: Exchange, client_authorization: str | None, owner: bytes = b"", **options: Any
    ) -> AsyncDriver:
        """Return a driver, which runs an exchange and sends its requests with this client."""

        async def send(request: Any) -> Any:
            return await self.send(request, client_authorization=client_authorization, owner=owner)

        extensions = self.extensions
        library = self.library if self._direct is None else self._direct.library
        return AsyncDriver(exchange, library, send, extensions=extensions, **options)

    async def run_probe(self, exchange: Exchange) -> None:
        """Run an exchange that sends requests but has no response for a client."""
        await self.driver(exchange, None).head()

    async def send(self, request: Any, *, client_authorization: str | None, owner: bytes = b"") -> Any:
        """Send a request without following redirects, which could send keys and the prompt to any host.

        The connection never carries requests of another `owner`. The request's key is masked in the response, except in
        a model's answer (see `mask_error`). The client's own key, `client_authorization`, is not masked.
        """
        http = self.http
        if self._direct is not None:
            response = await self._direct.send(request, owner)
        else:
            response = await send_with_library(http, request)
        sent: str | None = request.headers.get("authorization")
        return response if sent in {None, client_authorization} else mask_error(response, self.library, str(sent))

    async def status_of(self, url: str, fields: list[tuple[bytes, bytes]], timeout: float) -> int | None:
        """Return the status of the response to a GET request; None if no response came."""
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
        """Close the connections to the servers; a client that the caller passed stays open."""
        http, self._http = self._http, None if self._owns_http else self._http
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        if http is not None and self._owns_http:
            await http.aclose()
