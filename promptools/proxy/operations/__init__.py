"""Extensions for those who run the proxy: health, metrics, spans and the log. The observers are in `telemetry`."""

from promptools.proxy.operations.health import Health
from promptools.proxy.operations.reports import LoggedExchanges, MetricsPage, TracedExchanges

__all__ = ["Health", "LoggedExchanges", "MetricsPage", "TracedExchanges"]
