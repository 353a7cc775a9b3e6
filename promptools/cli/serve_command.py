"""The command `promptools serve`: its flags, in groups, and the proxy that they describe.

`http_server` serves the proxy, `workers` serves it in several processes, and `server_summary` prints a summary at the
start. These modules are imported when the proxy starts, not for `--help`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.command_log import log_if_healed, log_level, show_log
from promptools.cli.proxy_addresses import refuse_itself
from promptools.cli.shared_arguments import (
    add_base_url,
    add_config,
    add_detect,
    add_dialect_files,
    add_json,
    add_provider,
    at_least,
    read_config,
    read_text,
    seconds,
    seconds_or_none,
)
from promptools.cli.terminal_output import print_progress
from promptools.errors import UsageError
from promptools.modes.options import Hold
from promptools.profiles.profile import OnRepeat
from promptools.recording.recorder import DEFAULT_LIMIT, MIN_LIMIT, Recorder
from promptools.telemetry.metrics import MULTIPROCESS_VARIABLE
from promptools.types import ModeName, Strictness

if TYPE_CHECKING:
    from collections.abc import Generator

    from promptools.profiles import Config
    from promptools.proxy import Extension, Proxy
    from promptools.proxy.access import ApiKey


# Limits in number, size and time, and processes that share them.


_LIMITS = ("requests_per_minute", "concurrency", "queue", "queue_timeout")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit the number of requests, and the size of requests and replies."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--requests-per-minute",
        type=at_least(1, "requests"),
        metavar="N",
        help="requests beyond this rate are refused with 429",
    )
    group.add_argument(
        "--concurrency",
        type=at_least(1, "requests"),
        metavar="N",
        help="maximum number of requests in progress; others wait",
    )
    group.add_argument(
        "--queue",
        type=at_least(0, "requests"),
        metavar="N",
        help="maximum number of waiting requests; others are refused (default: 100)",
    )
    group.add_argument(
        "--max-body",
        type=at_least(1, "bytes"),
        metavar="BYTES",
        help="maximum size of a request's body (default: 64 MiB)",
    )
    group.add_argument(
        "--max-reply",
        type=at_least(1, "bytes"),
        metavar="BYTES",
        help="maximum size of a reply held in memory (default: 64 MiB)",
    )


def add_times(parser: argparse.ArgumentParser) -> None:
    """Add the options for time limits."""
    group = parser.add_argument_group("time limits")
    group.add_argument(
        "--deadline", type=seconds, metavar="SECONDS", help="longest time for all attempts at one request"
    )
    group.add_argument(
        "--attempt-timeout",
        type=seconds,
        metavar="SECONDS",
        help="longest time for one request to the server, including its reply",
    )
    group.add_argument(
        "--queue-timeout", type=seconds, metavar="SECONDS", help="longest time that a request may wait (default: 30)"
    )
    group.add_argument(
        "--head-timeout",
        type=seconds_or_none,
        metavar="SECONDS",
        default=30.0,
        help="longest time for a client to send the head of a request; 0: no limit (default: 30)",
    )
    group.add_argument(
        "--heartbeat",
        type=seconds_or_none,
        metavar="SECONDS",
        help="send a keep-alive comment after so many silent seconds in a stream; 0: never (default: 5)",
    )
    group.add_argument(
        "--drain-seconds",
        type=seconds_or_none,
        metavar="SECONDS",
        default=30.0,
        help="how long requests may take to finish after SIGTERM (default: 30)",
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add `--workers` and `--redis-url`."""
    group = parser.add_argument_group("processes")
    group.add_argument(
        "--workers",
        type=at_least(1, "processes"),
        metavar="N",
        default=1,
        help="number of server processes (default: 1)",
    )
    group.add_argument(
        "--redis-url",
        metavar="URL",
        help="share state between workers and replicas through this Redis, such as redis://HOST:6379/0",
    )


def limit_settings(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Return the arguments of `Proxy` that the options set: limits, CORS origins, Redis, and the attempt timeout."""
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


# Reports for operators: logs, metrics and spans.


METRICS_KEY_VARIABLE = "PROMPTOOLS_METRICS_KEY"
_LOG_FORMATS = ("json", "text", "none")


def add_reports(parser: argparse.ArgumentParser) -> None:
    """Add the options for logs, metrics and spans."""
    group = parser.add_argument_group("logs and metrics")
    group.add_argument(
        "--log-format",
        choices=_LOG_FORMATS,
        default="none",
        help="log each exchange to stderr, without text from users or models (default: none)",
    )
    group.add_argument(
        "--metrics-key",
        metavar="KEY",
        help="a key for /metrics alone (prefer PROMPTOOLS_METRICS_KEY: other users of this machine can see arguments)",
    )
    group.add_argument(
        "--otel",
        action="store_true",
        help="export OpenTelemetry spans of all exchanges, as configured by the OTEL_* environment variables",
    )


def reporting_extensions(arguments: argparse.Namespace) -> list[Extension]:
    """Return the proxy's extensions: those for health checks and metrics and, if requested, for spans and logs."""
    from promptools.proxy.operations import Health, LoggedExchanges, MetricsPage, TracedExchanges

    reporting_extensions: list[Extension] = [Health(), MetricsPage(keys=_metrics_keys(arguments))]
    if arguments.otel:
        reporting_extensions.append(TracedExchanges())
    if arguments.log_format != "none":
        reporting_extensions.append(LoggedExchanges(arguments.log_format))
    return reporting_extensions


def _metrics_keys(arguments: argparse.Namespace) -> list[str]:
    """Return the keys for the metrics page, from the option and from the environment variable.

    In the variable, keys are separated by blanks or commas.
    """
    named = os.environ.get(METRICS_KEY_VARIABLE, "").replace(",", " ").split()
    return [*([arguments.metrics_key] if arguments.metrics_key is not None else []), *named]


@contextmanager
def shared_counts() -> Generator[None]:
    """Make the worker processes share their metrics, through files in a temporary folder.

    If `PROMETHEUS_MULTIPROC_DIR` names a folder, that folder is used instead.
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


# Recording raw replies.


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Add the options for recording."""
    group = parser.add_argument_group("recording")
    group.add_argument("--record", metavar="DIR", help="record raw replies and their tools in this directory")
    group.add_argument(
        "--record-messages",
        action="store_true",
        help="also record the requests' messages, which contain what users write",
    )
    group.add_argument(
        "--record-limit",
        type=at_least(MIN_LIMIT, "bytes"),
        metavar="BYTES",
        help="maximum size of all recordings; the oldest are deleted (default: 256 MiB)",
    )
    group.add_argument(
        "--redact",
        metavar="PATTERN",
        action="append",
        default=[],
        help="replace text that matches this regular expression in recordings (repeatable)",
    )


def recording_extensions(arguments: argparse.Namespace, config: Config) -> list[Extension]:
    """Return the extension that records replies, if `--record` asks for it.

    The extension redacts text that matches the patterns of the config or those of `--redact`.
    """
    if arguments.record is None:
        if arguments.record_messages or arguments.record_limit or arguments.redact:
            raise UsageError("--record-messages, --record-limit and --redact belong to a recording: add --record DIR")
        return []
    from promptools.proxy.operations import RecordingExtension

    limit = arguments.record_limit or DEFAULT_LIMIT
    patterns = (*config.proxy.redact, *arguments.redact)
    return [
        RecordingExtension(Recorder(arguments.record, redact=patterns, messages=arguments.record_messages, limit=limit))
    ]


# The inspector: its flag, and its extension.


def add_inspector(parser: argparse.ArgumentParser) -> None:
    """Add `--inspect`."""
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="keep the last exchanges in memory, including prompts and replies, and show them at /inspect",
    )


def inspector_extensions(arguments: argparse.Namespace) -> list[Extension]:
    """Return the proxy's extension for the inspector if `--inspect` is given."""
    if not arguments.inspect:
        return []
    if arguments.workers > 1:
        raise UsageError("--inspect needs --workers 1: each worker would show only its own exchanges")
    from promptools.proxy.inspector import Inspector

    return [Inspector()]


def warn_of_readers(arguments: argparse.Namespace, proxy: Proxy) -> None:
    """Warn if everyone who can connect to the proxy can read what the inspector shows."""
    if arguments.inspect and arguments.no_api_key and not proxy.access.requires_key:
        print_progress("warning: anyone who can connect to this proxy can read all prompts and replies at /inspect")


# The command itself.


_BACKLOG = 2048
_OPTIONS = (
    *("base_url", "provider", "mode", "dialect", "accept", "strictness", "hold", "deadline", "detect"),
    *("on_repeat", "repeats"),
    *("escape", "heal_format", "allow_provider", "max_body", "max_reply", "max_tools", "heartbeat"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.set_defaults(log_level=logging.INFO)
    add_base_url(parser)
    add_provider(parser)
    add_config(parser)
    add_detect(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--port", type=_port, default=8100, help="port to listen on; 0 takes any free one (default: 8100)"
    )
    add_inspector(parser)
    add_json(parser)
    add_dialect_files(parser)
    _add_request_defaults(parser)
    _add_access(parser)
    add_limits(parser)
    add_times(parser)
    add_processes(parser)
    add_reports(parser)
    add_recording(parser)


_WORDS = (
    "A mode is a way to request tools: native, as the app does; prompt, in the text of the prompt; raw, in the model's"
    " own template and without the server's parser; harmony, in the format of gpt-oss. A dialect is how a model writes"
    " calls as text."
)


def _add_request_defaults(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tool calls", _WORDS)
    group.add_argument("--mode", choices=get_args(ModeName), help="request tools in this mode only")
    group.add_argument("--dialect", metavar="NAME", help="dialect of prompt mode")
    group.add_argument(
        "--accept",
        action="append",
        metavar="NAME",
        help="accept calls in this dialect, besides the one that prompt mode requests (repeatable)",
    )
    group.add_argument("--strictness", choices=get_args(Strictness), help="how much evidence a call in text needs")
    group.add_argument("--hold", choices=get_args(Hold), help="all: stream nothing before the whole reply is checked")
    group.add_argument(
        "--on-repeat",
        choices=get_args(OnRepeat),
        help="what to do about a call that the history repeats: hint tells the model, answer makes it answer"
        " without tools (default: hint in prompt and harmony mode)",
    )
    group.add_argument(
        "--repeats",
        type=at_least(0, "calls"),
        metavar="N",
        help="apply --on-repeat when the history has the same call and result so often (default: 2; 0: never)",
    )
    group.add_argument(
        "--max-tools",
        type=at_least(0, "tools"),
        metavar="N",
        help="maximum number of tools in a request (default: 4096; 0: no limit)",
    )
    group.add_argument(
        "--no-escape",
        dest="escape",
        action="store_const",
        const=False,
        help="do not escape control tokens in messages, results and tools",
    )
    group.add_argument(
        "--no-heal-format",
        dest="heal_format",
        action="store_const",
        const=False,
        help="do not repair answers that do not match response_format",
    )


def _add_access(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access")
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="require an API key from this file: one key per line, or NAME = KEY",
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        action="append",
        default=[],
        help="require this API key (prefer PROMPTOOLS_API_KEY or --api-key-file: other users of this machine can see"
        " arguments; repeatable)",
    )
    group.add_argument(
        "--api-key-env",
        metavar="NAME",
        action="append",
        default=[],
        help="require an API key from this environment variable (repeatable)",
    )
    group.add_argument(
        "--no-api-key",
        action="store_true",
        help="listen on the network without an API key: anyone who can reach the proxy can use it",
    )
    group.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="without an API key, also accept this host name over loopback ('*': any; repeatable)",
    )
    group.add_argument(
        "--allow-provider",
        action="store_true",
        default=None,
        help="let requests choose another provider of the config, and use its key",
    )
    group.add_argument(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="let web pages of this origin use the proxy, such as https://HOST ('*': any, with an API key)",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted.

    The line `listening URL` on stdout, or with `--json` an object with the URL, means that the proxy is up.
    """
    from promptools.cli.server_summary import print_servers

    proxy = build_proxy(arguments)
    listener = listen(arguments.host, arguments.port, allow_remote=proxy.access.requires_key or arguments.no_api_key)
    host, port = listener.getsockname()[:2]
    refuse_itself(proxy, listener)
    print_servers(proxy, print_progress if arguments.json or arguments.quiet else print)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    warn_of_readers(arguments, proxy)
    _print_addresses(f"{address}/v1", f"{address}/inspect" if arguments.inspect else None, as_json=arguments.json)
    if arguments.workers > 1:
        if proxy.admission.has_limits and proxy.admission.shared is None:
            print_progress("warning: each worker applies the limits on its own; with --redis-url all share them")
        _run_workers(arguments, listener)
    else:
        _serve(proxy, listener, arguments)
    return 0


def _print_addresses(address: str, inspector: str | None, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"listening": address, "inspector": inspector}), flush=True)
        return
    if inspector:
        print(f"inspector {inspector}")
    print(f"listening {address}", flush=True)


def _run_workers(arguments: argparse.Namespace, listener: socket.socket) -> None:
    """Run the workers until a signal ends them; then end this process with the same signal."""
    from promptools.cli.workers import Supervisor

    with shared_counts():
        signal_number = Supervisor(_serve_worker, arguments, listener, arguments.workers).run()
    if signal_number is not None:
        signal.raise_signal(signal_number)


def _serve_worker(arguments: argparse.Namespace, listener: socket.socket) -> None:
    """Serve in a worker process."""
    with show_log(log_level(arguments)):
        _serve(build_proxy(arguments), listener, arguments)


def build_proxy(arguments: argparse.Namespace) -> Proxy:
    """Build the proxy that the arguments describe."""
    from promptools.cli import http_server
    from promptools.proxy import Proxy

    config = proxy_config(arguments)
    settings: dict[str, Any] = {
        name: getattr(arguments, name) for name in _OPTIONS if getattr(arguments, name) is not None
    }
    if arguments.verbose:
        settings["on_reply"] = log_if_healed
    return Proxy(
        config=config,
        dialects=arguments.dialect_files,
        api_keys=_keys(arguments),
        allowed_hosts=(*arguments.allowed_host, arguments.host),
        **limit_settings(arguments, config),
        extensions=(
            *reporting_extensions(arguments),
            *recording_extensions(arguments, config),
            *inspector_extensions(arguments),
            *http_server.reload_extensions(arguments, config),
        ),
        **settings,
    )


def proxy_config(arguments: argparse.Namespace) -> Config:
    """Read the config of a proxy; raise `UsageError` if neither the config nor the arguments name a server."""
    config = read_config(arguments.config)
    if not (arguments.base_url or arguments.provider or config.providers):
        raise UsageError("no server is configured: add --base-url URL, or --config FILE with a provider")
    return config


def _keys(arguments: argparse.Namespace) -> list[str | ApiKey]:
    from promptools.proxy.access import read_key_file, read_keys

    name = arguments.api_key_file
    keys = read_key_file(read_text(name), name) if name is not None else []
    return [*arguments.api_key, *(key for variable in arguments.api_key_env for key in read_keys(variable)), *keys]


def _serve(proxy: Proxy, listener: socket.socket, arguments: argparse.Namespace) -> None:
    from promptools.cli.http_server import ProxyServer, raise_descriptor_limit

    raise_descriptor_limit()
    gc.freeze()  # what has been loaded stays, so no collection needs to look at it again
    gc.set_threshold(10_000, 20, 20)  # requests leave no cycles, but at the default of 700 each costs a collection
    sys.setswitchinterval(0.001)  # at each read, the event loop waits this long for a thread that computes
    head_seconds = arguments.head_timeout or None
    ProxyServer(proxy, drain_seconds=arguments.drain_seconds, head_seconds=head_seconds).run(sockets=[listener])


def listen(host: str, port: int, *, allow_remote: bool) -> socket.socket:
    """Listen on the first address of a host.

    Raises `UsageError` if listening is not possible, or if the address is not a loopback address and `allow_remote` is
    false.
    """
    from promptools.proxy.access import is_loopback

    family, address = _resolve_host(host, port)
    if not (allow_remote or is_loopback(address[0])):
        raise UsageError(
            f"{host} can be reached from other machines, and without an API key all of them could use the proxy and the"
            " server's key: set PROMPTOOLS_API_KEY or --api-key-file, or listen on 127.0.0.1; behind a gateway that"
            " authenticates clients, add --no-api-key"
        )
    # asyncio turns Nagle's algorithm off only if the protocol is named; otherwise every response takes 40 ms longer
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)  # before `listening` is printed: from now on connections wait, and are not refused
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; name another with --port") from error
    return listener


@contextmanager
def serve_in_thread(proxy: Proxy, *, drain_seconds: float = 0) -> Generator[str]:
    """Serve a proxy in a thread, on a free port of 127.0.0.1; yield its address.

    Raises `UsageError` if uvicorn is not installed.
    """
    from promptools.cli.http_server import ProxyServer

    host = "127.0.0.1"
    server = ProxyServer(proxy, drain_seconds=drain_seconds)
    listener = listen(host, 0, allow_remote=False)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="promptools-proxy")
    thread.start()
    try:
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _resolve_host(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Resolve a host to an address.

    This is done only once, so that the address that is checked is also the one to listen on.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:  # ValueError: the text cannot be a host name at all
        reason = getattr(error, "strerror", None) or "not a valid host name"
        raise UsageError(f"cannot listen on {host!r}: {reason}; name an address of this machine with --host") from error
    first = next((info for info in infos if info[0] == socket.AF_INET), infos[0])
    return first[0], first[4]
