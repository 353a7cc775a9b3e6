"""The HTTP server of `promptools serve`: uvicorn, with an orderly shutdown and limits on the head of a request.

The head of a request is its request line and header fields.

After the first signal the server accepts no more connections. Requests in progress get `drain_seconds` to finish, but
after an interrupt from the keyboard at most `INTERRUPT_SECONDS`. The proxy then ends the remaining requests, each with
an error in the format of the client's API. A second signal ends all requests immediately. On SIGHUP the config is read
again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import read_config
from promptools.errors import UsageError, install_command
from promptools.log import log
from promptools.proxy import Extension
from promptools.proxy.admission import MAX_HEADER_BYTES

if TYPE_CHECKING:
    import argparse
    import socket
    from types import FrameType

    from promptools.profiles import Config
    from promptools.proxy import Proxy


try:
    import uvicorn
except ImportError as error:
    raise UsageError(f"serving needs uvicorn: {install_command('server')}") from error


DRAIN_SECONDS = 30.0
INTERRUPT_SECONDS = 2.0
_END_SECONDS = 3
"""Seconds for writing errors after `drain_seconds` have passed; then uvicorn cancels the remaining requests."""
HEAD_SECONDS = 30.0
"""Default time in seconds for a client to send the head of a request: its request line and header fields."""
_LAST_LOOK_SECONDS = 0.1
"""Extra seconds before a late connection is closed.

They are needed because a busy event loop may not have read data that arrived in time.
"""
HEADER_BUFFER = 2 * MAX_HEADER_BYTES
"""Maximum size in bytes of a request's head: its request line and header fields.

It is above the proxy's own limit, so that the client usually gets the proxy's error, in the format of the client's API.
"""
_UPGRADE_FIELDS = frozenset({b"upgrade", b"http2-settings", b"connection"})
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ProxyServer(uvicorn.Server):
    """A uvicorn server that gives the proxy time to finish the requests in progress when it is shut down."""

    def __init__(
        self, proxy: Proxy, *, drain_seconds: float = DRAIN_SECONDS, head_seconds: float | None = HEAD_SECONDS
    ) -> None:
        config = uvicorn.Config(
            proxy,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # nothing depends on the client's address or scheme
            lifespan="on",
            http=http_protocol(head_seconds=head_seconds),
            h11_max_incomplete_event_size=HEADER_BUFFER,
            timeout_graceful_shutdown=int(drain_seconds) + _END_SECONDS,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_not_cancellation)
        config.server_header = config.date_header = (
            False  # the `Server` and `Date` fields of the upstream are passed on; uvicorn must not add others
        )
        super().__init__(config)
        self._proxy = proxy
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the orderly shutdown at the first signal, and end immediately at the second."""
        if self.should_exit:
            self.force_exit = True
        if sig == signal.SIGINT:
            self._drain_seconds = min(self._drain_seconds, INTERRUPT_SECONDS)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait until the requests in progress have ended."""
        drain = asyncio.ensure_future(self._proxy.drain(self._drain_seconds))
        try:
            await super().shutdown(sockets)
        finally:
            drain.cancel()


def raise_descriptor_limit() -> None:
    """Raise this process's limit on open files as far as the system allows, because each stream uses two connections.

    The usual default of 1024 exists for programs that use `select`. It is less than a worker needs.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != most:
        with suppress(ValueError, OSError):  # macOS reports that there is no limit, and rejects that as a value
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _HeadTimer:
    """Closes a connection if the request line and header fields of a request do not arrive in time.

    This applies to every request on the connection. The class is a mixin for uvicorn's protocols, which only limit how
    long a connection may be idle between two requests. Bytes that arrive do not extend the time. If they did, a client
    that sends a byte every second (Slowloris) would occupy a connection forever.
    """

    head_seconds: float | None = None
    _timer: asyncio.TimerHandle | None = None
    _any_received = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        protocol: Any = self
        super().data_received(data)  # type: ignore[misc]
        cycle = protocol.cycle
        if cycle is not None and (cycle.more_body or not cycle.response_complete):
            self._stop_waiting()
        else:
            self._any_received = True
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        protocol: Any = self
        if self.head_seconds is not None and self._timer is None and not protocol.transport.is_closing():
            self._timer = protocol.loop.call_later(self.head_seconds, self._look_again)

    def _stop_waiting(self) -> None:
        self._any_received = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        protocol: Any = self
        self._timer = protocol.loop.call_later(_LAST_LOOK_SECONDS, self._close_late)

    def _close_late(self) -> None:
        protocol: Any = self
        if protocol.transport.get_protocol() is self and not protocol.transport.is_closing():
            if self._any_received:
                protocol.transport.write(_TOO_LATE)
            protocol.transport.close()


def http_protocol(kind: str | None = None, *, head_seconds: float | None = HEAD_SECONDS) -> Any:
    """Return a uvicorn protocol class that limits the time and size of a request's head.

    `kind` is `h11` or `httptools`; None means httptools if it is installed. `head_seconds` is the time limit; None
    means no limit. The class for httptools also reads the body of a request that offers an upgrade.
    """
    if kind == "h11" or (kind is None and find_spec("httptools") is None):
        return _h11_protocol(head_seconds)
    return _httptools_protocol(head_seconds)


def _h11_protocol(seconds: float | None) -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class ProxyH11Protocol(_HeadTimer, H11Protocol):
        """Closes a connection if the head of a request does not arrive in time.

        The size of the head is limited by uvicorn itself.
        """

        head_seconds = seconds

    return ProxyH11Protocol


def _httptools_protocol(seconds: float | None) -> Any:
    from httptools import HttpParserUpgrade, HttpRequestParser
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class ProxyHttpProtocol(_HeadTimer, HttpToolsProtocol):
        """Refuses a request whose head is too long, and reads the body of a request that offers an upgrade.

        Java's HTTP client offers HTTP/2 with every request (`Upgrade: h2c`). httptools treats such a request as ended
        after its head. If the upgrade is not accepted, the request is therefore parsed again without the offer.
        """

        head_seconds = seconds
        _head_size: int | None = None
        _data = b""

        def data_received(self, data: bytes) -> None:
            self._data = data
            super().data_received(data)
            if self._head_size is not None:
                self._head_size += len(data)
                if self._head_size > HEADER_BUFFER and not self.transport.is_closing():
                    self.transport.write(_TOO_LARGE)
                    self.transport.close()

        def on_message_begin(self) -> None:
            self._head_size = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._head_size = None
            if not _ignores_upgrade(self):
                super().on_headers_complete()

        def on_message_complete(self) -> None:
            if not _ignores_upgrade(self):
                super().on_message_complete()

        def _unsupported_upgrade_warning(self) -> None:
            """Parse the request again without the upgrade; uvicorn calls this when httptools reports an upgrade."""
            upgrade = sys.exception()
            if isinstance(upgrade, HttpParserUpgrade) and _ignores_upgrade(self):
                head = _head_without_upgrade(self.parser, self.url, self.headers)
                self.parser = HttpRequestParser(self)
                self.data_received(head + self._data[upgrade.args[0] :])

    return ProxyHttpProtocol


def _ignores_upgrade(protocol: Any) -> bool:
    """Return whether a request offers an upgrade that uvicorn does not accept."""
    return protocol._get_upgrade() is not None and not protocol._should_upgrade()  # noqa: SLF001


def _head_without_upgrade(parser: Any, target: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of the parsed request, without the offer of an upgrade."""
    line = b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())
    kept = (b"%b: %b" % pair for pair in fields if pair[0] not in _UPGRADE_FIELDS)
    return b"\r\n".join([line, *kept, b"", b""])


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """Return False for a log record about a response that was cancelled because the proxy is stopping."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


# Read the config of `promptools serve` again on SIGHUP.


_HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""The number of SIGHUP; None if the platform has no such signal."""


def reload_extensions(arguments: argparse.Namespace, config: Config) -> list[Extension]:
    """Return a list with the extension that reloads the config, or an empty list if the config has no providers."""
    return [ReloadOnHangup(arguments.config)] if config.providers else []


class ReloadOnHangup(Extension):
    """Reloads the proxy's config on SIGHUP, from the file that `--config` names or else the first config found."""

    def __init__(self, config: str | None) -> None:
        self._config = config

    async def start(self, proxy: Proxy) -> None:
        """Install the signal handler."""
        if _HANGUP is not None:
            asyncio.get_running_loop().add_signal_handler(_HANGUP, self._reload, proxy)

    async def stop(self) -> None:
        """Remove the signal handler."""
        if _HANGUP is not None:
            asyncio.get_running_loop().remove_signal_handler(_HANGUP)

    def _reload(self, proxy: Proxy) -> None:
        """Reload the config. If the new config has an error, nothing changes."""
        try:
            config = read_config(self._config)
            proxy.reload(config)
        except UsageError as error:
            log.warning("the config was not reloaded, and the old one stays: %s", error)
        else:
            log.info("the config was reloaded: %s", config.file)
