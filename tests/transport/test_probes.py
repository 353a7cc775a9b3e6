"""Looks over real sockets, in both colours and both families: side by side, bounded, and never in the way."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec

import anyio
import pytest
from upstream import Answer, running
from waiting import LIMITS, LONG, until

from promptools.exchange import Emit, Probe, Probed, Request, ResponseHead
from promptools.transport import intercept
from promptools.transport.driver import MAX_RESPONSE
from promptools.transport.http_library import import_library

pytestmark = pytest.mark.exhaustive

FAMILIES = [name for name in ("httpx", "httpx2") if find_spec(name)]
HEADERS = (("user-agent", "promptools"), ("connection", "close"))


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(params=FAMILIES)
def family(request):
    return import_library(request.param)


def looking(urls, timeout, found, headers=HEADERS):
    """An exchange that looks and does no more."""

    def start(request, door):
        requests = tuple(Request(*(url if isinstance(url, tuple) else ("GET", url)), headers, b"") for url in urls)
        looked = yield Probe(requests, timeout)
        assert isinstance(looked, Probed)
        found.append(looked)
        yield Emit(ResponseHead(200, ()))

    return start


def look(family, colour, urls, timeout=LONG, headers=HEADERS, **client):
    """Return the answers."""
    found = []
    start = looking(urls, timeout, found, headers)
    url = "http://127.0.0.1:9/v1/chat/completions"

    async def go():
        async with intercept(family.module.AsyncClient(**client), start) as http:
            await http.post(url)

    if colour == "async":
        asyncio.run(go())
        return found
    with intercept(family.module.Client(**client), start) as http:
        http.post(url)
    return found


@contextmanager
def raw(*said, keep=False):
    """A server that says these bytes to whoever connects, and then closes, or keeps still."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            try:
                for piece in said:
                    connection.sendall(piece)
                    time.sleep(0.05)
            except OSError:
                pass
            if not keep:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in held:
            connection.close()


colours = pytest.mark.parametrize("colour", ["sync", "async"])


@colours
def test_answers_come_in_the_order_of_the_requests(server, family, colour):
    server.about = {"/a": {"version": "1"}, "/b": Answer(500, (b"no",)), "/c": Answer(301, headers={"Location": "/a"})}
    paths = ("/a", "/b", "/c", "/none")
    (looked,) = look(family, colour, [server.root + path for path in paths])
    assert [each.status for each in looked.answers] == [200, 500, 301, 404]
    assert [each.body for each in looked.answers[:2]] == [b'{"version": "1"}', b"no"]
    assert sorted(each.path for each in server.looks) == sorted(paths)


@colours
def test_a_look_follows_no_redirection_though_the_client_would(server, family, colour):
    server.about = {"/a": Answer(307, headers={"Location": "/b"}), "/b": {"version": "1"}}
    (looked,) = look(family, colour, [server.root + "/a"], follow_redirects=True)
    assert looked.answers[0].status == 307
    assert [each.path for each in server.looks] == ["/a"]


@colours
def test_a_body_is_sent_where_there_is_one_and_a_reply_is_read_decoded(server, family, colour):
    server.about = {"/show": Answer(pieces=(b"x" * 1000,), gzip=True)}
    (looked,) = look(family, colour, [("POST", server.root + "/show")])
    assert looked.answers[0].body == b"x" * 1000
    assert server.looks[0].method == "POST"


@colours
def test_they_are_asked_side_by_side(server, family, colour):
    barrier = threading.Barrier(6, timeout=300)  # none is answered before all have come
    server.about = {f"/{n}": Answer(pieces=(b"{}",), first=barrier.wait) for n in range(6)}
    (looked,) = look(family, colour, [f"{server.root}/{n}" for n in range(6)], timeout=LONG)
    assert all(each and each.status == 200 for each in looked.answers)


@colours
def test_all_of_it_is_over_when_the_time_is_up(server, family, colour):
    server.about = {
        "/quick": {},
        "/stalls": Answer(before=LONG),
        "/begins": Answer(pieces=(b"{", b"}"), pause=LONG),
        "/trickles": Answer(pieces=(b" ",) * 10_000, pause=0.1),
    }
    paths = ["/quick", "/stalls", "/begins", "/trickles"]
    for seconds in LIMITS:
        (looked,) = look(family, colour, [server.root + path for path in paths], timeout=seconds)
        if looked.answers[0] is not None:
            break
    assert [each is not None for each in looked.answers] == [True, False, False, False]


@colours
def test_what_cannot_be_reached_is_not_an_answer(family, colour):
    (looked,) = look(family, colour, ["http://127.0.0.1:9/a", "http://[::1]:9/b", "http://no.such.host.invalid/c"])
    assert looked.answers == (None, None, None)


@colours
@pytest.mark.parametrize(
    "said",
    [
        b"\x00\xff\x13garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nno gz",
        b"",
    ],
)
def test_garbage_is_not_an_answer(family, colour, said):
    with raw(said) as root:
        (looked,) = look(family, colour, [root, root])
    assert looked.answers == (None, None)


@colours
def test_an_endless_body_is_read_to_the_limit(server, family, colour):
    server.about = {"/long": Answer(pieces=(b"x" * 100_000,) * 40)}
    (looked,) = look(family, colour, [server.root + "/long"], timeout=LONG)
    assert looked.answers[0].body == b"x" * MAX_RESPONSE


@colours
def test_a_bug_in_a_hook_below_is_not_an_answer(server, family, colour):
    module = family.module

    class Broken(module.BaseTransport, module.AsyncBaseTransport):
        def handle_request(self, request):
            raise ZeroDivisionError

        async def handle_async_request(self, request):
            raise ZeroDivisionError

    (looked,) = look(family, colour, [server.root + "/a"], transport=Broken())
    assert looked.answers == (None,)


@colours
def test_a_look_takes_the_place_of_its_own_url(server, family, colour):
    module = family.module

    class Other(module.BaseTransport, module.AsyncBaseTransport):
        def handle_request(self, request):
            return module.Response(200, content=request.url.host.encode())

        async def handle_async_request(self, request):
            return self.handle_request(request)

    (looked,) = look(family, colour, ["http://api.example/a"], mounts={"all://api.example": Other()})
    assert looked.answers[0].body == b"api.example"


def test_a_cancelled_look_ends_at_once(server, family):
    server.about = {"/stalls": Answer(before=LONG)}
    found = []

    async def go():
        start = looking([server.root + "/stalls"], LONG, found)
        async with intercept(family.module.AsyncClient(), start) as http, anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:

                async def cancel():
                    await anyio.to_thread.run_sync(lambda: until(lambda: server.looks))
                    scope.cancel()

                tasks.start_soon(cancel)
                await http.post("http://127.0.0.1:9/v1/chat/completions")
            return scope.cancelled_caught

    assert asyncio.run(go())
    assert found == []
    assert server.gone.wait(300)
