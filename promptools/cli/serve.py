"""Run the proxy: any app that speaks the OpenAI API gets working tool calls from the server behind it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any, get_args

from promptools import dialects
from promptools.cli.arguments import add_config, add_detect, read_config
from promptools.errors import UsageError
from promptools.modes.ask import Hold
from promptools.types import ModeName, Strictness

if TYPE_CHECKING:
    from promptools.proxy import Proxy

NAME = "serve"

_BACKLOG = 2048


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--base-url", metavar="URL", help="the server behind the proxy, with /v1")
    parser.add_argument("--provider", metavar="NAME", help="a provider of the config, or a kind of server")
    add_config(parser)
    add_detect(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--port", type=int, default=8100, help="port to listen on; 0 takes any free one (default: 8100)"
    )
    parser.add_argument("--mode", choices=get_args(ModeName), help="ask for tools in this mode only")
    parser.add_argument("--dialect", choices=dialects.names(), metavar="NAME", help="dialect of prompt mode")
    parser.add_argument(
        "--accept", action="append", choices=dialects.names(), metavar="NAME", help="a dialect in which calls are read"
    )
    parser.add_argument("--strictness", choices=get_args(Strictness))
    parser.add_argument(
        "--hold", choices=get_args(Hold), help="all: stream nothing before the reply is known to be good"
    )
    parser.add_argument("--max-tools", type=int, metavar="N", help="tools of one request; 0: any number (default: 4096)")
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="bounds all that is sent for one request")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted. The line `listening URL` on stdout says that it is up."""
    from promptools.proxy import Proxy

    chosen = (
        "base_url", "provider", "mode", "dialect", "accept", "strictness", "hold", "deadline", "detect", "max_tools",
    )  # fmt: skip
    settings: dict[str, Any] = {
        name: getattr(arguments, name) for name in chosen if getattr(arguments, name) is not None
    }
    proxy = Proxy(config=read_config(arguments.config), **settings)
    listener = _listen(arguments.host, arguments.port)
    host, port = listener.getsockname()[:2]
    print(f"promptools stands before {proxy.base_url}")
    print(f"listening http://{f'[{host}]' if ':' in host else host}:{port}/v1", flush=True)
    _serve(proxy, listener)
    return 0


def _serve(proxy: Proxy, listener: socket.socket) -> None:
    try:
        import uvicorn
    except ImportError as error:
        raise UsageError("serving needs uvicorn: pip install 'promptools[server]'") from error
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    config = uvicorn.Config(proxy, log_level="warning", lifespan="on", timeout_graceful_shutdown=2)
    logging.getLogger("uvicorn.error").addFilter(_no_cancelled)
    config.server_header = config.date_header = False  # the server's own pass: no second ones beside them
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # before we say so: who connects now waits, and is not refused
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; name another with --port") from error
    return listener


def _no_cancelled(record: logging.LogRecord) -> bool:
    """Leave out the tracebacks of the answers that were cut off because the proxy was told to end."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)
