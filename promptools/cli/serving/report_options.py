"""The options of `serve` for those who run it: what it reports, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from promptools.proxy import Extension

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
        "--otel",
        action="store_true",
        help="export OpenTelemetry spans of all exchanges, to where the OTEL_* environment variables say",
    )


def extensions(arguments: argparse.Namespace) -> list[Extension]:
    """Return the extensions that the options ask for; health and metrics are always there."""
    from promptools.proxy.operations import Health, LoggedExchanges, MetricsPage, TracedExchanges

    extensions: list[Extension] = [Health(), MetricsPage()]
    if arguments.otel:
        extensions.append(TracedExchanges())
    if arguments.log_format != "none":
        extensions.append(LoggedExchanges(arguments.log_format))
    return extensions
