"""Servers that keep the connection open after `[DONE]`, over sockets, and connections that serve a second request."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress

import pytest
from test_drivers import FAMILIES
from upstream import chunk, few_certificates

from promptools.profiles import Config
from promptools.transport import Session, intercept
from promptools.transport.http_library import import_library

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS = b"data: %b\n\n" % json.dumps(chunk({"content": "hello"})).encode()
LAST = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk({}, "stop")).encode()
END = b"0\r\n\r\n"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
ASKED = {
    "touched": {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]},
    "untouched": {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
}


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Server:
    """Sends the whole stream, and its end only once it is told to, together with it, or never."""

    def __init__(self, end):
        self.end = end
        self.release = threading.Event()
        self.ended = threading.Event()
        self.closed = threading.Event()
        self.served = []

    def serve(self, connection, number):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else the end waits for an acknowledgement
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            while self.request(lines):
                self.served.append(number)
                connection.sendall(HEAD + chunked(WORDS) + chunked(LAST) + (END if self.end == "at once" else b""))
                if self.end == "told":
                    assert self.release.wait(300)
                    connection.sendall(END)
                    self.ended.set()
        self.closed.set()

    def request(self, lines):
        size = 0
        while (line := lines.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        return bool(line) and bool(lines.read(size))


@contextmanager
def serving(end):
    server = Server(end)

    def accept():
        with suppress(OSError):
            number = 0
            while True:
                number += 1
                threading.Thread(target=server.serve, args=(listener.accept()[0], number), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener, few_certificates():
        threading.Thread(target=accept, daemon=True).start()
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
        yield server


def ask(family, colour, server, body, times=1):
    """Ask one client so many times; at each `[DONE]` the server is told that it may end."""
    session = Session({"config": Config(), "detect": False})
    said = []

    def take(pieces, piece):
        pieces.append(piece)
        if b"[DONE]" in piece:
            server.release.set()
            if server.end == "told":
                assert server.ended.wait(300)

    def sync():
        with intercept(family.module.Client(timeout=300), session) as http:
            for _ in range(times):
                said.append(pieces := [])
                server.release.clear()
                server.ended.clear()
                with http.stream("POST", server.url, json=body) as answer:
                    for piece in answer.iter_raw():
                        take(pieces, piece)

    async def asynchronous():
        async with intercept(family.module.AsyncClient(timeout=300), session) as http:
            for _ in range(times):
                said.append(pieces := [])
                server.release.clear()
                server.ended.clear()
                async with http.stream("POST", server.url, json=body) as answer:
                    async for piece in answer.aiter_raw():
                        take(pieces, piece)

    if colour == "sync":
        sync()
    else:
        asyncio.run(asynchronous())
    return [b"".join(each) for each in said]


@pytest.fixture(params=FAMILIES)
def family(request):
    return import_library(request.param)


@pytest.mark.parametrize("body", ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_end_of_the_connection_is_not_waited_for(family, colour, body):
    with serving("never") as server:
        (said,) = ask(family, colour, server, body)
        assert said.endswith(b"data: [DONE]\n\n")
        assert b'"finish_reason":"stop"' in said.replace(b" ", b"")
        assert server.closed.wait(300), "what is left of the connection is closed, and by the client"


@pytest.mark.parametrize("end", ["at once", "told"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_connection_whose_end_has_come_serves_the_next_request(family, colour, end):
    with serving(end) as server:
        assert [each.count(b"[DONE]") for each in ask(family, colour, server, ASKED["touched"], 3)] == [1, 1, 1]
        assert server.served == [1, 1, 1]
