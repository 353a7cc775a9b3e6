"""What may be reported of a request that is no exchange: one that the proxy refused, or that passed unread.

Exchanges have observers. All other requests are reported at their end, if an extension asks for it, and without text of
the client: every value here is one of a bounded number, except for the id, which is of no use as a label.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from promptools.log import log
from promptools.proxy.upstream.upstream_url import route_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptools.proxy.asgi import RefusedError, Scope
    from promptools.proxy.requests.in_flight import RequestInFlight

PAGE = "page"
"""The route of a page of the proxy's own."""
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
"""The kind of a route, by a part of its path."""


@dataclass(frozen=True, slots=True)
class RequestReport:
    """A request that is no exchange, at its end."""

    route: str
    """The kind of its route: that of an API as observers have it, one of `_ROUTES`, `page` or `other`."""
    method: str
    """Its HTTP method; `other` for an unusual one."""
    status: int | None
    """The HTTP status of the response; None if there was none."""
    seconds: float
    """Seconds until the end of the response."""
    refusal: str = ""
    """The code of the proxy's error, if it was refused; empty if it passed."""
    request_id: str = ""
    """The request's id, which the client may have chosen."""
    outcome: str = ""
    """How it passed: `answered`, `no_answer`, `broken`, `disconnected` or `shutting_down`; empty if it was refused."""


class RequestReports:
    """Reports requests to observers; without any, nothing is collected."""

    def __init__(self, observers: Sequence[Callable[[RequestReport], None]]) -> None:
        self._observers = observers

    @contextmanager
    def reporting(self, request: RequestInFlight) -> Generator[None]:
        """Report a request at its end, if it was refused or passed."""
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
        """Report that a page of the proxy's own was refused."""
        self._report(RequestReport(PAGE, _method(scope), error.status, 0.0, error.code))

    def _report(self, report: RequestReport) -> None:
        """Call the observers; what one of them raises is logged, and changes no response."""
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
    """Return the kind of a route."""
    parts = path.strip("/").split("/")
    if parts[-2:] == ["chat", "completions"]:
        return "chat"
    if "api" in parts[:-1]:
        return "ollama"
    return next((_ROUTES[part] for part in reversed(parts) if part in _ROUTES), OTHER)
