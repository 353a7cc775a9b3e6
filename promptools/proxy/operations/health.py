"""Health of the proxy: `/healthz`, whether the process works, and `/readyz`, whether a request could be answered.

Both are public, for the probes of schedulers and load balancers. So they name no server, and however often they are
requested, the servers are asked once in `READY_SECONDS`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from promptools.proxy.extension import Extension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from promptools.proxy.proxy_app import Proxy
    from promptools.proxy.upstream.upstream_url import UpstreamAddress

READY_SECONDS = 3.0
"""For how long an answer of the servers counts."""
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
        """Whether a server answers; one request at a time asks them, and the others use its answer."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= READY_SECONDS:
                self._reachable = await self._ask_all()
                self._asked_at = time.monotonic()
            return self._reachable

    async def _ask_all(self) -> bool:
        """Ask all servers at once, until one answers."""
        assert self._proxy is not None
        table = self._proxy.served.table
        servers = [(self._proxy.upstream, self._proxy.authorization)]
        if table is not None:
            servers = [(replica.address, replica.authorization) for replica in table.replicas()]
        reachable = False
        async with anyio.create_task_group() as tasks:

            async def ask(address: UpstreamAddress, authorization: str | None) -> None:
                nonlocal reachable
                if await self._ask(address, authorization):
                    reachable = True
                    tasks.cancel_scope.cancel()

            for server in servers:
                tasks.start_soon(ask, *server)
        return reachable

    async def _ask(self, address: UpstreamAddress, authorization: str | None) -> bool:
        """Ask a server for its models; any answer but a 5xx counts: a server that loads its model answers 503."""
        assert self._proxy is not None
        fields = [(b"authorization", authorization.encode("latin-1"))] if authorization else []
        status = await self._proxy.upstream_client.status_of(address.url(_MODELS_PATH, ""), fields, PROBE_TIMEOUT)
        return status is not None and status < 500


def _json_response(status: int, body: dict[str, str]) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status, headers={"cache-control": "no-store"})
