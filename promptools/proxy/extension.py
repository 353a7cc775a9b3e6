"""Extensions: what follows the proxy's exchanges, or serves pages of the proxy's own, beside the APIs.

Metrics, spans, the inspector and the recorder are extensions. Their routes are Starlette's; a request to one of them
never reaches the server. All other requests only pass a look-up of the first part of their path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange.client_api import CHAT_API
from promptools.proxy.asgi import RefusedError, send_refusal
from promptools.proxy.upstream.upstream_url import route_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from promptools.exchange import Observer
    from promptools.proxy.admission.access import AccessControl
    from promptools.proxy.asgi import Receive, Scope, Send
    from promptools.proxy.proxy_app import Proxy
    from promptools.proxy.requests.request_report import RequestReport, RequestReports


class Extension:
    """Base class of extensions; each part is optional."""

    observer: Observer | None = None
    """Follows every exchange of the proxy."""
    on_request: Callable[[RequestReport], None] | None = None
    """Called at the end of every request that is no exchange: one that the proxy refused, or that passed unread."""
    paths: Sequence[str] = ()
    """The first parts of the paths of its routes, such as `/metrics`; requests below them are its own."""
    public_paths: Sequence[str] = ()
    """Paths that need no API key, each in full; those below them need one."""

    access: AccessControl | None = None
    """The keys that open its pages and nothing else; the proxy's own keys open them too."""

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:  # noqa: ARG002 what an extension may need
        """Return Starlette's routes."""
        return ()

    async def start(self, proxy: Proxy) -> None:
        """Start, before the first request, on the proxy's event loop."""

    async def stop(self) -> None:
        """Stop, after the last request."""


class ExtensionRoutes:
    """Routes of all extensions, as one Starlette application."""

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
        """Raise `UsageError` if a key of an extension opens the proxy too."""
        if any(own.shares_key(access) for own in self._own_access.values()):
            raise UsageError(
                "the metrics key is one of the proxy's API keys too, so anyone who can read the metrics could send"
                " requests; make another one for PROMPTOOLS_METRICS_KEY"
            )

    def match(self, path: str) -> bool:
        """Whether a request to this path is an extension's."""
        return _first_part(path) in self._paths

    def is_public(self, path: str) -> bool:
        """Whether a request to this path needs no API key."""
        return path in self._public

    async def serve(self, access: AccessControl, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page of an extension, to those who may use the proxy."""
        try:
            self._check(access, scope)
        except RefusedError as error:
            self._reports.report_page(scope, error)
            await send_refusal(send, error, CHAT_API)
            return
        await self.app(scope, receive, send)

    def _check(self, access: AccessControl, scope: Scope) -> None:
        """Raise `RefusedError` for a request that may not have its page."""
        path = route_path(scope)
        own = self._own_access.get(_first_part(path))
        if self.is_public(path) or (own is not None and own.has_key(scope)):
            return
        if own is not None and not access.requires_key:
            own.check(scope)
        access.check(scope)

    @property
    def app(self) -> Starlette:
        """The application, created on first use."""
        if self._app is None:
            try:
                from starlette.applications import Starlette
            except ImportError as error:
                raise UsageError(
                    "pages of the proxy need Starlette: pip install 'promptools-compat[server]'"
                ) from error
            self._app = Starlette(
                routes=[route for extension in self._extensions for route in extension.routes(self._proxy)]
            )
        return self._app


def _first_part(path: str) -> str:
    end = path.find("/", 1)
    return path if end < 0 else path[:end]


async def run_lifespan(app: AbstractAsyncContextManager[object], receive: Receive, send: Send) -> None:
    """Enter and exit an application when the ASGI server starts and stops."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await app.__aenter__()
        if message["type"] == "lifespan.shutdown":
            await app.__aexit__(None, None, None)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
