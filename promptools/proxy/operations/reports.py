"""Extensions that report on exchanges: the page with metrics, spans that are exported, and the log."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import anyio

from promptools.errors import UsageError
from promptools.proxy.admission.access import AccessControl
from promptools.proxy.admission.api_keys import ApiKey
from promptools.proxy.extension import Extension
from promptools.telemetry import ExchangeLog, Metrics, Spans
from promptools.telemetry.exchange_log import LOGGER, now

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.trace import TracerProvider
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from promptools.exchange import Observer
    from promptools.proxy.proxy_app import Proxy
    from promptools.proxy.requests.request_report import RequestReport
    from promptools.telemetry.exchange_log import LogFormat

SERVICE_NAME = "promptools"


class MetricsPage(Extension):
    """Serves `/metrics`, in the format that Prometheus reads; `keys` open it, and nothing else of the proxy."""

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
        """Return the route."""
        from starlette.routing import Route

        return (Route("/metrics", self._serve),)

    async def _serve(self, request: Request) -> Response:
        from starlette.responses import Response

        body, content_type = self.metrics.scrape(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def stop(self) -> None:
        """Take this process out of the metrics that processes share."""
        self.metrics.close()


class TracedExchanges(Extension):
    """Makes spans of all exchanges; without `tracer_provider`, exports them as the OTEL_* environment variables say."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._own: Any = None
        if tracer_provider is None:
            tracer_provider = self._own = _otlp_provider()
        self.observer: Observer | None = Spans(tracer_provider, server=True)

    async def stop(self) -> None:
        """Export what has not been exported yet."""
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
        raise UsageError("--otel needs OpenTelemetry: pip install 'promptools-compat[otel]'") from error
    name = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME_KEY: SERVICE_NAME}
    provider = TracerProvider(resource=Resource.create(name))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class LoggedExchanges(Extension):
    """Logs one line to stderr for each exchange, and for each request that was refused or passed unread."""

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
        """Write the log's lines as they are."""
        logger = logging.getLogger(LOGGER)
        self._handler = logging.StreamHandler()
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(self._handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    async def stop(self) -> None:
        """Detach from the logger."""
        if self._handler is not None:
            logging.getLogger(LOGGER).removeHandler(self._handler)
