"""The proxy: an ASGI application that apps in any language use as if it were the server."""

from __future__ import annotations

import logging
import os
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio
from anyio.lowlevel import checkpoint

from promptools.errors import without_credentials
from promptools.exchange import Request
from promptools.exchange.downstream.client_api import CHAT_API, ClientApi
from promptools.exchange.downstream.responses.response_store import owner_of
from promptools.proxy import relay
from promptools.proxy.admission.admission import Admission
from promptools.proxy.admission.api_keys import ApiKey
from promptools.proxy.admission.cors import with_cors
from promptools.proxy.admission.limits import Limits, check_header
from promptools.proxy.asgi import (
    JSON_CONTENT_TYPE,
    DisconnectedError,
    RefusedError,
    end_to_end_fields,
    retry_fields,
    send_head,
    send_refusal,
    send_response,
)
from promptools.proxy.extension import Extension, ExtensionRoutes, run_lifespan
from promptools.proxy.in_flight import RequestInFlight, RequestsInFlight
from promptools.proxy.request_body import RequestBody, check_framing, has_json_body, streaming_body
from promptools.proxy.request_tasks import RequestTasks, request_tasks
from promptools.proxy.routing.model_directory import is_model_list
from promptools.proxy.routing.request_router import open_router
from promptools.proxy.served_config import (
    ProxyArguments,
    ServedConfig,
    ServedProperties,
    as_values,
    forget_changed,
    serve_config,
)
from promptools.proxy.shared_state.shared_state import SharedState
from promptools.proxy.upstream.direct_client import DirectClient, can_send_directly
from promptools.proxy.upstream.duplex import use_duplex_connections
from promptools.proxy.upstream.forwarded_fields import (
    ACCEPT_ENCODING,
    client_authorization,
    decode_fields,
    forwarded_fields,
    replace_fields,
)
from promptools.proxy.upstream.key_masking import mask_error
from promptools.proxy.upstream.upstream_url import read_request_target, route_path
from promptools.transport import AsyncDriver, Session, Settings, installed_library, library_of, with_error_boundary
from promptools.transport.endpoints import PROXY_ENDPOINTS, RESPONSES_ENDPOINTS, Endpoint, find_endpoint
from promptools.transport.observers import as_observers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from promptools.exchange import Exchange, Observer
    from promptools.profiles import Config
    from promptools.proxy.asgi import Message, Receive, Scope, Send
    from promptools.proxy.routing.request_router import RequestRouter

log = logging.getLogger("promptools")
READ_TIMEOUT = 600.0
"""Maximum number of seconds between two pieces of a response, as in the OpenAI SDK: a long prompt takes long."""
CONNECT_TIMEOUT = 10.0
RETRY_SECONDS = 1.0  # when a client may retry a request that the server did not answer in time
MAX_TOOLS = 4096
"""Maximum number of tools in one request, unless `max_tools` is set."""


class Proxy(ServedProperties):
    """An ASGI application in front of servers: the APIs that it serves go through exchanges, all else passes.

    The server is at `base_url`, or is the config's provider `provider`. Without both, requests are routed over all
    providers of the config. Raises `UsageError` if there is no address. `http_client` (an httpx or httpx2
    `AsyncClient`) sends the requests; the caller closes it.

    With `api_keys`, to which those of the config and of PROMPTOOLS_API_KEY are added, only requests with one of them
    are accepted; an `ApiKey` has a name, for which the config may have limits. The client's own authorization is
    forwarded only if neither the proxy nor the provider has a key. Without keys, a request over loopback must name a
    loopback host, or one of `allowed_hosts` ("*": any). Web pages of `cors_origins` may use the proxy from a browser.
    `max_body` limits the bodies that are read, in bytes; all others are streamed without a limit. `limits` replaces the
    config's. Proxies with the same `redis_url` share what they keep and count. `extensions` follow the exchanges, or
    serve pages of their own.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        http_client: Any = None,
        api_keys: Iterable[str | ApiKey] | str = (),
        allowed_hosts: Iterable[str] | str = (),
        max_body: int | None = None,
        limits: Limits | None = None,
        cors_origins: Iterable[str] | str = (),
        redis_url: str | None = None,
        extensions: Sequence[Extension] = (),
        **settings: Unpack[Settings],
    ) -> None:
        observers = [extension.observer for extension in extensions if extension.observer is not None]
        session = Session({"max_tools": MAX_TOOLS, **settings, "observer": _observers(settings, observers)})
        self._arguments = ProxyArguments(
            provider=settings.get("provider"),
            base_url=base_url,
            allow_provider=settings.get("allow_provider"),
            max_body=max_body,
            attempt_timeout=settings.get("attempt_timeout"),
            limits=limits,
            cors_origins=(*as_values(cors_origins),),
            api_keys=(*as_values(api_keys),),
            allowed_hosts=(*as_values(allowed_hosts),),
        )
        self._http = http_client
        self._owns_http = http_client is None
        self._direct: DirectClient | None = None
        self._library = installed_library() if http_client is None else library_of(http_client)
        self.served = serve_config(session, self._arguments, self._library.module, self._run_probe)
        """What it serves now; a reload replaces it."""
        redis_url = redis_url or session.config.proxy.redis_url
        self._shared = SharedState(redis_url, session) if redis_url else None
        self._admit()
        self.in_flight = RequestsInFlight()
        self.draining = False
        """Whether it is shutting down: what is in flight is finished, and other requests should go elsewhere."""
        self.extensions = (*extensions, *([self._shared] if self._shared is not None else []))
        self._extension_routes = ExtensionRoutes(self, self.extensions)

    def reload(self, config: Config | str | os.PathLike[str] | None) -> None:
        """Serve another config from the next request on; raise `UsageError` for a bad one, and keep the old.

        Requests in flight keep the config that they began with. What the breaker knows and what was detected stays, for
        providers that did not change.
        """
        session, old = self.session.with_settings({"config": config}), self.served
        self.served = serve_config(session, self._arguments, self._library.module, self._run_probe, old.table)
        forget_changed(old.session.config, self.session)
        self._admit(old)

    def _admit(self, old: ServedConfig | None = None) -> None:
        """Apply the config's limits and origins; counts of requests go on if the limits are the same."""
        served, shared = self.served, self._shared
        if old is None or (served.limits, served.key_limits) != (old.limits, old.key_limits):
            self.admission = Admission(served.limits, served.key_limits, None if shared is None else shared.limits)
        self._cors = with_cors(self._serve, served.origins) if served.origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            await (self._cors or self._serve)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await run_lifespan(self, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if self._extension_routes.match(route_path(scope)):
            await self._serve_extension(scope, receive, send)
        else:
            await self._handle_request(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        """Let the requests in flight finish for some seconds; then end the others, each with an error in its API."""
        self.draining = True
        await self.in_flight.wait(seconds)
        self.in_flight.cut()

    async def aclose(self) -> None:
        """Close the connections to the server, unless the HTTP client is the caller's."""
        http, self._http = self._http, None if self._owns_http else self._http
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
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
            self._direct = DirectClient(self._http) if can_send_directly() else None
        return self._http

    async def __aenter__(self) -> Self:
        """Start the extensions, in an application that the proxy is mounted in."""
        for extension in self.extensions:
            await extension.start(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop the extensions, and close the connections to the server."""
        for extension in self.extensions:
            await extension.stop()
        await self.aclose()

    async def _serve_extension(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page of an extension, to those who may use the proxy."""
        try:
            if not self._extension_routes.is_public(route_path(scope)):
                self.access.check(scope)
        except RefusedError as error:
            await send_refusal(send, error, CHAT_API)
            return
        await self._extension_routes.app(scope, receive, send)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and close its upstream at once when the client disconnects."""
        body, request = RequestBody(scope, receive), RequestInFlight(send)
        with self.in_flight.tracking(request):
            async with request_tasks() as tasks:

                async def watch() -> None:
                    await body.wait_for_disconnect()
                    tasks.cancel()

                async def lasting(message: Message) -> None:
                    last = message["type"] == "http.response.body" and not message.get("more_body", False)
                    await (body.send_last(request.send, message) if last else request.send(message))

                request.cancel = tasks.cancel
                body.on_abandoned = partial(tasks.start, watch)
                await self._route_request(scope, body, tasks, lasting, request)
            await request.finish()

    async def _route_request(
        self, scope: Scope, body: RequestBody, tasks: RequestTasks, send: Send, request: RequestInFlight
    ) -> None:
        """Route a request; respond with an error if it is refused, and not at all if the client disconnects early."""
        served, method = self.served, scope["method"]
        work: Callable[[Send], Awaitable[object]]
        endpoint = find_endpoint(PROXY_ENDPOINTS, method, scope["path"], served.host)
        api = request.api = CHAT_API if endpoint is None else endpoint.api
        try:
            path, query = self._locate(scope)
            admission = self.admission
            key = served.access.key_name(scope) if admission.has_keys else ""
            await admission.check_rate(key)
            endpoint = find_endpoint(PROXY_ENDPOINTS, method, path, served.host)
            router = await open_router(served.table, served.session, served.directory, path, query)
            if endpoint is not None:
                url, data = served.upstream.url(path, query), await body.read(served.max_body)
                work = partial(self._run_exchange, served, scope, url, endpoint, data, router, tasks)
            elif served.directory is not None and is_model_list(method, path):
                work = partial(served.directory.respond, path, decode_fields(forwarded_fields(served, scope)))
            elif router is not None:
                held = await body.peek(served.max_body) if has_json_body(scope) else None
                content = held or await body.for_http_library()
                forward = partial(self._pass_through, served, scope, body, router)
                work = partial(router.pass_through, method, content, forward, self._library.module)
            else:
                served.session.warn_if_unread(method, path)
                url, content = served.upstream.url(path, query), await body.for_http_library()
                work = partial(self._pass_through, served, scope, body, None, url, content)
            async with admission.slot(key):
                await self._with_error_responses(work, send, api, router)
        except RefusedError as error:
            await send_refusal(send, error, api)
        except DisconnectedError:
            return

    def _locate(self, scope: Scope) -> tuple[str, str]:
        """Return the path and query of a request; raise `RefusedError` if the request is refused."""
        check_header(scope)
        path, query = read_request_target(scope, self.access.check(scope))
        check_framing(scope)
        return path, query

    async def _with_error_responses(
        self, work: Callable[[Send], Awaitable[Any]], send: Send, api: ClientApi, router: RequestRouter | None
    ) -> None:
        """Run `work`; if the server cannot be reached and nothing was sent yet, respond with 502, 504 or 414."""
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)
            if message.get("more_body", False):
                await checkpoint()  # pieces that arrived together: the client may disconnect between two of them

        module = library_of(self.http).module
        try:
            await work(watched)
        except module.RequestError as error:
            base_url = (router and router.candidates.base_url) or self.base_url
            if begun:
                log.warning("promptools: the answer from %s broke off: %s", base_url, _error_text(error))
                raise
            status = 504 if isinstance(error, module.TimeoutException) else 502
            message = f"no answer from {base_url}: {_error_text(error)}"
            answer = api.encode_error(message, kind="UpstreamError", code="no_answer")
            retry = retry_fields(RETRY_SECONDS) if status == 504 else []
            await send_response(send, status, [JSON_CONTENT_TYPE, *retry], answer)
        except module.InvalidURL as error:  # an ASGI server accepts longer targets than the HTTP library
            refusal = RefusedError(414, f"the request target is refused: {error}", code="bad_target")
            await send_refusal(send, refusal, api)

    async def _run_exchange(
        self,
        served: ServedConfig,
        scope: Scope,
        url: str,
        endpoint: Endpoint,
        body: bytes,
        router: RequestRouter | None,
        tasks: RequestTasks,
        send: Send,
    ) -> None:
        """Run an exchange and relay what it emits; its clock ticks in another task of the group."""
        fields = [pair for pair in forwarded_fields(served, scope) if pair[0].lower() != ACCEPT_ENCODING]
        headers = decode_fields(fields)
        request = Request(scope["method"], url, headers, body)
        extensions = {"timeout": self.http.timeout.as_dict()}
        library = self._direct.library if self._direct else library_of(self.http)
        send_upstream = partial(self._send, client_authorization=client_authorization(served, fields))
        route = None if router is None else partial(router.exchange_route, request, endpoint)
        candidates = None if router is None else router.candidates
        at = None if candidates is None else candidates.started_at
        has_ended = False

        owner = owner_of(decode_fields(scope["headers"])) if endpoint in RESPONSES_ENDPOINTS else ""
        if owner and self._shared is not None:
            await self._shared.responses.fetch(owner, request.url.partition("?")[0], body)
            send = self._shared.responses.writing(send)

        async def attempt() -> bool:
            nonlocal has_ended
            exchange = with_error_boundary(served.session(request, endpoint, route, at, owner), endpoint.api)
            driver = AsyncDriver(exchange, library, send_upstream, extensions=extensions)
            writer = relay.ExchangeRelay(driver, send, candidates)
            tasks.start(writer.tick, after=relay.TICK_SECONDS)
            try:
                return await writer.run()
            finally:
                await driver.close()
                has_ended = writer.has_ended

        await (attempt() if router is None else router.run(attempt, library.module))
        if not has_ended:
            await send({"type": "http.response.body", "body": b""})

    async def _run_probe(self, exchange: Exchange) -> None:
        """Run an exchange that emits nothing."""
        send = partial(self._send, client_authorization=None)
        driver = AsyncDriver(exchange, library_of(self.http), send, extensions={"timeout": self.http.timeout.as_dict()})
        await driver.head()

    async def _pass_through(
        self,
        served: ServedConfig,
        scope: Scope,
        body: RequestBody,
        router: RequestRouter | None,
        url: str,
        content: Any,
        send: Send,
    ) -> bool:
        """Forward a request and its response byte for byte, both bodies streamed; False if the router rejects it."""
        module = library_of(self.http).module
        extensions = {"timeout": self.http.timeout.as_dict()}
        fields = client_fields = forwarded_fields(served, scope)
        if router is not None:
            fields = replace_fields(fields, router.credentials(decode_fields(fields)))
        if body.length is not None and not isinstance(content, bytes):
            fields.append((b"content-length", str(body.length).encode()))
        request = module.Request(scope["method"], url, headers=fields, content=content, extensions=extensions)
        with streaming_body(body):
            response = await self._send(request, client_authorization=client_authorization(served, client_fields))
        try:
            if router is not None and router.candidates.rejects(response.status_code, ()):
                return False
            await send_head(send, response.status_code, end_to_end_fields(response.headers.raw))
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        await send({"type": "http.response.body", "body": b""})
        return True

    async def _send(self, request: Any, *, client_authorization: str | None) -> Any:
        """Send a request without following redirects: the HTTP library would send keys and the prompt to any host.

        A key other than the client's `client_authorization` is masked in an error response.
        """
        if self._direct is not None:
            response = await self._direct.send(request)
        else:
            response = await self.http.send(request, stream=True, follow_redirects=False)
        sent: str | None = request.headers.get("authorization")
        return (
            response if sent in {None, client_authorization} else mask_error(response, library_of(self.http), str(sent))
        )


def _observers(settings: Settings, extensions: list[Observer]) -> list[Observer]:
    """Return the observers of the settings, then those of the extensions."""
    return [*as_observers(settings.get("observer")), *extensions]


def _error_text(error: Exception) -> str:
    return without_credentials(str(error)) or type(error).__name__
