"""A proxy under uvicorn, with either of its HTTP implementations, and what is asked of it over raw sockets."""

import asyncio
import importlib.util
import socket
import threading
import time
from contextlib import contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn")


class _Hurried:
    """`asyncio` as uvicorn sees it: ten times as often it looks whether it should end, and whether it can.

    Else each of a thousand proxies takes a quarter of a second to end, and does nothing.
    """

    def __getattr__(self, name):
        return getattr(asyncio, name)

    @staticmethod
    def sleep(seconds):
        return asyncio.sleep(seconds / 10)


vars(uvicorn.server)["asyncio"] = _Hurried()

HTTP = [
    "h11",
    pytest.param(
        "httptools",
        marks=pytest.mark.skipif(not importlib.util.find_spec("httptools"), reason="httptools is not installed"),
    ),
]


@contextmanager
def serving(app, http="h11", host="127.0.0.1", **options):
    config = uvicorn.Config(
        app, host=host, port=0, log_level="critical", loop="asyncio", ws="none", http=http, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(300)


def raw(port, data):
    """Send bytes, and return the status and the whole answer; 0 where the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as sock:
        sock.sendall(data)
        answer = b""
        while not _whole(answer) and (piece := sock.recv(65536)):
            answer += piece
    return int(answer.split()[1]) if answer else 0, answer


def _whole(answer):
    head, end, body = answer.partition(b"\r\n\r\n")
    fields = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
    length = next((int(value) for name, _, value in fields if name == b"content-length"), None)
    return bool(end) and (len(body) >= length if length is not None else body.endswith(b"0\r\n\r\n"))


def request(line, *fields, body=b""):
    head = [line, *fields, *([f"Content-Length: {len(body)}"] if body else [])]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


class Canary:
    """A place that must not be reached: it counts the connections that are made to it."""

    def __init__(self):
        self.heard = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(300)
                self.heard.append(connection.recv(65536))

    def close(self):
        self.sock.close()
