"""The id of a request is in its response, its errors in every API, its log lines, and the inspector."""

import json
import logging
import queue
import re
import socket

import httpx
import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse, unary

from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.proxy.operations import LoggedExchanges
from promptools.telemetry.exchange_log import LOGGER

KEY = "key-of-the-proxy"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
REQUESTS = {
    "chat": ("/v1/chat/completions", ASK),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "messages": ("/v1/messages", ASK),
    "ollama": ("/api/chat", ASK),
    "completions": ("/v1/completions", {"model": "m", "prompt": "hi"}),
}
OWN = re.compile(r"req_[0-9a-f]{24}")


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(server):
    app = Proxy(
        base_url=server.url,
        config=Config(),
        detect=False,
        api_keys=[KEY],
        extensions=[Inspector(), LoggedExchanges("json")],
    )
    with (
        serving(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"x-api-key": KEY}, timeout=60) as client,
    ):
        yield client


class Lines(logging.Handler):
    """The lines of the log of exchanges; the client may have its response before its line is written."""

    def __init__(self):
        super().__init__()
        self._lines = queue.Queue()

    def emit(self, record):
        self._lines.put(json.loads(record.getMessage()))

    def next(self):
        return self._lines.get(timeout=300)


@pytest.fixture
def lines(proxy):
    logger, handler = logging.getLogger(LOGGER), Lines()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def id_in(body):
    error = body["error"]
    return (error if isinstance(error, dict) and "request_id" in error else body)["request_id"]


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_response_and_its_log_line_have_one_id(server, proxy, lines, kind):
    path, body = REQUESTS[kind]
    server.play(unary(completion("hi"), headers={"X-Request-Id": "of-the-server"}))
    answer = proxy.post(path, json=body)
    own = answer.headers["x-request-id"]
    assert OWN.fullmatch(own)
    assert answer.headers.get_list("x-request-id") == [own]
    assert answer.headers.get("x-promptools-upstream-request-id", "of-the-server") == "of-the-server"
    assert answer.headers.get("request-id") == (own if kind == "messages" else None)
    assert lines.next()["request_id"] == own
    if kind != "completions":
        newest = proxy.get("/inspect/api/exchanges").json()["exchanges"][-1]
        assert newest["request_id"] == own


@pytest.mark.parametrize("given", ["abc-123", "a" * 128, "7d3f:1/2+3="])
def test_the_client_s_own_id_is_kept_and_sent_on(server, proxy, given):
    server.play(completion("hi"))
    answer = proxy.post("/v1/chat/completions", json=ASK, headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] == given
    assert server.seen[-1].headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, 'a"b', KEY])
def test_an_id_that_is_none_is_replaced(server, proxy, given):
    server.play(completion("hi"))
    assert OWN.fullmatch(
        proxy.post("/v1/chat/completions", json=ASK, headers={"X-Request-Id": given}).headers["x-request-id"]
    )


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_refusal_names_it(proxy, lines, kind):
    path, body = REQUESTS[kind]
    answer = proxy.post(path, json=body, headers={"x-api-key": "wrong", "x-request-id": "mine-1"})
    assert answer.status_code == 401
    assert id_in(answer.json()) == answer.headers["x-request-id"] == "mine-1"
    assert lines.next()["request_id"] == "mine-1"


@pytest.mark.parametrize("kind", ["responses", "messages", "ollama"])
def test_an_invalid_request_is_told_it(proxy, kind):
    path, _ = REQUESTS[kind]
    answer = proxy.post(path, content=b"{", headers={"content-type": "application/json", "x-request-id": "mine-2"})
    assert answer.status_code == 400
    assert id_in(answer.json()) == answer.headers["x-request-id"] == "mine-2"


@pytest.mark.parametrize("kind", REQUESTS)
def test_an_answer_that_does_not_come_has_it(kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        taken.close()
        with serving(Proxy(base_url=url, config=Config(), detect=False)) as port:
            path, body = REQUESTS[kind]
            answer = httpx.post(f"http://127.0.0.1:{port}{path}", json=body, headers={"x-request-id": "mine-3"})
    assert answer.status_code == 502
    assert id_in(answer.json()) == answer.headers["x-request-id"] == "mine-3"


@pytest.mark.parametrize("kind", [kind for kind in REQUESTS if kind != "completions"])
def test_an_error_in_a_stream_has_it(server, proxy, kind):
    path, body = REQUESTS[kind]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    flat = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    named = {"name": "f", "input_schema": {"type": "object"}}
    tools = [flat if kind == "responses" else named if kind == "messages" else tool]
    text = sse(chunk({"content": "Well, " * 50}), {"error": {"message": "out of memory"}}, done=False)
    server.play(*[text] * 9)
    answer = proxy.post(path, json={**body, "tools": tools, "stream": True}, headers={"x-request-id": "mine-4"})
    assert answer.headers["x-request-id"] == "mine-4"
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if "mine-4" in line]
    assert [id_in({"error": line} | line if "error" not in line else line) for line in map(json.loads, lines)] == [
        "mine-4"
    ]


def test_a_line_about_a_failed_attempt_has_it(server, proxy, caplog):
    caplog.set_level(logging.INFO, "promptools")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    server.play(Answer(500, (b'{"error": {"message": "crash"}}',)), *[completion("hi")] * 3)
    proxy.post("/v1/chat/completions", json={**ASK, "tools": [tool]}, headers={"x-request-id": "mine-5"})
    assert "request mine-5" in caplog.text


def test_a_list_of_models_that_nobody_has_and_a_missing_one_have_it(server):
    providers = {name: Provider(name, kind="vllm", base_url=server.url) for name in ("a", "b")}
    with (
        serving(Proxy(config=Config(providers=providers, default_provider="a"), detect=False)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"x-request-id": "mine-6"}, timeout=60) as client,
    ):
        for path in ("/v1/models/absent", "/api/tags"):
            answer = client.get(path)
            if answer.status_code != 200:
                assert id_in(answer.json()) == "mine-6"
        assert answer.headers["x-request-id"] == "mine-6"


def test_a_stored_response_that_is_missing_has_it(proxy):
    answer = proxy.get("/v1/responses/resp_absent", headers={"x-request-id": "mine-7"})
    assert (answer.status_code, id_in(answer.json())) == (404, "mine-7")
