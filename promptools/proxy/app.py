"""The proxy: an ASGI application that any app, in any language, talks to as if it were the server."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Unpack

import anyio
from anyio.lowlevel import checkpoint

from promptools.errors import UsageError
from promptools.exchange import Request
from promptools.proxy.asgi import DisconnectedError, answer, read_body, start, travelling, until_gone
from promptools.transport import AsyncPump, Session, Settings, family_of, guarded, installed
from promptools.transport.doors import CHAT_DOOR
from promptools.wire.chunks import error_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.proxy.asgi import Receive, Scope, Send

log = logging.getLogger("promptools")
VERSION = "/v1"
CHAT = CHAT_DOOR.path
OURS = frozenset({CHAT, VERSION + CHAT})
"""The paths of chat completions (clients may leave /v1 out); one elsewhere on the server is asked there."""
TIMEOUT = 600.0
"""Seconds between two pieces of an answer, as in the OpenAI SDK: a long prompt takes long to read."""
CONNECT = 10.0

OWN = frozenset({b"host", b"content-length", b"expect"})
"""Said anew for the server by the HTTP library."""
KEYS = frozenset({b"authorization", b"x-api-key", b"api-key"})


class Proxy:
    """An ASGI application before one server: chat completions go through exchanges, all else passes byte for byte.

    It stands before `base_url`, or the config's provider (`provider=`, else the default one); `UsageError` when neither
    says where that is. The client's own authorisation passes through unless the provider has a key. `http_client` (an
    httpx or httpx2 `AsyncClient`) carries the requests and stays the caller's to close.
    """

    def __init__(self, *, base_url: str | None = None, http_client: Any = None, **settings: Unpack[Settings]) -> None:
        session = Session(settings)
        target = session.target(None, base_url=base_url, provider=session.provider)
        if target.base_url is None:
            raise UsageError(
                "the proxy does not know its server: give base_url=, provider=, or a config with a provider"
            )
        self.session = session.changed({"provider": target.provider}) if target.provider else session
        self.base_url = target.base_url.rstrip("/")
        self.target = target
        self._key = session.key(target)
        self._http = http_client
        self._owned = http_client is None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection, as ASGI asks."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def aclose(self) -> None:
        """Close the connections to the server, unless the HTTP client was handed in."""
        http, self._http = self._http, None if self._owned else self._http
        if http is not None and self._owned:
            await http.aclose()

    @property
    def http(self) -> Any:
        """Give the HTTP client, made on first use."""
        if self._http is None:
            module = installed().module
            self._http = module.AsyncClient(
                timeout=module.Timeout(TIMEOUT, connect=CONNECT),
                limits=module.Limits(max_connections=None, max_keepalive_connections=100),
            )
        return self._http

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request while watching for the client to leave, which closes the upstream at once."""
        try:
            body = await read_body(receive)
        except DisconnectedError:
            return
        work = self._chat if CHAT_DOOR.takes(scope["method"], scope["path"]) else self._pass
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await until_gone(receive)
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._mapped(work, scope, body, send)
            tasks.cancel_scope.cancel()

    async def _mapped(self, work: Callable[..., Awaitable[None]], scope: Scope, body: bytes, send: Send) -> None:
        """Do the work; where the server cannot be reached and nothing has gone out yet, say so over HTTP."""
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)
            await checkpoint()  # pieces that came together: between two of them the client may have left

        module = family_of(self.http).module
        try:
            await work(scope, body, watched)
        except module.RequestError as error:
            if begun:
                log.warning("the answer broke off: %s", error)
                raise
            status = 504 if isinstance(error, module.TimeoutException) else 502
            await answer(send, status, [(b"content-type", b"application/json")], self._unreached(error))

    def _unreached(self, error: Exception) -> bytes:
        message = f"no answer from {self.base_url}: {str(error) or type(error).__name__}"
        return json.dumps(error_body(message, kind="UpstreamError", code="no_answer")).encode()

    async def _chat(self, scope: Scope, body: bytes, send: Send) -> None:
        """Run an exchange and hand on what it emits."""
        fields = [pair for pair in self._fields(scope) if pair[0].lower() != b"accept-encoding"]
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)
        exchange = guarded(self.session(Request("POST", self._url(scope), headers, body)))
        extensions = {"timeout": self.http.timeout.as_dict()}
        pump = AsyncPump(exchange, family_of(self.http), self._follow, self._stay, extensions=extensions)
        head = await pump.head()
        assert head is not None, "an exchange of chat completions answers"
        try:
            await start(
                send, head.status, [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
            )
            async for piece in pump.body():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await pump.close()
        await send({"type": "http.response.body", "body": b""})

    async def _pass(self, scope: Scope, body: bytes, send: Send) -> None:
        """Pass a request and its answer byte for byte."""
        module = family_of(self.http).module
        extensions = {"timeout": self.http.timeout.as_dict()}
        request = module.Request(
            scope["method"], self._url(scope), headers=self._fields(scope), content=body or None, extensions=extensions
        )
        response = await self._send(request)
        try:
            await start(send, response.status_code, travelling(response.headers.raw))
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, request: Any) -> Any:
        return await self.http.send(request, stream=True)

    async def _follow(self, request: Any) -> Any:
        """Send, and follow where the server points: the client must not be led past the proxy."""
        return await self.http.send(request, stream=True, follow_redirects=True)

    async def _stay(self, request: Any) -> Any:
        """Send, and stay where the request goes: a server that points elsewhere tells nothing about itself."""
        return await self.http.send(request, stream=True, follow_redirects=False)

    def _url(self, scope: Scope) -> str:
        """Map a path: what stands below /v1 goes below `base_url`, all else below its root."""
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
        path = path.removeprefix(scope.get("root_path", ""))
        if path.rstrip("/") in OURS:
            return _with_query(self.base_url + CHAT, scope)
        if path == VERSION or path.startswith(f"{VERSION}/"):
            return _with_query(self.base_url + path.removeprefix(VERSION), scope)
        return _with_query(self.base_url.removesuffix(VERSION) + path, scope)

    def _fields(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Give the client's fields as they travel on, with the provider's key where there is one."""
        fields = [pair for pair in travelling(scope["headers"]) if pair[0].lower() not in OWN]
        if self._key is None:
            return fields
        kept = [pair for pair in fields if pair[0].lower() not in KEYS]
        return [*kept, (b"authorization", b"Bearer " + self._key.encode())]


def _with_query(url: str, scope: Scope) -> str:
    query: str = scope.get("query_string", b"").decode("latin-1")
    return f"{url}?{query}" if query else url
