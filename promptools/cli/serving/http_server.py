"""The HTTP server of `promptools serve`: uvicorn, with a drain and a bound on request headers.

After the first signal it accepts no more connections, and what is in flight may finish for `drain_seconds`; the proxy
ends the rest, each with an error in the client's API. An interrupt from the keyboard waits no longer than
`INTERRUPT_SECONDS`. A second signal ends everything at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.proxy.admission.limits import MAX_HEADER_BYTES

try:
    import uvicorn
except ImportError as error:
    raise UsageError("serving needs uvicorn: pip install 'promptools-compat[server]'") from error

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from promptools.proxy import Proxy

DRAIN_SECONDS = 30.0
INTERRUPT_SECONDS = 2.0
_END_SECONDS = 3
"""Seconds after the drain within which the errors are written, before uvicorn cancels what is left."""
HEADER_BUFFER = 2 * MAX_HEADER_BYTES
"""Most bytes of a request's head that are buffered: above the proxy's own bound, whose error is in the client's API."""
_UPGRADE_FIELDS = frozenset({b"upgrade", b"http2-settings", b"connection"})
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class ProxyServer(uvicorn.Server):
    """A uvicorn server that lets a proxy finish what it has begun."""

    def __init__(self, proxy: Proxy, *, drain_seconds: float = DRAIN_SECONDS) -> None:
        config = uvicorn.Config(
            proxy,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # nothing depends on the client's address or scheme
            lifespan="on",
            http=_http_protocol(),
            h11_max_incomplete_event_size=HEADER_BUFFER,
            timeout_graceful_shutdown=int(drain_seconds) + _END_SECONDS,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_not_cancellation)
        config.server_header = config.date_header = (
            False  # the upstream's own `Server` and `Date` fields pass; uvicorn must not add its own
        )
        super().__init__(config)
        self._proxy = proxy
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal, end at the second."""
        if self.should_exit:
            self.force_exit = True
        if sig == signal.SIGINT:
            self._drain_seconds = min(self._drain_seconds, INTERRUPT_SECONDS)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait for those that are in use."""
        drain = asyncio.ensure_future(self._proxy.drain(self._drain_seconds))
        try:
            await super().shutdown(sockets)
        finally:
            drain.cancel()


def raise_descriptor_limit() -> None:
    """Let this process have as many open files as the system allows it: each stream has two connections.

    The usual default of 1024 is less than one worker serves, and is kept for programs that use `select`.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != most:
        with suppress(ValueError, OSError):  # macOS names no limit, and refuses that as a value
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _http_protocol() -> Any:
    """Return uvicorn's own choice of a protocol; with httptools, one that bounds heads and keeps bodies."""
    if find_spec("httptools") is None:
        return "auto"
    from httptools import HttpParserUpgrade, HttpRequestParser
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class ProxyHttpProtocol(HttpToolsProtocol):
        """Refuses a request whose head does not end, and reads the body of one that offers an upgrade.

        Java's HTTP client offers HTTP/2 with every request (`Upgrade: h2c`). httptools ends a request with an upgrade
        after its head. So one whose upgrade is not taken is parsed again, without the offer.
        """

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
            """Parse the request again; called where `HttpParserUpgrade` is handled."""
            upgrade = sys.exception()
            if isinstance(upgrade, HttpParserUpgrade) and _ignores_upgrade(self):
                head = _head_without_upgrade(self.parser, self.url, self.headers)
                self.parser = HttpRequestParser(self)
                self.data_received(head + self._data[upgrade.args[0] :])

    return ProxyHttpProtocol


def _ignores_upgrade(protocol: Any) -> bool:
    """Whether a request offers another protocol, and it is not taken."""
    return protocol._get_upgrade() is not None and not protocol._should_upgrade()  # noqa: SLF001


def _head_without_upgrade(parser: Any, target: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of the request that was parsed, without the offer of an upgrade."""
    line = b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())
    kept = (b"%b: %b" % pair for pair in fields if pair[0] not in _UPGRADE_FIELDS)
    return b"\r\n".join([line, *kept, b"", b""])


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """Filter out the tracebacks of responses that were cancelled because the proxy was stopped."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)
