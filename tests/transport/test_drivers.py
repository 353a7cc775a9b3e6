"""The shells: every effect over both families and both colours, against a real HTTP server."""

import asyncio
import gc
import itertools
import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import pytest
from upstream import Answer, chunk, completion, running, sse
from waiting import LONG

from promptools.errors import UsageError
from promptools.exchange import (
    Abandon,
    Compute,
    Emit,
    Failed,
    Opened,
    Piece,
    Read,
    Request,
    ResponseHead,
    Send,
    Wait,
)
from promptools.transport import InterceptingTransport, SyncDriver, driver, installed_library, intercept, library_of
from promptools.transport.http_library import import_library
from promptools.types import Reply

FAMILIES = [name for name in ("httpx", "httpx2") if find_spec(name)]


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(params=FAMILIES)
def family(request):
    return import_library(request.param)


def plain(request: Request, door=None):
    """Pass one request and its answer, nothing else."""
    opened = yield Send(request)
    if isinstance(opened, Failed):
        raise opened.error
    yield Emit(ResponseHead(opened.status, opened.headers))
    while isinstance(piece := (yield Read()), Piece):
        yield Emit(piece.data)
    if isinstance(piece, Failed):
        yield Emit(b"!" + piece.kind.encode())
    return Reply(content="done")


class Both:
    """Runs one exchange over a client of either colour and gives status, headers and body."""

    def __init__(self, family, start, **client):
        self.family = family
        self.start = start
        self.client = client

    def sync(self, url, method="POST", **kw):
        with intercept(self.family.module.Client(**self.client), self.start) as http:
            answer = http.request(method, url, **kw)
            return answer.status_code, answer.headers, answer.content

    def asynchronous(self, url, method="POST", **kw):
        async def go():
            async with intercept(self.family.module.AsyncClient(**self.client), self.start) as http:
                answer = await http.request(method, url, **kw)
                return answer.status_code, answer.headers, answer.content

        return asyncio.run(go())

    def __iter__(self):
        return iter((self.sync, self.asynchronous))


def test_a_unary_answer_passes_whole(server, family):
    server.play(completion("héllo"))
    for ask in Both(family, plain):
        status, headers, body = ask(f"{server.url}/chat/completions", content=b'{"x": 1}', headers={"X-A": "b"})
        assert status == 200
        assert "héllo".encode() in body or b"h\\u00e9llo" in body
        assert headers["content-type"] == "application/json"
        assert server.seen[-1].body == b'{"x": 1}'
        assert server.seen[-1].headers["X-A"] == "b"
        assert server.seen[-1].headers["Host"] == f"127.0.0.1:{server.port}"


@contextmanager
def closing(answered):
    """Serve `answered` requests of each connection, and close it, without a word, when one more has come."""
    seen = []

    def serve(connection):
        with connection, connection.makefile("rb") as lines:
            for number in itertools.count():
                size = 0
                while (line := lines.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                if not line:
                    return
                lines.read(size)
                seen.append(number)
                if number >= answered:
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/chat/completions", seen


def several(family, colour, url, times, **kw):
    """Ask one client so many times; give its answers, and what it raised at last."""
    answers = []
    limits = family.module.Limits(keepalive_expiry=LONG)  # else five seconds, which a busy machine may take
    if colour == "sync":
        with intercept(family.module.Client(limits=limits), plain) as http, suppress(family.module.RemoteProtocolError):
            answers += (http.post(url, **kw).content for _ in range(times))
        return answers

    async def go():
        async with intercept(family.module.AsyncClient(limits=limits), plain) as http:
            with suppress(family.module.RemoteProtocolError):
                for _ in range(times):
                    answers.append((await http.post(url, **kw)).content)

    asyncio.run(go())
    return answers


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_request_that_meets_a_closing_connection_is_sent_again(family, colour):
    with closing(1) as (url, seen):
        assert several(family, colour, url, 3, content=b"{}") == [b"ok"] * 3
        assert seen == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_server_that_dies_on_a_request_is_not_asked_again(family, colour, monkeypatch):
    with closing(0) as (url, seen):
        assert several(family, colour, url, 1, content=b"{}") == []
        assert seen == [0]
    monkeypatch.setattr(driver, "STALE_CONNECTION_SECONDS", 0.0)  # whatever time it took, it was longer
    with closing(1) as (url, seen):
        assert several(family, colour, url, 2, content=b"{}") == [b"ok"]
        assert seen == [0, 1]


def test_the_client_s_own_trace_is_called(server, family):
    server.play(completion())
    told = []

    async def later(event, info):
        told.append(event)

    sync, asynchronous = Both(family, plain)
    sync(f"{server.url}/chat/completions", content=b"{}", extensions={"trace": lambda event, info: told.append(event)})
    assert "http11.receive_response_headers.complete" in told
    told.clear()
    asynchronous(f"{server.url}/chat/completions", content=b"{}", extensions={"trace": later})
    assert "http11.receive_response_headers.complete" in told


def test_sse_chunks_come_one_by_one(server, family):
    came = threading.Semaphore(0)
    held = []
    server.play(
        sse(chunk({"content": "a"}), chunk({"content": "b"}), between=lambda: held.append(came.acquire(timeout=300)))
    )
    with (
        intercept(family.module.Client(), plain) as http,
        http.stream("POST", f"{server.url}/chat/completions") as answer,
    ):
        pieces = [came.release() for _ in answer.iter_bytes()]
    assert len(pieces) == 3
    assert held == [True, True], "the server sends a chunk once the one before has come"


def test_an_exchange_is_over_before_its_last_bytes_go_out(server, family):
    server.play(completion())
    over = []

    def watched(request, door):
        yield from plain(request)
        yield Emit(b"last")
        over.append(True)

    with intercept(family.module.Client(), watched) as http:
        with http.stream("POST", f"{server.url}/chat/completions") as answer:
            assert b"last" in b"".join(answer.iter_bytes())
        assert over == [True]
        with http.stream("POST", f"{server.url}/chat/completions") as answer:
            for piece in answer.iter_bytes():
                if b"last" in piece:
                    break
        assert over == [True, True]


def test_gzip_is_read_decoded_and_the_headers_say_so(server, family):
    server.play(Answer(pieces=(b"x" * 5000,), gzip=True))
    for ask in Both(family, plain):
        _, headers, body = ask(f"{server.url}/chat/completions")
        assert body == b"x" * 5000
        assert "content-encoding" not in headers
        assert "content-length" not in headers


def test_other_paths_and_methods_pass_below(server, family):
    server.play(Answer(pieces=(b"y" * 5000,), gzip=True))

    def never(request, door):
        raise AssertionError(request)

    for ask in Both(family, never):
        for method, path in (("POST", "/v1/embeddings"), ("GET", "/v1/chat/completions"), ("GET", "/v1/models")):
            _, headers, body = ask(server.root + path, method=method)
            assert body == b"y" * 5000
            assert headers["content-encoding"] == "gzip"


def test_a_stream_cut_by_the_server_is_told_as_closed(server, family):
    server.play(sse(chunk({"content": "a"}), done=False, then="cut"))
    for ask in Both(family, plain):
        _, _, body = ask(f"{server.url}/chat/completions")
        assert body.endswith(b"!closed")


def test_no_server_is_told_as_connect_and_raised_as_it_was(family):
    for ask in Both(family, plain):
        with pytest.raises(family.module.ConnectError):
            ask("http://127.0.0.1:1/v1/chat/completions")


def test_the_clients_own_read_timeout_holds(server, family):
    server.play(Answer(pieces=(b"{}",), before=LONG))
    for ask in Both(family, plain, timeout=family.module.Timeout(LONG, read=0.2)):
        with pytest.raises(family.module.ReadTimeout):
            ask(f"{server.url}/chat/completions")


@pytest.mark.parametrize(
    "answer", [Answer(before=LONG), sse(*[chunk({"content": "a"})] * 40, pause=0.05, done=False, then="hang")]
)
def test_a_sends_whole_time_is_bounded(server, family, answer):
    server.play(answer)
    told = []

    def hurried(request, door):
        happening = yield Send(request, timeout=0.3)
        while isinstance(happening, (Opened, Piece)):
            happening = yield Read()
        told.append(happening)
        yield Abandon()
        yield Emit(ResponseHead(200, ()))

    for ask in Both(family, hurried):
        ask(f"{server.url}/chat/completions")
        assert isinstance(told[-1], Failed)
        assert told[-1].kind == "timeout"
        assert isinstance(told[-1].error, family.module.ReadTimeout)


def test_a_second_send_after_abandon_and_wait(server, family):
    def twice(request, door):
        opened = yield Send(request)
        assert isinstance(opened, Opened)
        done = yield Abandon()
        later = yield Wait(0.05)
        assert later.at - done.at >= 0.05
        return (yield from plain(request))

    for ask in Both(family, twice):
        server.play(Answer(status=500, pieces=(b"no",), then="hang"), completion("yes"))
        status, _, body = ask(f"{server.url}/chat/completions")
        assert status == 200
        assert b"yes" in body
        assert len(server.seen) == 2
        assert server.gone.wait(LONG)


def test_a_send_elsewhere_has_the_other_hosts_name(server, family):
    def elsewhere(request, door):
        moved = Request(request.method, request.url.replace("127.0.0.1", "localhost"), request.headers, request.body)
        return plain(moved)

    server.play(completion())
    for ask in Both(family, elsewhere):
        ask(f"{server.url}/chat/completions", headers={"Host": "virtual.example"})
        assert server.seen[-1].headers["Host"] == f"localhost:{server.port}"
    for ask in Both(family, plain):
        ask(f"{server.url}/chat/completions", headers={"Host": "virtual.example"})
        assert server.seen[-1].headers["Host"] == "virtual.example"


def test_a_bug_in_the_exchange_is_answered_not_raised(server, family, caplog):
    def broken(request, door):
        yield Wait(0)
        raise KeyError("oops")

    for ask in Both(family, broken):
        status, headers, body = ask(f"{server.url}/chat/completions")
        assert status == 500
        assert headers["x-should-retry"] == "false"
        assert b"KeyError" in body
    assert caplog.records[0].levelno == logging.ERROR


def test_a_bug_after_the_head_is_raised(server, family):
    def broken(request, door):
        yield Emit(ResponseHead(200, ()))
        yield Emit(b"")
        yield Emit(b"x")
        raise KeyError("oops")

    for ask in Both(family, broken):
        with pytest.raises(KeyError):
            ask(f"{server.url}/chat/completions")


def test_a_bug_in_the_transport_below_is_raised_as_it_is(family):
    class Bad(family.module.BaseTransport):
        def handle_request(self, request):
            raise ZeroDivisionError

    class AsyncBad(family.module.AsyncBaseTransport):
        async def handle_async_request(self, request):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Both(family, plain, transport=Bad()).sync("http://x/v1/chat/completions")
    with pytest.raises(ZeroDivisionError):
        Both(family, plain, transport=AsyncBad()).asynchronous("http://x/v1/chat/completions")


def test_closing_early_closes_the_upstream(server, family):
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    closed = []

    def watched(request, door):
        try:
            yield from plain(request)
        except GeneratorExit:
            closed.append(True)
            raise

    with intercept(family.module.Client(), watched) as http:
        with http.stream("POST", f"{server.url}/chat/completions") as answer:
            next(answer.iter_bytes())
        assert server.gone.wait(LONG)
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))

    async def go():
        async with intercept(family.module.AsyncClient(), watched) as http:
            async with http.stream("POST", f"{server.url}/chat/completions") as answer:
                await anext(answer.aiter_bytes())
            assert await asyncio.to_thread(server.gone.wait, LONG)

    asyncio.run(go())
    assert closed == [True, True]


@pytest.mark.parametrize("answer", [Answer(before=LONG), sse(chunk({"content": "a"}), done=False, then="hang")])
def test_a_cancelled_task_closes_the_upstream(server, family, answer):
    """Before the first byte and in the middle of a body that is being read."""
    server.play(answer)

    async def go():
        async with intercept(family.module.AsyncClient(), plain) as http:
            task = asyncio.create_task(http.post(f"{server.url}/chat/completions"))
            while not server.seen:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.gone.wait, LONG)

    asyncio.run(go())


def test_the_client_it_was_copied_from_stays_as_it_was(server, family):
    server.play(completion())
    seen = []
    original = family.module.Client(event_hooks={"request": [lambda r: seen.append(r.url.path)]}, timeout=LONG)
    before = dict(original.__dict__)
    carried = intercept(original, plain)
    assert original.__dict__ == before
    assert type(carried) is type(original)
    assert carried.timeout == original.timeout
    carried.post(f"{server.url}/chat/completions")
    assert seen == ["/v1/chat/completions"]
    assert intercept(carried, plain) is carried
    again = intercept(carried, plain)
    assert not isinstance(again._transport.inner, InterceptingTransport)
    assert again._transport.original_client is original
    original.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        carried.post(f"{server.url}/chat/completions")
    again.close()


def test_closing_the_copy_closes_the_original(family):
    original = family.module.Client()
    intercept(original, plain).close()
    assert original.is_closed

    async def go():
        other = family.module.AsyncClient()
        await intercept(other, plain).aclose()
        assert other.is_closed

    asyncio.run(go())


def test_every_mount_is_wrapped_once(server, family):
    server.play(completion())
    below = family.module.HTTPTransport()
    client = family.module.Client(transport=below, mounts={"http://": below, "https://": None, "all://x": None})
    with intercept(client, plain) as carried:
        assert len({id(each) for each in carried._mounts.values() if each}) == 1
        assert next(each for each in carried._mounts.values() if each) is carried._transport
        assert carried.post(f"{server.url}/chat/completions").status_code == 200


def test_a_proxy_from_the_environment_is_used(server, family, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.root)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.play(completion())
    for ask in Both(family, plain):
        status, _, _ = ask("http://nowhere.invalid/v1/chat/completions")
        assert status == 200
        assert server.seen[-1].path == "http://nowhere.invalid/v1/chat/completions"


def test_a_dropped_stream_closes_its_upstream(server, family):
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    http = intercept(family.module.Client(), plain)
    answer = http.send(http.build_request("POST", f"{server.url}/chat/completions"), stream=True)
    pieces = answer.iter_bytes()
    next(pieces)
    del pieces, answer
    gc.collect()
    assert server.gone.wait(LONG)
    http.close()


def test_the_family_is_read_from_the_classes(family):
    class Mine(family.module.Client):
        pass

    with Mine() as client:
        assert library_of(client) is family
    assert installed_library().name in FAMILIES
    with pytest.raises(UsageError, match="httpx or httpx2"):
        intercept(object(), plain)


def test_an_exchange_that_has_ended_gives_its_reply(server, family):
    server.play(completion())
    with family.module.Client() as http:
        pump = SyncDriver(plain(Request("POST", server.url, (), b"{}")), family, lambda r: http.send(r, stream=True))
        assert pump.head().status == 200
        assert json.loads(b"".join(pump.body())) == completion()
    assert pump.reply == Reply(content="done")


def test_an_exchange_without_an_answer_is_a_bug_that_is_answered(family):
    def mute(request, door):
        yield Wait(0)

    for ask in Both(family, mute):
        assert ask("http://x/v1/chat/completions")[0] == 500


def test_closing_from_another_task_or_thread_ends_the_stream(server, family):
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))

    async def go():
        async with intercept(family.module.AsyncClient(), plain) as http:
            answer = await http.send(http.build_request("POST", f"{server.url}/chat/completions"), stream=True)

            async def read():
                return [piece async for piece in answer.aiter_bytes()]

            task = asyncio.create_task(read())
            await asyncio.sleep(0.1)
            await answer.aclose()
            assert await asyncio.to_thread(server.gone.wait, LONG)
            task.cancel()

    asyncio.run(go())


def test_nothing_is_sent_once_the_response_was_closed_elsewhere(server, family):
    """Whatever the exchange would try next, such as another mode: nobody reads its reply."""
    entered, closed = threading.Event(), threading.Event()

    def busy(request, door):
        yield Emit(ResponseHead(200, ()))
        yield Compute(lambda: entered.set() or closed.wait(LONG))
        yield Send(request)

    url = f"{server.url}/chat/completions"
    with intercept(family.module.Client(), busy) as http, ThreadPoolExecutor() as threads:
        answer = http.send(http.build_request("POST", url), stream=True)
        reading = threads.submit(answer.read)
        assert entered.wait(LONG)
        answer.close()
        closed.set()
        with pytest.raises(family.module.ReadError, match="closed"):
            reading.result()
    entered.clear()
    closed.clear()

    async def go():
        async with intercept(family.module.AsyncClient(), busy) as http:
            answer = await http.send(http.build_request("POST", url), stream=True)
            reading = asyncio.create_task(answer.aread())
            assert await asyncio.to_thread(entered.wait, LONG)
            await answer.aclose()
            closed.set()
            with pytest.raises(family.module.ReadError, match="closed"):
                await reading

    asyncio.run(go())
    assert not server.seen


def test_a_response_that_was_closed_between_two_pieces_is_not_whole(server, family):
    url = f"{server.url}/chat/completions"
    server.play(sse(chunk({"content": "a"}), chunk({"content": "b"})))
    with intercept(family.module.Client(), plain) as http:
        answer = http.send(http.build_request("POST", url), stream=True)
        pieces = answer.iter_bytes()
        next(pieces)
        answer.close()
        with pytest.raises(family.module.ReadError, match="closed"):
            list(pieces)

    async def go():
        async with intercept(family.module.AsyncClient(), plain) as http:
            answer = await http.send(http.build_request("POST", url), stream=True)
            pieces = answer.aiter_bytes()
            await anext(pieces)
            await answer.aclose()
            with pytest.raises(family.module.ReadError, match="closed"):
                await anext(pieces)

    asyncio.run(go())


def test_a_response_that_was_closed_after_its_last_piece_is_whole(server, family):
    def short(request, door):
        yield Emit(ResponseHead(200, ()))
        yield Emit(b"all of it")

    url = f"{server.url}/chat/completions"
    with intercept(family.module.Client(), short) as http:
        answer = http.send(http.build_request("POST", url), stream=True)
        pieces = answer.iter_raw()
        assert next(pieces) == b"all of it"
        answer.close()
        assert list(pieces) == []

    async def go():
        async with intercept(family.module.AsyncClient(), short) as http:
            answer = await http.send(http.build_request("POST", url), stream=True)
            pieces = answer.aiter_raw()
            assert await anext(pieces) == b"all of it"
            await answer.aclose()
            assert [piece async for piece in pieces] == []

    asyncio.run(go())


def test_a_response_may_be_closed_while_its_reader_leaves(server, family):
    entered, closed = threading.Event(), threading.Event()

    def slow_end(request, door):
        try:
            yield from plain(request)
        finally:
            entered.set()
            assert closed.wait(LONG)

    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    with intercept(family.module.Client(), slow_end) as http, ThreadPoolExecutor() as threads:
        answer = http.send(http.build_request("POST", f"{server.url}/chat/completions"), stream=True)
        pieces = answer.iter_raw()
        next(pieces)
        leaving = threads.submit(pieces.close)
        assert entered.wait(LONG)
        try:
            answer.close()
        finally:
            closed.set()
        leaving.result()
        assert server.gone.wait(LONG)


def test_an_exchange_that_fails_as_it_is_closed_closes_its_upstream(server, family):
    def broken_end(request, door):
        try:
            yield from plain(request)
        finally:
            raise ZeroDivisionError

    url = f"{server.url}/chat/completions"
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))
    with intercept(family.module.Client(), broken_end) as http:
        answer = http.send(http.build_request("POST", url), stream=True)
        pieces = answer.iter_bytes()
        next(pieces)
        with pytest.raises(ZeroDivisionError):
            answer.close()
        assert server.gone.wait(LONG)
    server.play(sse(chunk({"content": "a"}), done=False, then="hang"))

    async def go():
        async with intercept(family.module.AsyncClient(), broken_end) as http:
            answer = await http.send(http.build_request("POST", url), stream=True)
            pieces = answer.aiter_bytes()
            await anext(pieces)
            with pytest.raises(ZeroDivisionError):
                await answer.aclose()
            assert await asyncio.to_thread(server.gone.wait, LONG)

    asyncio.run(go())


def test_a_send_elsewhere_takes_that_places_proxy(server, family):
    def elsewhere(request, door):
        return plain(Request(request.method, f"{server.url}/chat/completions", request.headers, request.body))

    class Never(family.module.BaseTransport):
        def handle_request(self, request):
            raise AssertionError(request)

    server.play(completion())
    with intercept(family.module.Client(mounts={"all://api.example": Never()}), elsewhere) as http:
        assert http.post("http://api.example/v1/chat/completions").status_code == 200
