"""Observers that report on exchanges as metrics, spans and log lines, without the text of users and models.

All are built on `ExchangeFollower`, which reduces an exchange to an `ExchangeSummary`. The reports contain no text of a
user or a model, except the model's name. Nothing leaves the process unless the app passes an exporter.
"""

from promptools.telemetry.exchange_log import ExchangeLog
from promptools.telemetry.metrics import Metrics
from promptools.telemetry.spans import Spans

__all__ = ["ExchangeLog", "Metrics", "Spans"]
