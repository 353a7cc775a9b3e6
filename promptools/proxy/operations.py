"""Extensions for operating the proxy: health, metrics, spans, logs and recordings.

Their observers are in `telemetry` and `recording`.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import to_thread

from promptools.errors import UsageError, install_command
from promptools.exchange import Observer
from promptools.proxy.access import AccessControl, ApiKey
from promptools.proxy.extension import Extension
from promptools.telemetry import ExchangeLog, Metrics, Spans
from promptools.telemetry.exchange_log import LOGGER, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opentelemetry.trace import TracerProvider
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from promptools.proxy.app import Proxy
    from promptools.proxy.extension import RequestReport
    from promptools.proxy.upstream_url import UpstreamAddress
    from promptools.telemetry.exchange_log import LogFormat


# The health of the proxy: `/healthz` says whether the process works, `/readyz` whether a request could be answered.
#
# Both are public, for the probes of schedulers and load balancers. So they name no server, and the servers are asked at
# most once in `READY_SECONDS`, no matter how many requests come.


READY_SECONDS = 3.0
"""Seconds for which `/readyz` reuses the result of the last check of the servers."""
PROBE_TIMEOUT = 2.0
_MODELS_PATH = "/v1/models"


class Health(Extension):
    """Serves `/healthz` and `/readyz`.

    `/healthz` always responds with 200. `/readyz` responds with 200 if a server answers and the proxy is not shutting
    down, else with 503.
    """

    paths = ("/healthz", "/readyz")
    public_paths = paths

    def __init__(self) -> None:
        self._proxy: Proxy | None = None
        self._asking = anyio.Lock()
        self._reachable = False
        self._asked_at = float("-inf")

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:
        """Return the routes of `/healthz` and `/readyz`."""
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
        """Return whether any server answers; concurrent requests share one check."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= READY_SECONDS:
                self._reachable = await self._ask_all()
                self._asked_at = time.monotonic()
            return self._reachable

    async def _ask_all(self) -> bool:
        """Ask all servers concurrently, until one answers."""
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
        """Ask a server for its list of models; return whether it answered with a status below 500.

        A server that is still loading its model answers with 503, so it does not count as ready.
        """
        assert self._proxy is not None
        fields = [(b"authorization", authorization.encode("latin-1"))] if authorization else []
        status = await self._proxy.upstream_client.status_of(address.url(_MODELS_PATH, ""), fields, PROBE_TIMEOUT)
        return status is not None and status < 500


def _json_response(status: int, body: dict[str, str]) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status, headers={"cache-control": "no-store"})


# Reports on exchanges: the page with metrics, exported spans, and the log.


SERVICE_NAME = "promptools"


class MetricsPage(Extension):
    """Serves `/metrics` in Prometheus' format; the API keys in `keys` give access to this page only."""

    paths = ("/metrics",)

    def __init__(self, metrics: Metrics | None = None, *, keys: Iterable[str] = ()) -> None:
        own = [ApiKey(key) for key in keys]
        self.access = AccessControl(own, ()) if own else None
        self.metrics = Metrics() if metrics is None else metrics
        self.observer: Observer | None = self.metrics
        self.on_request = self._count

    def _count(self, report: RequestReport) -> None:
        if report.refusal:
            self.metrics.count_refusal(report.route, report.status, report.refusal)
        else:
            self.metrics.count_passed(report.route, report.status, report.outcome, report.seconds)

    def routes(self, proxy: Proxy) -> Sequence[BaseRoute]:  # noqa: ARG002 the signature of the base class
        """Return the route of the page `/metrics`."""
        from starlette.routing import Route

        return (Route("/metrics", self._serve),)

    async def _serve(self, request: Request) -> Response:
        from starlette.responses import Response

        body, content_type = self.metrics.scrape(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def stop(self) -> None:
        """Remove this process from the metrics shared between processes."""
        self.metrics.close()


class TracedExchanges(Extension):
    """Makes OpenTelemetry spans for the requests that the proxy processes.

    Without `tracer_provider`, the spans are exported as configured by the OTEL_* environment variables.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._own: Any = None
        if tracer_provider is None:
            tracer_provider = self._own = _otlp_provider()
        self.observer: Observer | None = Spans(tracer_provider, server=True)

    async def stop(self) -> None:
        """Export the spans that have not been exported yet."""
        if self._own is not None:
            await anyio.to_thread.run_sync(self._own.shutdown)


def _otlp_provider() -> Any:
    """Return a tracer provider that exports over OTLP/HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME as SERVICE_NAME_KEY
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(f"--otel needs OpenTelemetry: {install_command('otel')}") from error
    name = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME_KEY: SERVICE_NAME}
    provider = TracerProvider(resource=Resource.create(name))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class LoggedExchanges(Extension):
    """Logs one line to stderr for each request, whether the proxy processed it, refused it, or forwarded it unread."""

    def __init__(self, style: LogFormat) -> None:
        self._log = ExchangeLog(style)
        self.observer: Observer | None = self._log
        self.on_request = self._log_request
        self._handler: logging.Handler | None = None

    def _log_request(self, report: RequestReport) -> None:
        self._log.write(
            {
                "time": now(),
                "request_id": report.request_id,
                "method": report.method,
                "route": report.route,
                "status": report.status,
                "outcome": report.outcome or "refused",
                "reason": report.refusal,
                "seconds": round(report.seconds, 4),
            }
        )

    async def start(self, proxy: Proxy) -> None:  # noqa: ARG002 the signature of the base class
        """Set up the logger so that it writes each log line to stderr without adding anything to it."""
        logger = logging.getLogger(LOGGER)
        self._handler = logging.StreamHandler()
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(self._handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    async def stop(self) -> None:
        """Remove the handler from the logger."""
        if self._handler is not None:
            logging.getLogger(LOGGER).removeHandler(self._handler)


class ClosableObserver(Observer, Protocol):
    """An observer that must be closed, such as a `promptools.recording.Recorder`."""

    @property
    def close(self) -> Callable[[], None]:
        """A function that finishes all work and closes the observer; it may block."""
        ...


class RecordingExtension(Extension):
    """Records the requests that a proxy processes, with their responses, and closes `recorder` when the proxy stops."""

    def __init__(self, recorder: ClosableObserver) -> None:
        self.observer = recorder
        self._recorder = recorder

    async def stop(self) -> None:
        """Close the recorder, so that it writes the exchanges that have ended."""
        await to_thread.run_sync(self._recorder.close)
