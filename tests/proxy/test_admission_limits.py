"""How much may be requested: rates, requests in progress and in line, headers, time; refusals in each front's shape."""

import importlib.util
import json
import socket
import threading

import httpx
import pytest
from serving import HTTP, raw, request, serving
from upstream import Answer, chunk, completion, running, sse
from waiting import LIMITS, until

from promptools.errors import UsageError
from promptools.profiles import Config, Provider, ProxyOptions, load_config
from promptools.proxy import Proxy
from promptools.proxy.admission import MAX_HEADER_FIELDS, Limits, TokenBucket

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
FRONTS = {
    CHAT: lambda body: body["error"]["code"],
    "/v1/responses": lambda body: body["error"]["code"],
    "/v1/messages": lambda body: body["error"]["type"],
    "/api/chat": lambda body: body["error"],
}
LIMITED = {"/v1/messages": "rate_limit_error", "/api/chat": "this proxy may make 2 requests a minute"}
FULL = {"/v1/messages": "overloaded_error", "/api/chat": "this proxy has 1 requests in progress"}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def proxy(server, **options):
    return Proxy(base_url=server.url, config=Config(), detect=False, **options)


def ask(port, path=CHAT, **options):
    return httpx.post(f"http://127.0.0.1:{port}{path}", json=ASK, timeout=300, **options)


@pytest.mark.parametrize("path", FRONTS)
def test_more_than_so_many_a_minute_are_refused_in_the_fronts_shape(server, path, still):
    server.play(completion())
    with serving(proxy(server, limits=Limits(requests_per_minute=2))) as port:
        assert [ask(port).status_code for _ in range(2)] == [200, 200]
        refused = ask(port, path)
    assert refused.status_code == 429
    assert FRONTS[path](refused.json()).startswith(LIMITED.get(path, "rate_limit_exceeded"))
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert 0 < int(refused.headers["retry-after-ms"]) <= 30_000
    assert refused.headers["x-should-retry"] == "true"
    assert len(server.seen) == 2


def test_a_bucket_is_refilled_steadily():
    bucket = TokenBucket(60, 0.0)
    for _ in range(60):
        assert bucket.wait(0.0) == 0
        bucket.take()
    assert bucket.wait(0.0) == pytest.approx(1)
    assert bucket.wait(0.75) == pytest.approx(0.25)
    assert bucket.wait(1.5) == 0
    bucket.take()
    assert bucket.wait(1.5) == pytest.approx(0.5)
    assert bucket.wait(9999.0) == 0
    for _ in range(60):
        bucket.take()
    assert bucket.wait(9999.0) == pytest.approx(1), "it holds a minute's requests at most"


class Held:
    """The server holds its first answers until `free` is set; `began` counts them."""

    def __init__(self, server, count=1):
        self.free, self.began = threading.Event(), threading.Semaphore(0)
        held = Answer(pieces=(b"{}",), first=self._hold)
        server.play(*[held] * count, completion())

    def _hold(self):
        self.began.release()
        assert self.free.wait(300)


def in_thread(work, *arguments, **options):
    """Run `work` in a thread; returns a function that returns its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work(*arguments, **options)), daemon=True)
    thread.start()

    def result():
        thread.join(300)
        return results[0]

    return result


def waiting(app):
    """How many requests wait in line."""
    return app.admission._slots[""]._limiter.statistics().tasks_waiting


@pytest.mark.parametrize("path", FRONTS)
def test_what_finds_no_place_in_line_is_refused_in_the_fronts_shape(server, path):
    held = Held(server)
    with serving(proxy(server, limits=Limits(concurrency=1, queue=0))) as port:
        first = in_thread(ask, port)
        assert held.began.acquire(timeout=300)
        refused = ask(port, path)
        held.free.set()
        assert first().status_code == 200
        assert ask(port).status_code == 200
    assert refused.status_code == 503
    assert FRONTS[path](refused.json()).startswith(FULL.get(path, "overloaded"))
    assert refused.headers["retry-after"] == "1"
    assert "1 requests in progress" in refused.text


def test_what_waits_in_line_is_served_when_one_ends(server):
    held = Held(server)
    app = proxy(server, limits=Limits(concurrency=1, queue=1))
    with serving(app) as port:
        first = in_thread(ask, port)
        assert held.began.acquire(timeout=300)
        second = in_thread(ask, port)
        while not waiting(app):
            assert len(server.seen) == 1
        assert ask(port).status_code == 503
        held.free.set()
        assert {first().status_code, second().status_code} == {200}


def test_what_waits_too_long_is_refused(server):
    held = Held(server)
    with serving(proxy(server, limits=Limits(concurrency=1, queue_timeout=0.05))) as port:
        first = in_thread(ask, port)
        assert held.began.acquire(timeout=300)
        late = ask(port)
        held.free.set()
        first()
    assert (late.status_code, late.json()["error"]["code"]) == (503, "overloaded")
    assert "0.05 s" in late.text


def test_a_client_that_leaves_the_line_takes_no_place(server):
    held = Held(server)
    app = proxy(server, limits=Limits(concurrency=1, queue=1))
    with serving(app) as port:
        first = in_thread(ask, port)
        assert held.began.acquire(timeout=300)
        body = json.dumps(ASK).encode()
        with socket.create_connection(("127.0.0.1", port)) as second:
            second.sendall(request(f"POST {CHAT} HTTP/1.1", "Host: localhost", body=body))
            until(lambda: waiting(app))
        until(lambda: not waiting(app))
        third = in_thread(ask, port)
        held.free.set()
        assert {first().status_code, third().status_code} == {200}
    assert len(server.seen) == 2


def test_a_pass_through_waits_in_line_too(server):
    held = Held(server)
    with serving(proxy(server, limits=Limits(concurrency=1, queue=0))) as port:
        first = in_thread(ask, port)
        assert held.began.acquire(timeout=300)
        assert httpx.get(f"http://127.0.0.1:{port}/v1/embeddings").status_code == 503
        held.free.set()
        first()


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize(
    "fields",
    [[f"x-{number}: a" for number in range(MAX_HEADER_FIELDS)], [f"x-{number}: {'a' * 8000}" for number in range(9)]],
    ids=["fields", "bytes"],
)
def test_a_header_of_too_many_fields_or_bytes_is_refused(server, kind, fields):
    from promptools.cli.http_server import HEADER_BUFFER

    server.play(completion())
    with serving(proxy(server), kind, h11_max_incomplete_event_size=HEADER_BUFFER) as port:
        status, answer = raw(port, request(f"POST {CHAT} HTTP/1.1", "Host: localhost", *fields, body=b"{}"))
        assert status == 431
        assert b'"header_too_large"' in answer
        assert raw(port, request(f"POST {CHAT} HTTP/1.1", "Host: localhost", *fields[:8], body=b"{}"))[0] == 200


@pytest.mark.parametrize("body", [ASK, {**ASK, "tools": [{"type": "function", "function": {"name": "f"}}]}])
def test_an_attempt_that_takes_too_long_is_a_504_that_may_be_sent_again(server, body):
    held = Held(server, 9)
    with serving(proxy(server, attempt_timeout=0.5)) as port:
        answer = httpx.post(f"http://127.0.0.1:{port}{CHAT}", json=body, timeout=300)
        held.free.set()
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "timeout"
    assert answer.headers["retry-after"] == "1"
    assert len(server.seen) <= 1  # none, if a busy machine does not even connect in this time


def test_the_messages_api_has_types_of_its_own_for_these_errors(server):
    held = Held(server, 9)
    with serving(proxy(server, attempt_timeout=0.3)) as port:
        url = f"http://127.0.0.1:{port}/v1/messages"
        late = httpx.post(url, json=ASK, timeout=300)
        large = httpx.post(url, json=ASK, headers=[("x-a", "1")] * 300, timeout=300)
        held.free.set()
    assert (late.status_code, late.json()["error"]["type"]) == (504, "timeout_error")
    assert (large.status_code, large.json()["error"]["type"]) == (431, "invalid_request_error")


def test_a_stream_that_takes_too_long_ends_with_an_error(server):
    stall = threading.Event()
    pieces = sse(chunk({"content": "a word, and "}), chunk({"content": "b"}), between=lambda: stall.wait(300))
    server.play(pieces)
    body = {**ASK, "stream": True, "tools": [{"type": "function", "function": {"name": "f"}}]}
    for seconds in LIMITS:
        with serving(proxy(server, attempt_timeout=seconds)) as port:
            answer = httpx.post(f"http://127.0.0.1:{port}{CHAT}", json=body, timeout=300)
        if answer.status_code == 200:  # it had begun
            break
    stall.set()
    assert answer.status_code == 200
    assert '"content":"a word' in answer.text
    assert "event: error\ndata: " in answer.text
    assert '"code":"timeout"' in answer.text


def test_the_config_has_all_limits(tmp_path):
    path = tmp_path / "promptools.toml"
    path.write_text(
        '[providers.a]\nbase_url = "http://127.0.0.1:9/v1"\n[proxy]\nrequests_per_minute = 60\nconcurrency = 4\n'
        'queue = 0\nqueue_timeout = 2.5\nattempt_timeout = 9\ncors_origins = ["https://app.example"]\n'
    )
    app = Proxy(config=load_config(path))
    assert app.served.limits == Limits(60, 4, 0, 2.5)
    assert app.session.context.attempt_timeout == 9
    assert Proxy(config=load_config(path), limits=Limits(), attempt_timeout=1).served.limits == Limits()
    for key in ("concurrency = 0", "queue = -1", 'queue_timeout = "1"', "requests_per_minute = 1.5"):
        path.write_text(f"[proxy]\n{key}\n")
        with pytest.raises(UsageError, match=f"proxy.{key.split()[0]}: "):
            load_config(path)


def test_a_reload_keeps_the_counts_of_limits_that_stay(server, still):
    server.play(completion())

    def config(**options):
        return Config(providers={"a": Provider("a", base_url=server.url)}, proxy=ProxyOptions(**options))

    app = Proxy(config=config(requests_per_minute=1), detect=False)
    with serving(app) as port:
        assert [ask(port).status_code for _ in range(2)] == [200, 429]
        app.reload(config(requests_per_minute=1, cors_origins=("https://app.example",)))
        again = ask(port, headers={"origin": "https://app.example"})
        assert (again.status_code, "access-control-allow-origin" in again.headers) == (429, True)
        app.reload(config(requests_per_minute=2))
        assert [ask(port).status_code for _ in range(3)] == [200, 200, 429]


def test_without_limits_there_are_none(server):
    app = proxy(server)
    assert app.served.limits == Limits()
    assert not app.admission.has_keys


@pytest.mark.parametrize(
    "limit", [{"requests_per_minute": 0}, {"concurrency": -1}, {"queue": -1}, {"queue_timeout": 0}]
)
def test_a_limit_that_cannot_be_is_an_error(limit):
    with pytest.raises(UsageError, match=next(iter(limit))):
        Limits(**limit)


@pytest.mark.skipif(not importlib.util.find_spec("httptools"), reason="httptools is not installed")
@pytest.mark.parametrize("piece", [b"a" * 65536, b"x: a\r\n" * 10000], ids=["a field", "fields"])
def test_a_header_without_an_end_is_not_held_in_memory(server, piece):
    from promptools.cli.http_server import HEADER_BUFFER, http_protocol

    server.play(completion())
    with serving(proxy(server), http_protocol()) as port:
        with socket.create_connection(("127.0.0.1", port), 300) as client:
            client.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx: ".encode())
            with pytest.raises(ConnectionError):
                client.sendall(piece * (99 * HEADER_BUFFER // len(piece)))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
            for _ in range(2):  # a body and a next request on the same connection are no header
                assert http.post(CHAT, json={**ASK, "user": "u" * HEADER_BUFFER}).is_success
