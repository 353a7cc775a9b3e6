"""The proxy: an ASGI application that apps in any language use as if it were the server."""

from __future__ import annotations

import logging
import os
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import checkpoint

from promptools.errors import UsageError, without_credentials
from promptools.exchange import Request
from promptools.exchange.downstream.client_api import CHAT_API, ClientApi
from promptools.proxy.admission.access import KEY_FIELDS, AccessControl
from promptools.proxy.asgi import DisconnectedError, RefusedError, end_to_end_fields, send_head, send_response
from promptools.proxy.extension import Extension, ExtensionRoutes
from promptools.proxy.relay import ExchangeRelay
from promptools.proxy.request_body import RequestBody, check_framing, streaming_body
from promptools.proxy.upstream.duplex import use_duplex_connections
from promptools.proxy.upstream.key_masking import mask_error
from promptools.proxy.upstream.upstream_url import parse_base_url, read_request_target
from promptools.transport import AsyncDriver, Session, Settings, installed_library, library_of, with_error_boundary
from promptools.transport.driver.response_content import supported_encodings
from promptools.transport.endpoints import PROXY_ENDPOINTS, Endpoint, find_endpoint
from promptools.transport.observers import as_observers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from anyio.abc import TaskGroup

    from promptools.exchange import Observer
    from promptools.proxy.asgi import Message, Receive, Scope, Send
    from promptools.transport.endpoints import Endpoint

log = logging.getLogger("promptools")
READ_TIMEOUT = 600.0
"""Maximum number of seconds between two pieces of a response, as in the OpenAI SDK: a long prompt takes long."""
CONNECT_TIMEOUT = 10.0
MAX_BODY = 64 * 2**20
"""Maximum size of a body that is read in bytes, as those of chat completions are; it is held in memory."""
MAX_TOOLS = 4096
"""Maximum number of tools in one request, unless `max_tools` is set."""
API_KEY_VARIABLE = "PROMPTOOLS_API_KEY"
"""Environment variable with the API keys that the proxy accepts, separated by blanks or commas."""

LIBRARY_FIELDS = frozenset({b"host", b"content-length", b"expect"})
"""Fields that the HTTP library sets itself for the server."""
ACCOUNT_FIELDS = frozenset({b"openai-organization", b"openai-project"})
"""Fields that name the account that pays; they belong to the client's own key."""
ACCEPT_ENCODING = b"accept-encoding"
JSON_CONTENT_TYPE = (b"content-type", b"application/json")


class Proxy:
    """An ASGI application in front of one server: the APIs that it serves go through exchanges, all else passes.

    The server is at `base_url`, or is the config's provider (`provider=`, else the default one); raises `UsageError` if
    neither has an address. `http_client` (an httpx or httpx2 `AsyncClient`) sends the requests; the caller closes it.

    With `api_keys`, to which those of the config and of PROMPTOOLS_API_KEY are added, only requests with one of them
    are accepted. The client's own authorization is forwarded only if neither the proxy nor the provider has a key.
    Without keys, a request over loopback must name a loopback host, or one of `allowed_hosts` ("*": any). `max_body`
    limits the bodies that are read, in bytes; all others are streamed without a limit. `extensions` follow the
    exchanges, or serve pages of their own.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        http_client: Any = None,
        api_keys: Iterable[str] | str = (),
        allowed_hosts: Iterable[str] | str = (),
        max_body: int | None = None,
        extensions: Sequence[Extension] = (),
        **settings: Unpack[Settings],
    ) -> None:
        observers = [extension.observer for extension in extensions if extension.observer is not None]
        session = Session({"max_tools": MAX_TOOLS, **settings, "observer": _observers(settings, observers)})
        target = session.resolve_target(None, base_url=base_url, provider=session.provider)
        if target.base_url is None:
            raise UsageError(
                "the proxy does not know its server: pass base_url=, provider=, or a config with a default provider"
            )
        options = session.config.proxy
        changes = {"allow_provider": settings.get("allow_provider", options.allow_provider)}
        self.session = session.with_settings(changes | ({"provider": target.provider} if target.provider else {}))
        self._http = http_client
        self._owns_http = http_client is None
        self.target = target
        family = installed_library() if http_client is None else library_of(http_client)
        self.upstream = parse_base_url(target.base_url, family.module)
        self._host = urlsplit(self.upstream.base_url).hostname or ""
        self.max_body = next(limit for limit in (max_body, options.max_body, MAX_BODY) if limit is not None)
        if self.max_body < 1:
            raise UsageError(f"max_body must be 1 byte or more, not {self.max_body}")
        key = session.find_key(target)
        self.authorization: str | None = self.upstream.authorization or (f"Bearer {key}" if key else None)
        self.access = AccessControl(
            [*_as_values(api_keys), *_environment_keys(options.api_key_env)],
            [*_as_values(allowed_hosts), *options.allowed_hosts],
            has_provider_key=self.authorization is not None,
        )
        self.extensions = tuple(extensions)
        self._extension_routes = ExtensionRoutes(self, self.extensions)

    @property
    def base_url(self) -> str:
        """The server's base URL, without credentials."""
        return self.upstream.base_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            if self._extension_routes.match(scope["path"]):
                await self._serve_extension(scope, receive, send)
            else:
                await self._handle_request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def aclose(self) -> None:
        """Close the connections to the server, unless the HTTP client is the caller's."""
        http, self._http = self._http, None if self._owns_http else self._http
        if http is not None and self._owns_http:
            await http.aclose()

    @property
    def http(self) -> Any:
        """The HTTP client, created on first use."""
        if self._http is None:
            family = installed_library()
            module = family.module
            self._http = module.AsyncClient(
                cookies=CookieJar(
                    DefaultCookiePolicy(allowed_domains=())
                ),  # stores no cookies: they belong to the clients
                timeout=module.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
                limits=module.Limits(max_connections=None, max_keepalive_connections=100),
            )
            use_duplex_connections(self._http, family)
        return self._http

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                for extension in self.extensions:
                    await extension.start(self)
            if message["type"] == "lifespan.shutdown":
                for extension in self.extensions:
                    await extension.stop()
                await self.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _serve_extension(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page of an extension, to those who may use the proxy."""
        try:
            if not self._extension_routes.is_public(scope["path"]):
                self.access.check(scope)
        except RefusedError as error:
            await send_refusal(send, error, CHAT_API)
            return
        await self._extension_routes.app(scope, receive, send)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and close its upstream at once when the client disconnects."""
        body = RequestBody(scope, receive)
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await body.wait_for_disconnect()
                tasks.cancel_scope.cancel()

            async def lasting(message: Message) -> None:
                last = message["type"] == "http.response.body" and not message.get("more_body", False)
                await (body.send_last(send, message) if last else send(message))

            tasks.start_soon(watch)
            await self._route_request(scope, body, tasks, lasting)
            tasks.cancel_scope.cancel()

    async def _route_request(self, scope: Scope, body: RequestBody, tasks: TaskGroup, send: Send) -> None:
        """Route a request; respond with an error if it is refused, and not at all if the client disconnects early."""
        endpoint = find_endpoint(PROXY_ENDPOINTS, scope["method"], scope["path"], self._host)
        api = CHAT_API if endpoint is None else endpoint.api
        try:
            path, url = self._locate(scope)
            endpoint = find_endpoint(PROXY_ENDPOINTS, scope["method"], path, self._host)
            if endpoint is not None:
                work = partial(self._run_exchange, scope, url, endpoint, body, tasks)
            else:
                work = partial(self._pass_through, scope, url, body)
            await self._with_error_responses(work, send, api)
        except RefusedError as error:
            await send_refusal(send, error, api)
        except DisconnectedError:
            return

    def _locate(self, scope: Scope) -> tuple[str, str]:
        """Return the path of a request and its upstream URL; raise `RefusedError` if the request is refused."""
        path, query = read_request_target(scope, self.access.check(scope))
        check_framing(scope)
        return path, self.upstream.url(path, query)

    async def _with_error_responses(self, work: Callable[[Send], Awaitable[None]], send: Send, api: ClientApi) -> None:
        """Run `work`; if the server cannot be reached and nothing was sent yet, respond with 502, 504 or 414."""
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)
            await checkpoint()  # pieces that arrived together: the client may disconnect between two of them

        module = library_of(self.http).module
        try:
            await work(watched)
        except module.RequestError as error:
            if begun:
                log.warning("promptools: the answer from %s broke off: %s", self.base_url, _error_text(error))
                raise
            status = 504 if isinstance(error, module.TimeoutException) else 502
            message = f"no answer from {self.base_url}: {_error_text(error)}"
            answer = api.encode_error(message, kind="UpstreamError", code="no_answer")
            await send_response(send, status, [JSON_CONTENT_TYPE], answer)
        except module.InvalidURL as error:  # an ASGI server accepts longer targets than the HTTP library
            refusal = RefusedError(414, f"the request target is refused: {error}", code="bad_target")
            await send_refusal(send, refusal, api)

    async def _run_exchange(
        self, scope: Scope, url: str, endpoint: Endpoint, body: RequestBody, tasks: TaskGroup, send: Send
    ) -> None:
        """Run an exchange and relay what it emits; its clock ticks in another task of the group.

        If it leaves the request to the server, which it decides before it reads the body, that is forwarded.
        """
        read_body = partial(body.read, self.max_body)
        fields = [pair for pair in self._forwarded_fields(scope) if pair[0].lower() != ACCEPT_ENCODING]
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)
        request = Request(scope["method"], url, headers, b"" if endpoint.may_decline else await read_body())
        exchange = with_error_boundary(self.session(request, endpoint), endpoint.api, may_decline=endpoint.may_decline)
        extensions = {"timeout": self.http.timeout.as_dict()}
        send_upstream = partial(self._send, client_authorization=self._client_authorization(fields))
        driver = AsyncDriver(exchange, library_of(self.http), send_upstream, extensions=extensions, read_body=read_body)
        relay = ExchangeRelay(driver, send)
        tasks.start_soon(relay.tick)
        try:
            await relay.run()
        finally:
            await driver.close()
        if relay.has_begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._pass_through(scope, url, body, send)

    async def _pass_through(self, scope: Scope, url: str, body: RequestBody, send: Send) -> None:
        """Forward a request and its response byte for byte, both bodies streamed."""
        module = library_of(self.http).module
        extensions = {"timeout": self.http.timeout.as_dict()}
        fields = self._forwarded_fields(scope)
        if body.length is not None:
            fields.append((b"content-length", str(body.length).encode()))
        content = await body.for_http_library()
        request = module.Request(scope["method"], url, headers=fields, content=content, extensions=extensions)
        with streaming_body(body):
            response = await self._send(request, client_authorization=self._client_authorization(fields))
        try:
            await send_head(send, response.status_code, end_to_end_fields(response.headers.raw))
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, request: Any, *, client_authorization: str | None) -> Any:
        """Send a request without following redirects: the HTTP library would send keys and the prompt to any host.

        A key other than the client's `client_authorization` is masked in an error response.
        """
        response = await self.http.send(request, stream=True, follow_redirects=False)
        sent: str | None = request.headers.get("authorization")
        return (
            response if sent in {None, client_authorization} else mask_error(response, library_of(self.http), str(sent))
        )

    def _client_authorization(self, fields: list[tuple[bytes, bytes]]) -> str | None:
        """Return the client's own authorization, if it is forwarded."""
        values = (value.decode("latin-1") for name, value in fields if name.lower() == b"authorization")
        return next(values, None) if self.authorization is None else None

    def _forwarded_fields(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return the fields to forward; the client's keys are replaced if the provider or the proxy has any."""
        fields = [pair for pair in end_to_end_fields(scope["headers"]) if pair[0].lower() not in LIBRARY_FIELDS]
        if self.authorization is None and not self.access.requires_key:
            return fields
        forwarded = [
            (
                name,
                supported_encodings(value.decode("latin-1")).encode("latin-1")
                if name.lower() == ACCEPT_ENCODING
                else value,
            )
            for name, value in fields
            if name.lower() not in KEY_FIELDS | ACCOUNT_FIELDS
        ]
        return [*forwarded, *([(b"authorization", self.authorization.encode())] if self.authorization else [])]


def _observers(settings: Settings, extensions: list[Observer]) -> list[Observer]:
    """Return the observers of the settings, then those of the extensions."""
    return [*as_observers(settings.get("observer")), *extensions]


def _error_text(error: Exception) -> str:
    return without_credentials(str(error)) or type(error).__name__


def _as_values(values: Iterable[str] | str) -> Iterable[str]:
    """Return the values; a string is a single one."""
    return [values] if isinstance(values, str) else values


def _environment_keys(variable: str | None) -> list[str]:
    """Read the API keys from the environment; raise `UsageError` if the config's variable holds none."""
    named = os.environ.get(variable, "").replace(",", " ").split() if variable else []
    if variable and not named:
        raise UsageError(
            f"[proxy] api_key_env: the environment variable {variable!r} is not set; set it to the API keys"
        )
    return [*named, *os.environ.get(API_KEY_VARIABLE, "").replace(",", " ").split()]


async def send_refusal(send: Send, error: RefusedError, api: ClientApi) -> None:
    """Send the error response for a refused request."""
    body = api.encode_error(str(error), kind=error.kind, code=error.code)
    headers = [JSON_CONTENT_TYPE, (b"x-should-retry", b"false"), *error.headers]
    await send_response(send, error.status, headers, body)
