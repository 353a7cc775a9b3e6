"""Requests that are no exchanges, in metrics and the log: those that the proxy refuses, and those that pass unread."""

import asyncio
import json
import logging
import queue
import socket
import threading

import httpx
import pytest
from operating import HELLO, ask, proxied
from serving import raw, request, serving
from upstream import Answer, completion, running

from promptools.profiles import Config
from promptools.proxy import Extension, Proxy
from promptools.proxy.admission import Limits
from promptools.proxy.extension import OTHER, route_kind
from promptools.proxy.operations import LoggedExchanges, MetricsPage

pytest.importorskip("starlette")
prometheus = pytest.importorskip("prometheus_client.parser")
CHAT = "/v1/chat/completions"
MANY_FIELDS = ["Host: localhost", *(f"x-{number}: 1" for number in range(250))]
MODELS = Answer(pieces=(b'{"object": "list", "data": []}',))


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


class Reports(Extension):
    """Keeps what is reported."""

    def __init__(self):
        self.queue = queue.Queue()
        self.on_request = self.queue.put

    def next(self):
        report = self.queue.get(timeout=300)
        assert 0 <= report.seconds < 20
        return report.route, report.method, report.status, report.refusal or report.outcome

    def none_is_left(self):
        return self.queue.empty()


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", CHAT, {"messages": ["x" * 2000]}, ("chat", "POST", 413, "body_too_large")),
        ("POST", "/v1/messages", {"messages": ["x" * 2000]}, ("messages", "POST", 413, "body_too_large")),
        ("POST", "/api/chat", {"messages": ["x" * 2000]}, ("ollama", "POST", 413, "body_too_large")),
        ("GET", "/v1/models", None, ("models", "GET", 200, "answered")),
        ("POST", "/v1/embeddings", {"model": "m"}, ("embeddings", "POST", 200, "answered")),
        ("POST", "/v1/completions", {"model": "m"}, ("completions", "POST", 200, "answered")),
        ("POST", "/tokenize", {"model": "m"}, ("tokenize", "POST", 200, "answered")),
        ("GET", "/", None, ("other", "GET", 200, "answered")),
        ("BREW", "/pot", None, ("other", "other", 501, "answered")),
    ],
)
def test_what_is_reported(server, method, path, body, expected):
    server.play(MODELS)
    reports = Reports()
    with proxied(server, reports, max_body=1000) as client:
        client.request(method, path, json=body)
        assert reports.next() == expected


@pytest.mark.parametrize(
    ("target", "headers", "expected"),
    [
        ("/v1/../secret", ["Host: localhost"], ("other", "GET", 400, "bad_target")),
        ("/v1/models", ["Host: a/b"], ("models", "GET", 400, "bad_host")),
        ("/v1/models", MANY_FIELDS, ("models", "GET", 431, "header_too_large")),
    ],
)
def test_bad_requests(server, target, headers, expected):
    reports = Reports()
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[reports])
    with serving(proxy) as port:
        raw(port, request(f"GET {target} HTTP/1.1", *headers))
        assert reports.next() == expected


def test_limits_and_keys(server, still):
    server.play(MODELS)
    reports, page = Reports(), MetricsPage()
    limits = Limits(requests_per_minute=1)
    with proxied(server, reports, page, api_keys="k", limits=limits) as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/metrics").status_code == 401
        client.headers["authorization"] = "Bearer k"
        assert client.get("/v1/models").status_code == 200
        assert client.get("/v1/models").status_code == 429
    assert reports.next() == ("models", "GET", 401, "invalid_api_key")
    assert reports.next() == ("page", "GET", 401, "invalid_api_key")
    assert reports.next() == ("models", "GET", 200, "answered")
    assert reports.next() == ("models", "GET", 429, "rate_limit_exceeded")


def test_exchanges_are_not_reported(server):
    server.play(completion("hi"))
    reports = Reports()
    with proxied(server, reports) as client:
        assert ask(client).status_code == 200
        assert client.get("/v1/responses/resp_unknown").status_code == 404
        client.get("/v1/models")
        assert reports.next()[0] == "models"
        assert reports.none_is_left()


def test_ollamas_routes_pass_to_an_ollama(server):
    server.play(Answer(pieces=(b'{"models": []}',)))
    reports = Reports()
    with proxied(server, reports, provider="ollama") as client:
        assert client.get("/api/tags").status_code == 200
        assert reports.next() == ("ollama", "GET", 200, "answered")


def test_no_answer():
    reports = Reports()
    proxy = Proxy(base_url="http://127.0.0.1:1/v1", config=Config(), detect=False, extensions=[reports])
    with serving(proxy) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 502
        assert ask(httpx, path=f"http://127.0.0.1:{port}{CHAT}").status_code == 502
        assert reports.next() == ("models", "GET", 502, "no_answer")
        assert reports.none_is_left(), "a chat that fails is an exchange"


def test_a_response_that_breaks_off(server):
    server.play(Answer(pieces=(b'{"data": [',), then="cut"))
    reports = Reports()
    with proxied(server, reports) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/v1/models")
        assert reports.next() == ("models", "GET", 200, "broken")


def test_a_client_that_leaves(server):
    server.play(Answer(pieces=(b'{"data": [',), then="hang"))
    reports = Reports()
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[reports])
    with serving(proxy) as port:
        with socket.create_connection(("127.0.0.1", port), 300) as client:
            client.sendall(request("GET /v1/models HTTP/1.1", "Host: localhost"))
            assert client.recv(65536)
        assert reports.next() == ("models", "GET", 200, "disconnected")


@pytest.mark.parametrize(("pieces", "status"), [((), 503), ((b'{"data": [',), 200)])
def test_what_is_cut_when_the_proxy_stops(server, pieces, status):
    class Drained(Reports):
        async def start(self, proxy):
            self.drain, self.loop = proxy.drain, asyncio.get_running_loop()

    began = threading.Event()
    reports, over = Drained(), threading.Event()
    hang = Answer(pieces=pieces, first=began.set, then="hang")
    server.play(hang if pieces else Answer(pieces=(b"{}",), first=lambda: began.set() or over.wait(300)))
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[reports])
    with serving(proxy) as port, socket.create_connection(("127.0.0.1", port), 300) as client:
        client.sendall(request("GET /v1/models HTTP/1.1", "Host: localhost"))
        assert began.wait(300)
        if pieces:
            client.recv(65536)
        asyncio.run_coroutine_threadsafe(reports.drain(0), reports.loop).result(300)
        assert reports.next() == ("models", "GET", status, "shutting_down")
        over.set()


def test_an_observer_that_raises_changes_nothing(server, caplog):
    def fail(report):
        raise ValueError(report.route)

    failing, reports = Extension(), Reports()
    failing.on_request = fail
    server.play(MODELS)
    with proxied(server, failing, reports) as client:
        assert client.get("/v1/models").status_code == 200
        assert reports.next()[0] == "models"
    assert "an observer of requests raised" in caplog.text


def test_they_are_in_the_metrics(server):
    server.play(MODELS)
    with proxied(server, MetricsPage(), max_body=1000) as client:
        client.get("/v1/models")
        client.get("/v1/models")
        ask(client, {**HELLO, "more": "x" * 2000})
        page = client.get("/metrics").text
    assert 'promptools_passed_total{outcome="answered",route="models",status="200"} 2.0' in page
    assert 'promptools_passed_duration_seconds_count{route="models"} 2.0' in page
    assert 'promptools_refused_total{reason="body_too_large",route="chat",status="413"} 1.0' in page
    assert "promptools_requests_total{" not in page


def test_they_are_in_the_log(server):
    server.play(MODELS)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(record.getMessage()))
    logging.getLogger("promptools.exchanges").addHandler(handler)
    with proxied(server, LoggedExchanges("json"), max_body=1000) as client:
        client.get("/v1/models?secret=x")
        ask(client, {**HELLO, "more": "x" * 2000})
    logging.getLogger("promptools.exchanges").removeHandler(handler)
    for line in lines:
        assert line.pop("time")
        assert line.pop("seconds") >= 0
        assert line.pop("request_id").startswith("req_")
    assert lines == [
        {"method": "GET", "route": "models", "status": 200, "outcome": "answered", "reason": ""},
        {"method": "POST", "route": "chat", "status": 413, "outcome": "refused", "reason": "body_too_large"},
    ]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (CHAT, "chat"),
        ("/openai/deployments/m/chat/completions", "chat"),
        ("/v1/responses/resp_1/input_items", "responses"),
        ("/v1/messages/count_tokens", "messages"),
        ("/api/embed", "ollama"),
        ("/v1/models/m", "models"),
        ("/v1/audio/transcriptions", "audio"),
        ("/", OTHER),
        ("/v1/whatever-a-client-likes", OTHER),
    ],
)
def test_the_kinds_of_routes(path, kind):
    assert route_kind(path) == kind
