"""Each response of a proxy says that it is one, so that nobody takes it for the server behind it."""

import httpx
import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse, unary

from promptools.profiles import Config
from promptools.proxy import Proxy

KEY = "key-of-the-proxy"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module", params=[1, 2], ids=["a proxy", "a proxy before a proxy"])
def proxy(request, server):
    first = Proxy(base_url=server.url, config=Config(), detect=False, api_keys=[KEY])
    with serving(first) as port:
        if request.param == 1:
            yield f"http://127.0.0.1:{port}/v1"
            return
        second = Proxy(base_url=f"http://127.0.0.1:{port}/v1", config=Config(), detect=False)
        with serving(second) as outer:
            yield f"http://127.0.0.1:{outer}/v1"


ANSWERS = {
    "whole": ("POST", "/chat/completions", ASK, unary(completion("hi"))),
    "streamed": ("POST", "/chat/completions", {**ASK, "stream": True}, sse(chunk({"content": "hi"}, "stop"))),
    "forwarded": ("GET", "/models", None, unary({"data": []})),
    "an error of the server": ("GET", "/nothing", None, Answer(404)),
    "no HTTP status": ("GET", "/models", None, Answer(999)),
    "an error of a retried request": ("POST", "/chat/completions", ASK, Answer(500)),
    "a refusal": ("TRACE", "/models", None, Answer(200)),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_each_response_has_the_field_once(server, proxy, kind):
    method, path, body, answer = ANSWERS[kind]
    server.play(*[answer] * 9)
    got = httpx.request(method, proxy + path, json=body, headers={"authorization": f"Bearer {KEY}"})
    assert got.headers.get_list("x-promptools-proxy") == ["true"]


def test_a_request_without_a_key_is_told_too(server, proxy):
    got = httpx.get(f"{proxy}/models")
    assert got.status_code == 401
    assert got.headers.get_list("x-promptools-proxy") == ["true"]
