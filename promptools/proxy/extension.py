"""Extensions observe the proxy's exchanges, or serve pages next to the APIs.

Metrics, spans, the inspector and the recorder are extensions. Their routes are Starlette routes, and a request to one
of these routes never reaches the server. For every other request, the cost is one lookup of the first part of its path.

An exchange is the processing of one request to a model API, and is reported to observers. All other requests, which
were refused or forwarded unread, are reported as a `RequestReport`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from promptools.errors import UsageError, install_command
from promptools.exchange.client_api import CHAT_API
from promptools.log import log
from promptools.proxy.asgi import RefusedError, send_refusal
from promptools.proxy.upstream_url import route_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from promptools.exchange import Observer
    from promptools.proxy.access import AccessControl
    from promptools.proxy.app import Proxy
    from promptools.proxy.asgi import Receive, Scope, Send
    from promptools.proxy.in_flight import RequestInFlight


class Extension:
    """Base class of extensions. A subclass sets only the attributes and methods that it needs."""

    observer: Observer | None = None
    """Observer of every request to a model API that the proxy processes; None if the extension needs no observer."""
    on_request: Callable[[RequestReport], None] | None = None
    """Called at the end of every request that the proxy refused, or forwarded without reading it."""
    paths: Sequence[str] = ()
    """Top-level paths that the extension serves, such as `/metrics`, together with all paths below them."""
    public_paths: Sequence[str] = ()
    """Full paths that need no API key; paths below them need a key."""

    access: AccessControl | None = None
    """Keys that give access to this extension's pages only; the proxy's own keys give access to these pages too."""

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:  # noqa: ARG002 what an extension may need
        """Return the extension's Starlette routes."""
        return ()

    async def start(self, proxy: Proxy) -> None:
        """Start the extension, before the first request, on the proxy's event loop."""

    async def stop(self) -> None:
        """Stop the extension, after the last request."""


class ExtensionRoutes:
    """The routes of all extensions, as one Starlette application."""

    def __init__(self, proxy: Proxy, extensions: Sequence[Extension], reports: RequestReports) -> None:
        self._proxy = proxy
        self._reports = reports
        self._extensions = extensions
        self._paths = frozenset(path for extension in extensions for path in extension.paths)
        self._public = frozenset(path for extension in extensions for path in extension.public_paths)
        self._own_access = {
            path: extension.access
            for extension in extensions
            if extension.access is not None
            for path in extension.paths
        }
        self._app: Starlette | None = None

    def check_keys(self, access: AccessControl) -> None:
        """Raise `UsageError` if a key of an extension is also a key of the proxy."""
        if any(own.shares_key(access) for own in self._own_access.values()):
            raise UsageError(
                "the metrics key is one of the proxy's API keys too, so anyone who can read the metrics could send"
                " requests; make another one for PROMPTOOLS_METRICS_KEY"
            )

    def match(self, path: str) -> bool:
        """Return whether an extension serves this path."""
        return _first_part(path) in self._paths

    def is_public(self, path: str) -> bool:
        """Return whether requests to this path need no API key."""
        return path in self._public

    async def serve(self, access: AccessControl, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page of an extension, or refuse the request if the client may not see the page."""
        try:
            self._check(access, scope)
        except RefusedError as error:
            self._reports.report_page(scope, error)
            await send_refusal(send, error, CHAT_API)
            return
        await self.app(scope, receive, send)

    def _check(self, access: AccessControl, scope: Scope) -> None:
        """Raise `RefusedError` if the client may not see the page."""
        path = route_path(scope)
        own = self._own_access.get(_first_part(path))
        if self.is_public(path) or (own is not None and own.has_key(scope)):
            return
        if own is not None and not access.requires_key:
            own.check(scope)
        access.check(scope)

    @property
    def app(self) -> Starlette:
        """The Starlette application, which is created on first use."""
        if self._app is None:
            try:
                from starlette.applications import Starlette
            except ImportError as error:
                raise UsageError(f"pages of the proxy need Starlette: {install_command('server')}") from error
            self._app = Starlette(
                routes=[route for extension in self._extensions for route in extension.routes(self._proxy)]
            )
        return self._app


def _first_part(path: str) -> str:
    end = path.find("/", 1)
    return path if end < 0 else path[:end]


async def run_lifespan(app: AbstractAsyncContextManager[object], receive: Receive, send: Send) -> None:
    """Handle ASGI's lifespan messages: enter `app` when the ASGI server starts, and exit it when the server stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await app.__aenter__()
        if message["type"] == "lifespan.shutdown":
            await app.__aexit__(None, None, None)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


# What is reported about a request without an exchange: one that the proxy refused, or that passed unread.
#
# Exchanges have observers. All other requests are reported at their end, if an extension asks for that. The request's
# id is the only text in a report that the client may choose, and no metric uses it as a label: the number of values of
# each label is limited.


PAGE = "page"
"""The `route` in a `RequestReport` about one of the proxy's own pages."""
OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ROUTES = {
    "responses": "responses",
    "messages": "messages",
    "completions": "completions",
    "embeddings": "embeddings",
    "models": "models",
    "rerank": "rerank",
    "tokenize": "tokenize",
    "detokenize": "tokenize",
    "audio": "audio",
    "images": "images",
    "files": "files",
}
"""Maps a segment of a path to the kind of route (`RequestReport.route`): `/v1/detokenize` has kind `tokenize`."""


@dataclass(frozen=True, slots=True)
class RequestReport:
    """A report on a request that the proxy refused or forwarded unread, made when the request ends."""

    route: str
    """The kind of the request's route: `chat`, `ollama`, one of the values of `_ROUTES`, `page` or `other`."""
    method: str
    """The request's HTTP method; `other` for an unusual method."""
    status: int | None
    """The HTTP status of the response; None if there was none."""
    seconds: float
    """Seconds from the start of the request to the end of the response; 0 if the route is `page`."""
    refusal: str = ""
    """The code of the proxy's error if the request was refused; empty if it was forwarded."""
    request_id: str = ""
    """The request's id, which the client may have chosen."""
    outcome: str = ""
    """How a forwarded request ended: `answered`, `no_answer`, `broken`, `disconnected` or `shutting_down`.

    Empty if the request was refused.
    """


class RequestReports:
    """Calls the extensions' `on_request` for each request that was refused or forwarded unread."""

    def __init__(self, observers: Sequence[Callable[[RequestReport], None]]) -> None:
        self._observers = observers

    @contextmanager
    def reporting(self, request: RequestInFlight) -> Generator[None]:
        """Report a request when it ends, if it was refused or forwarded unread."""
        broken = True
        try:
            yield
            broken = False
        finally:
            if self._observers and (request.refusal or request.passes):
                outcome = "" if request.refusal else _outcome(request, broken=broken)
                route = route_kind(route_path(request.scope))
                seconds = time.monotonic() - request.began_at
                method = _method(request.scope)
                self._report(
                    RequestReport(route, method, request.status, seconds, request.refusal, request.request_id, outcome)
                )

    def report_page(self, scope: Scope, error: RefusedError) -> None:
        """Report a refused request for an extension's page."""
        self._report(RequestReport(PAGE, _method(scope), error.status, 0.0, error.code))

    def _report(self, report: RequestReport) -> None:
        """Call the observers; their exceptions are logged, and do not affect the response."""
        for observer in self._observers:
            try:
                observer(report)
            except Exception:
                log.exception("an observer of requests raised")


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else OTHER


def _outcome(request: RequestInFlight, *, broken: bool) -> str:
    if request.is_unanswered:
        return "no_answer"
    if request.is_cut:
        return "shutting_down"
    if request.is_complete:
        return "answered"
    return "broken" if broken else "disconnected"


def route_kind(path: str) -> str:
    """Return the kind of route that a path belongs to, such as `chat` or `embeddings`, as in `RequestReport.route`."""
    parts = path.strip("/").split("/")
    if parts[-2:] == ["chat", "completions"]:
        return "chat"
    if "api" in parts[:-1]:
        return "ollama"
    return next((_ROUTES[part] for part in reversed(parts) if part in _ROUTES), OTHER)
