"""A proxy for a benchmark that asks over HTTP, in a thread of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.proxy import Proxy

_DRAIN_SECONDS = 2.0


@contextmanager
def serve_in_thread(proxy: Proxy) -> Generator[str, None, None]:
    """Serve a proxy on a free port of 127.0.0.1; yield its base URL. Raises `UsageError` without uvicorn."""
    from promptools.cli.serving.http_server import ProxyServer

    server = ProxyServer(proxy, drain_seconds=_DRAIN_SECONDS)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which its connections inherit
        host, port = listener.getsockname()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="promptools-proxy")
        thread.start()
        try:
            yield f"http://{host}:{port}/v1"
        finally:
            server.should_exit = True
            thread.join()
