"""Health of the proxy: `/healthz`, whether the process works, and `/readyz`, whether a request could be answered.

Both are public, for the probes of schedulers and load balancers. So they name no server, and however often they are
requested, the server is asked once in `READY_SECONDS`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import anyio

from promptools.proxy.extension import Extension
from promptools.transport import library_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from promptools.proxy.proxy_app import Proxy

log = logging.getLogger("promptools")
READY_SECONDS = 3.0
"""For how long an answer of the server counts."""
PROBE_TIMEOUT = 2.0
_MODELS_PATH = "/v1/models"


class Health(Extension):
    """Serves `/healthz` and `/readyz`."""

    paths = ("/healthz", "/readyz")
    public_paths = paths

    def __init__(self) -> None:
        self._proxy: Proxy | None = None
        self._asking = anyio.Lock()
        self._reachable = False
        self._asked_at = float("-inf")

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:
        """Return the routes."""
        from starlette.routing import Route

        self._proxy = proxy
        return (Route("/healthz", self._serve_health), Route("/readyz", self._serve_readiness))

    async def _serve_health(self, _: Request) -> Response:
        return _json_response(200, {"status": "ok"})

    async def _serve_readiness(self, _: Request) -> Response:
        if getattr(self._proxy, "draining", False):
            return _json_response(503, {"status": "draining"})
        if not await self._is_reachable():
            return _json_response(503, {"status": "no server answers"})
        return _json_response(200, {"status": "ready"})

    async def _is_reachable(self) -> bool:
        """Whether the server answers; one request at a time asks it, and the others use its answer."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= READY_SECONDS:
                self._reachable = await self._ask()
                self._asked_at = time.monotonic()
            return self._reachable

    async def _ask(self) -> bool:
        """Ask the server for its models; any answer but a 5xx counts: a server that loads its model answers 503."""
        proxy = self._proxy
        assert proxy is not None
        headers = {"authorization": proxy.authorization} if proxy.authorization else {}
        try:
            response: Any = await proxy.http.get(
                proxy.upstream.url(_MODELS_PATH, ""), headers=headers, timeout=PROBE_TIMEOUT, follow_redirects=False
            )
        except library_of(proxy.http).module.RequestError:
            return False
        return bool(response.status_code < 500)


def _json_response(status: int, body: dict[str, str]) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status, headers={"cache-control": "no-store"})
