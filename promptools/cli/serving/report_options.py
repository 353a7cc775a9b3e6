"""The options of `serve` for those who run it: what it reports, and how."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptools.telemetry.metrics import MULTIPROCESS_VARIABLE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from promptools.proxy import Extension

METRICS_KEY_VARIABLE = "PROMPTOOLS_METRICS_KEY"
_LOG_FORMATS = ("json", "text", "none")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--log-format",
        choices=_LOG_FORMATS,
        default="none",
        help="write a line to stderr for each exchange, without any text of users or models (default: none)",
    )
    parser.add_argument(
        "--metrics-key",
        metavar="KEY",
        help="a key that opens /metrics and nothing else; PROMPTOOLS_METRICS_KEY shows it to nobody else",
    )
    parser.add_argument(
        "--otel",
        action="store_true",
        help="export OpenTelemetry spans of all exchanges, as configured by the OTEL_* environment variables",
    )


def extensions(arguments: argparse.Namespace) -> list[Extension]:
    """Return the extensions that the options ask for; health and metrics are always there."""
    from promptools.proxy.operations import Health, LoggedExchanges, MetricsPage, TracedExchanges

    extensions: list[Extension] = [Health(), MetricsPage(keys=_metrics_keys(arguments))]
    if arguments.otel:
        extensions.append(TracedExchanges())
    if arguments.log_format != "none":
        extensions.append(LoggedExchanges(arguments.log_format))
    return extensions


def _metrics_keys(arguments: argparse.Namespace) -> list[str]:
    """Return the keys of the option and of the environment, where several are separated by blanks or commas."""
    named = os.environ.get(METRICS_KEY_VARIABLE, "").replace(",", " ").split()
    return [*([arguments.metrics_key] if arguments.metrics_key is not None else []), *named]


@contextmanager
def shared_counts() -> Generator[None]:
    """Have the worker processes that are started here count together, in files of a temporary folder.

    A folder that the environment names is left as it is.
    """
    if os.environ.get(MULTIPROCESS_VARIABLE):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="promptools-metrics-") as folder:
        os.environ[MULTIPROCESS_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS_VARIABLE]
