"""The proxy: an ASGI application that apps in any language use as if it were the server."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from promptools.exchange.client_api import CHAT_API
from promptools.proxy.access import ApiKey, with_cors
from promptools.proxy.admission import Admission, Limits, check_header
from promptools.proxy.asgi import DisconnectedError, RefusedError, send_refusal
from promptools.proxy.extension import Extension, ExtensionRoutes, RequestReports, run_lifespan
from promptools.proxy.header_fields import decode_fields, forwarded_fields
from promptools.proxy.in_flight import RequestInFlight, RequestsInFlight
from promptools.proxy.incoming_request import IncomingRequest, RequestBody, check_framing
from promptools.proxy.model_directory import is_model_list
from promptools.proxy.request_sender import RequestSender
from promptools.proxy.request_tasks import RequestTasks, request_tasks
from promptools.proxy.routing import open_router
from promptools.proxy.served_config import (
    ProxyArguments,
    ServedConfig,
    ServedProperties,
    as_values,
    forget_changed,
    serve_config,
)
from promptools.proxy.shared_state import SharedState
from promptools.proxy.upstream_client import UpstreamClient
from promptools.proxy.upstream_url import read_request_target, route_path
from promptools.transport import Session, Settings
from promptools.transport.endpoints import PROXY_ENDPOINTS, find_endpoint
from promptools.transport.session import as_observers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptools.exchange import Observer
    from promptools.profiles import Config
    from promptools.proxy.asgi import Message, Receive, Scope, Send


MAX_TOOLS = 4096
"""Default of the setting `max_tools`, the maximum number of tools in one request."""


class Proxy(ServedProperties):
    """An ASGI application that stands in front of model servers and makes their tool calls work.

    Requests to the model APIs that it knows, such as chat completions, are read and converted where needed. All other
    requests are forwarded unread.

    `base_url` is the server's address, or `provider` names a provider of the config. Without either, requests are
    routed among all providers of the config. Raises `UsageError` if there is no address at all. If you pass an
    `http_client` (an httpx or httpx2 `AsyncClient`), it sends the requests, each over a new connection unless it uses
    HTTP/2. The caller closes this client.

    With `api_keys`, only requests with one of these keys are accepted. Keys from the config and PROMPTOOLS_API_KEY are
    accepted too. An `ApiKey` may have a name, for which the config may set limits. The client's own authorization is
    forwarded only if neither the proxy nor the provider has a key. Without keys, the `Host` field of a request over
    loopback must contain a loopback host, or one of `allowed_hosts` ("*" allows any name).

    Web pages of `cors_origins` may use the proxy from a browser. `max_body` is the maximum number of bytes of a body
    that the proxy reads; all other bodies are streamed without a limit. `limits` replaces the limits of the config.
    Proxies with the same `redis_url` share stored responses, request counts, and the record of which modes have failed
    on which server. `extensions` observe requests, or serve additional pages such as `/metrics`.
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
        self.upstream_client = UpstreamClient(http_client)
        """Sends the requests to the servers."""
        self.served = serve_config(
            session, self._arguments, self.upstream_client.library.module, self.upstream_client.run_probe
        )
        """The config that the proxy serves now; `reload` replaces it."""
        redis_url = redis_url or self.session.config.proxy.redis_url
        self._shared = SharedState(redis_url, self.session) if redis_url else None
        self._sender = RequestSender(self.upstream_client, self._shared)
        self._apply_limits()
        self.in_flight = RequestsInFlight()
        self.draining = False
        """Whether the proxy is shutting down: requests in flight are finished, and new ones should go elsewhere."""
        self.extensions = (*extensions, *([self._shared] if self._shared is not None else []))
        self._reports = RequestReports([extension.on_request for extension in extensions if extension.on_request])
        self._extension_routes = ExtensionRoutes(self, self.extensions, self._reports)
        self._extension_routes.check_keys(self.access)

    def reload(self, config: Config | str | os.PathLike[str] | None) -> None:
        """Serve another config from the next request on; if it is invalid, raise `UsageError` and keep the old config.

        Requests in flight keep the config that they started with. What was learned about a server (its kind, and the
        modes that failed on it) is kept for providers that did not change.
        """
        session, old = self.session.with_settings({"config": config}), self.served
        library = self.upstream_client.library.module
        served = serve_config(session, self._arguments, library, self.upstream_client.run_probe, old.table)
        self._extension_routes.check_keys(served.access)
        self.served = served
        forget_changed(old.session.config, self.session)
        self._apply_limits(old)

    def _apply_limits(self, old: ServedConfig | None = None) -> None:
        """Apply the config's limits and origins; keep the counts of requests if the limits did not change."""
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
            await self._extension_routes.serve(self.access, scope, receive, send)
        else:
            await self._handle_request(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` until the requests in flight have ended; then end those that remain with an error."""
        self.draining = True
        await self.in_flight.wait(seconds)
        self.in_flight.cut()

    async def aclose(self) -> None:
        """Close the connections to the servers; an `http_client` that the caller passed stays open."""
        await self.upstream_client.aclose()

    async def __aenter__(self) -> Self:
        """Start the extensions. An application that mounts the proxy must use `async with proxy`."""
        for extension in self.extensions:
            await extension.start(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop the extensions, and close the connections to the server."""
        for extension in self.extensions:
            await extension.stop()
        await self.aclose()

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; if the client disconnects, stop immediately and close the connection to the server."""
        body, request = RequestBody(scope, receive), RequestInFlight(scope, send)
        with self.in_flight.tracking(request), self._reports.reporting(request):
            async with request_tasks() as tasks:
                watching = False

                async def watch() -> None:
                    nonlocal watching
                    if not watching:
                        watching = True
                        await body.wait_for_disconnect()
                        tasks.cancel()

                async def lasting(message: Message) -> None:
                    if message.get("more_body", False):
                        if not watching and body.is_abandoned:
                            tasks.start(watch)  # the client may leave between two pieces that arrived together
                        await request.send(message)
                    elif message["type"] == "http.response.body":
                        await body.send_last(request.send, message)
                    else:
                        await request.send(message)

                request.cancel = tasks.cancel
                body.on_abandoned = partial(tasks.start, watch)
                await self._route_request(request, body, tasks, lasting)
            await request.finish()

    async def _route_request(
        self, request: RequestInFlight, body: RequestBody, tasks: RequestTasks, send: Send
    ) -> None:
        """Route a request; respond with an error if it is refused, or not at all if the client disconnected early."""
        served, scope = self.served, request.scope
        method = scope["method"]
        endpoint = find_endpoint(PROXY_ENDPOINTS, method, scope["path"], served.host)
        api = request.api = CHAT_API if endpoint is None else endpoint.api
        try:
            path, query = self._check_target(scope)
            admission = self.admission
            key = served.access.key_name(scope) if admission.has_keys else ""
            await admission.check_rate(key)
            if path != scope["path"]:
                endpoint = find_endpoint(PROXY_ENDPOINTS, method, path, served.host)
            router = await open_router(served.table, served.session, served.directory, path, query)
            incoming = IncomingRequest(served, request, path, query, body, router)
            await incoming.read_ahead(endpoint)  # before the slot, so that a slow upload keeps nobody else waiting
            async with admission.slot(key):
                if served.directory is not None and is_model_list(method, path):
                    request.passes = True
                    await served.directory.respond(
                        path, decode_fields(forwarded_fields(served, scope)), send, request.request_id
                    )
                else:
                    await self._sender.send(incoming, endpoint, api, tasks, send)
        except RefusedError as error:
            request.refusal = error.code
            await send_refusal(send, error, api, request.request_id)
        except DisconnectedError:
            return

    def _check_target(self, scope: Scope) -> tuple[str, str]:
        """Return the path and query of a request; raise `RefusedError` if its target or header is refused."""
        check_header(scope)
        path, query = read_request_target(scope, self.access.check(scope))
        check_framing(scope)
        return path, query


def _observers(settings: Settings, extensions: list[Observer]) -> list[Observer]:
    """Return the observers given in the settings, followed by those of the extensions."""
    return [*as_observers(settings.get("observer")), *extensions]
