"""The flags of `promptools serve` about how much may be requested, and by which web pages."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import at_least, seconds, seconds_or_none

if TYPE_CHECKING:
    from promptools.profiles import Config

_LIMITS = ("requests_per_minute", "concurrency", "queue", "queue_timeout")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--requests-per-minute",
        type=at_least(1, "requests"),
        metavar="N",
        help="requests beyond this rate are refused with 429",
    )
    parser.add_argument(
        "--concurrency",
        type=at_least(1, "requests"),
        metavar="N",
        help="maximum number of requests in progress; others wait",
    )
    parser.add_argument(
        "--queue",
        type=at_least(0, "requests"),
        metavar="N",
        help="maximum number of waiting requests; others are refused (default: 100)",
    )
    parser.add_argument(
        "--queue-timeout", type=seconds, metavar="SECONDS", help="longest time that a request may wait (default: 30)"
    )
    parser.add_argument(
        "--attempt-timeout",
        type=seconds,
        metavar="SECONDS",
        help="longest time for one request to the server, including its reply",
    )
    _add_sharing(parser)


def _add_sharing(parser: argparse.ArgumentParser) -> None:
    """Add the options of who else may use the proxy, and of processes that share work and state."""
    parser.add_argument(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="an origin whose web pages may use the proxy, as https://HOST ('*': any, with an API key)",
    )
    parser.add_argument(
        "--redis-url",
        metavar="URL",
        help="Redis server through which workers and replicas share their state, as redis://HOST:6379/0",
    )
    parser.add_argument(
        "--workers",
        type=at_least(1, "processes"),
        metavar="N",
        default=1,
        help="number of server processes (default: 1)",
    )
    parser.add_argument(
        "--head-timeout",
        type=seconds_or_none,
        metavar="SECONDS",
        default=30.0,
        help="longest time for a client to send the head of a request; 0: no limit (default: 30)",
    )
    parser.add_argument(
        "--drain-seconds",
        type=seconds_or_none,
        metavar="SECONDS",
        default=30.0,
        help="how long requests may take to finish after SIGTERM (default: 30)",
    )


def settings(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Return the arguments of `Proxy` that the flags set."""
    from promptools.proxy.admission import config_limits

    given = {name: value for name in _LIMITS if (value := getattr(arguments, name)) is not None}
    changed: dict[str, Any] = {"cors_origins": arguments.cors_origin}
    if given:
        changed["limits"] = replace(config_limits(config.proxy), **given)
    if arguments.redis_url is not None:
        changed["redis_url"] = arguments.redis_url
    if arguments.attempt_timeout is not None:
        changed["attempt_timeout"] = arguments.attempt_timeout
    return changed
