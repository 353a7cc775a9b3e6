"""Metrics of exchanges for Prometheus.

Every label has a limited number of values. Providers, modes, dialects and kinds come from promptools or the config. A
model's name comes from the client, so it becomes a label only when a request for the model has succeeded. At most
`MAX_MODELS` names become labels; the label of all other models is `other`.

A proxy also counts the requests that it refused, and those that it forwarded unread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, install_command
from promptools.telemetry.exchange_summary import ExchangeFollower

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from promptools.exchange import ObservedExchange
    from promptools.telemetry.exchange_summary import ExchangeSummary
    from promptools.types import HealingCost

MAX_MODELS = 50
"""Maximum number of models whose names become labels."""
OTHER = "other"
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which worker processes share their metrics.

prometheus-client reads the variable when it is imported."""
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_PLACE = ("api", "provider", "model")


class Metrics(ExchangeFollower):
    """Counts exchanges (clients' requests and their responses) in a Prometheus registry.

    Without `registry`, a new registry is made. It also has the metrics of the process, unless worker processes share
    their metrics.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__()
        prometheus = _library()
        self.registry = prometheus.CollectorRegistry() if registry is None else registry
        self._models: set[str] = set()
        self._children: dict[tuple[Any, ...], Any] = {}
        """Caches the metric for each combination of label values, since the library's own look-up takes a lock."""
        self._define(prometheus)
        if registry is None and not os.environ.get(MULTIPROCESS_VARIABLE):
            prometheus.ProcessCollector(registry=self.registry)

    def _define(self, prometheus: Any) -> None:
        def counter(name: str, text: str, *labels: str) -> Any:
            return prometheus.Counter(f"promptools_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Any:
            return prometheus.Histogram(f"promptools_{name}", text, labels, buckets=_SECONDS, registry=self.registry)

        self._requests = counter("requests", "Exchanges that have ended.", *_PLACE, "mode", "status")
        self._errors = counter("errors", "Exchanges that ended in an error.", "api", "provider", "kind")
        self._in_flight = prometheus.Gauge(
            "promptools_requests_in_flight",
            "Exchanges that have not ended.",
            ("api",),
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._seconds = histogram(
            "request_duration_seconds", "Seconds from a request to the end of its response.", *_PLACE
        )
        self._first_byte = histogram(
            "time_to_first_byte_seconds", "Seconds from a request to the first byte of a streamed response.", *_PLACE
        )
        self._attempts = counter("attempts", "Attempts by their outcome.", "provider", "mode", "outcome")
        self._fallbacks = counter(
            "fallbacks", "Attempts that failed and were followed by another.", "provider", "mode", "next_mode", "reason"
        )
        self._healing_requests = counter(
            "healing_requests", "Attempts that failed and were followed by another, by model.", "provider", "model"
        )
        self._healing_tokens = counter(
            "healing_tokens", "Tokens of these attempts, by the servers' own count.", "provider", "model", "type"
        )
        self._healing_seconds = counter("healing_seconds", "Seconds of these attempts.", "provider", "model")
        self._calls = counter("calls", "Tool calls that clients got.", "provider", "model", "dialect")
        self._fixes = counter("fixes", "Repairs of tool calls.", "provider", "dialect", "kind")
        self._malformed = counter("malformed", "Malformed tool calls.", "provider", "dialect", "reason")
        self._repeated = counter(
            "repeated", "Requests whose history repeats a call and its result.", "provider", "model", "action"
        )
        self._tokens = counter("tokens", "Tokens by the servers' own count.", "provider", "model", "type")
        self._refused = counter("refused", "Requests that the proxy refused.", "route", "status", "reason")
        self._passed = counter("passed", "Requests that passed unread.", "route", "status", "outcome")
        self._passed_seconds = histogram(
            "passed_duration_seconds", "Seconds from a request that passed unread to the end of its response.", "route"
        )

    def _child(self, metric: Any, *labels: str) -> Any:
        """Return the (cached) counter, gauge or histogram of a metric for these label values."""
        child = self._children.get((metric, *labels))
        if child is None:
            child = self._children[metric, *labels] = metric.labels(*labels)
        return child

    def began(self, exchange: ObservedExchange) -> None:
        """Count an exchange as in flight."""
        super().began(exchange)
        self._child(self._in_flight, exchange.api).inc()

    def report(self, summary: ExchangeSummary) -> None:
        """Count an exchange that has ended."""
        api, provider = summary.exchange.api, summary.provider
        model = self._label_model(summary)
        self._child(self._in_flight, api).dec()
        self._child(self._requests, api, provider, model, summary.mode, summary.status).inc()
        if summary.error:
            self._child(self._errors, api, provider, summary.error).inc()
        self._child(self._seconds, api, provider, model).observe(summary.seconds)
        if summary.end.streamed and summary.seconds_to_first_byte is not None:
            self._child(self._first_byte, api, provider, model).observe(summary.seconds_to_first_byte)
        for attempt in summary.attempts:
            self._child(self._attempts, provider, attempt.mode, attempt.outcome).inc()
        for failed, next_mode in summary.fallbacks:
            self._child(self._fallbacks, provider, failed.mode, next_mode, failed.outcome).inc()
        for kind, tokens in zip(("input", "output"), summary.tokens, strict=True):
            if tokens:
                self._child(self._tokens, provider, model, kind).inc(tokens)
        self._count_healing(summary.healing, provider, model)
        if summary.repeat_action:
            self._child(self._repeated, provider, model, summary.repeat_action).inc()
        if summary.end.replies or summary.end.attempts:
            self._count_calls(summary, provider, model)

    def count_refusal(self, route: str, status: int | None, reason: str) -> None:
        """Count a request that the proxy refused; `reason` is the error code of the refusal."""
        self._refused.labels(route, _label_status(status), reason).inc()

    def count_passed(self, route: str, status: int | None, outcome: str, seconds: float) -> None:
        """Count a request that was forwarded unread and has ended."""
        self._passed.labels(route, _label_status(status), outcome).inc()
        self._passed_seconds.labels(route).observe(seconds)

    def _count_healing(self, cost: HealingCost, provider: str, model: str) -> None:
        if not cost.requests:
            return
        self._child(self._healing_requests, provider, model).inc(cost.requests)
        self._child(self._healing_seconds, provider, model).inc(cost.seconds)
        for kind, tokens in (("input", cost.input_tokens), ("output", cost.output_tokens)):
            if tokens:
                self._child(self._healing_tokens, provider, model, kind).inc(tokens)

    def _count_calls(self, summary: ExchangeSummary, provider: str, model: str) -> None:
        for call in summary.calls:
            self._child(self._calls, provider, model, call.dialect or "native").inc()
        for dialect, fix in summary.fixes:
            self._child(self._fixes, provider, dialect or "none", fix.kind).inc()
        for malformed in summary.malformed:
            self._child(self._malformed, provider, malformed.dialect or "none", malformed.reason).inc()

    def _label_model(self, summary: ExchangeSummary) -> str:
        """Return the label for the model of an exchange. A failed request adds no new label."""
        model = summary.model
        if model not in self._models and not summary.error and len(self._models) < MAX_MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type, in the format that the `Accept` field asks for.

        If worker processes share their metrics, the metrics of all are returned.
        """
        prometheus = _library()
        registry = self.registry
        if os.environ.get(MULTIPROCESS_VARIABLE):
            from prometheus_client import multiprocess

            registry = prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        encode, content_type = prometheus.exposition.choose_encoder(accept)
        return encode(registry), content_type

    def close(self) -> None:
        """Remove the gauges of this process from the metrics that worker processes share."""
        if os.environ.get(MULTIPROCESS_VARIABLE):
            from prometheus_client import multiprocess

            multiprocess.mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]


def _label_status(status: int | None) -> str:
    return "none" if status is None else str(status)


def _library() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise UsageError(f"metrics need prometheus-client: {install_command('server')}") from error
    return prometheus_client
