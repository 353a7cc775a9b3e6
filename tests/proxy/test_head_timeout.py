"""A connection that never sends the whole head of a request is closed; one that does is not, however busy all are."""

import socket
import threading
import time

import pytest
from serving import HTTP, serving

from promptools.cli.http_server import http_protocol

SAFETY = 300
"""Seconds after which a test fails that waits for something."""
SHORT = 0.2
LONG = 600.0


class App:
    """Answers a request once it may."""

    def __init__(self):
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        import anyio.to_thread

        while (await receive())["more_body"]:
            pass
        self.asked.set()
        await anyio.to_thread.run_sync(self.may_answer.wait, SAFETY)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def app():
    made = App()
    yield made
    made.may_answer.set()


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=SAFETY)


def rest(connection):
    """Return all bytes until the server closes the connection."""
    received = b""
    while True:
        try:
            data = connection.recv(65536)
        except ConnectionError:
            return received
        if not data:
            return received
        received += data


def answer(connection):
    received = b""
    while not received.endswith(b"\r\n\r\nok"):
        data = connection.recv(65536)
        assert data, received
        received += data
    return received


@pytest.mark.parametrize("kind", HTTP)
def test_a_connection_that_sends_nothing_is_closed(app, kind):
    with serving(app, http_protocol(kind, head_seconds=SHORT)) as port, connected(port) as connection:
        assert rest(connection) == b""


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["the first", "a later one"])
@pytest.mark.parametrize("endless", [b"x", b"\r\n"], ids=["a field", "blank lines"])
def test_a_head_that_never_ends_is_closed_however_slowly_it_goes_on(app, kind, before, endless):
    with serving(app, http_protocol(kind, head_seconds=SHORT)) as port, connected(port) as connection:
        if before:
            connection.sendall(before)
            answer(connection)
        closed = threading.Event()

        def drip():
            try:
                if endless == b"x":
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
                while not closed.is_set():
                    connection.sendall(endless)
                    time.sleep(0.01)
            except OSError:
                pass

        slow = threading.Thread(target=drip)
        slow.start()
        told = rest(connection)
        closed.set()
        slow.join()
    # a reset may come before the answer is read, and h11 refuses too many blank lines itself
    assert told == b"" or told.split()[1] in ({b"408"} if endless == b"x" else {b"408", b"400"})


@pytest.mark.parametrize("kind", HTTP)
def test_a_request_in_progress_and_a_slow_body_have_no_such_limit(app, kind):
    with (
        serving(app, http_protocol(kind, head_seconds=SHORT)) as port,
        connected(port) as good,
        connected(port) as body,
    ):
        app.may_answer.clear()
        good.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        body.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
        assert app.asked.wait(SAFETY)
        for _ in range(3):  # each takes longer than the limit
            with connected(port) as silent:
                assert rest(silent) == b""
        body.sendall(b"b")
        app.may_answer.set()
        assert answer(good).startswith(b"HTTP/1.1 200 ")
        assert answer(body).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("kind", HTTP)
def test_a_head_in_pieces_is_answered_in_time(app, kind):
    with serving(app, http_protocol(kind, head_seconds=LONG)) as port, connected(port) as connection:
        for _ in range(2):
            for byte in b"GET / HTTP/1.1\r\nHost: a\r\n\r\n":
                connection.sendall(bytes([byte]))
            assert answer(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("kind", HTTP)
def test_without_a_limit_no_connection_is_closed(app, kind):
    protocol = http_protocol(kind, head_seconds=None)
    with serving(app, protocol) as port, connected(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with connected(port) as other:
            other.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer(other)
        connection.sendall(b"Host: a\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_the_option_sets_the_limit(monkeypatch):
    from promptools.cli import http_server

    server = http_server.ProxyServer(App(), head_seconds=7.0)
    assert server.config.http.head_seconds == 7.0
    assert http_server.ProxyServer(App()).config.http.head_seconds == 30.0
