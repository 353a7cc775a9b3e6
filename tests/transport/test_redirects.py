"""Redirections of an exchange: within an origin only, whatever the HTTP client would follow."""

import asyncio
from importlib.util import find_spec

import pytest
from upstream import Answer, completion, running

from promptools.profiles import Config, Provider
from promptools.transport import Session, installed_library, intercept
from promptools.transport.driver import build_redirect, cross_origin_message, is_same_origin_redirect, redirect_location
from promptools.transport.http_library import import_library

SECRETS = {"Authorization": "Bearer s1", "X-Api-Key": "s2", "Api-Key": "s3", "Cookie": "c=s4", "X-Mine": "s5"}
BODY = {"model": "m", "messages": [{"role": "user", "content": "my prompt"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def other():
    with running() as upstream:
        yield upstream


@pytest.fixture(params=[name for name in ("httpx", "httpx2") if find_spec(name)])
def family(request):
    return import_library(request.param)


@pytest.fixture(params=["sync", "async"])
def ask(request, family):
    """Ask through a client that follows redirections, as the SDK's does."""

    def sync(url, config=None, **kw):
        with intercept(family.module.Client(follow_redirects=True), Session({"config": config or Config()})) as http:
            return http.post(url, **kw)

    def asynchronous(url, config=None, **kw):
        async def go():
            client = family.module.AsyncClient(follow_redirects=True)
            async with intercept(client, Session({"config": config or Config()})) as http:
                return await http.post(url, **kw)

        return asyncio.run(go())

    return sync if request.param == "sync" else asynchronous


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("status", [302, 307])
def test_to_another_origin_neither_keys_nor_the_prompt_go(server, other, ask, tools, status):
    other.play(completion())
    place = other.url.replace("http://", "http://us3r:p4ss@") + "/chat/completions?t=t0ken"
    server.play(Answer(status=status, headers={"Location": place}))
    answer = ask(
        f"{server.url}/chat/completions", json={**BODY, **({"tools": tools} if tools else {})}, headers=SECRETS
    )
    assert answer.status_code == 502
    assert f"redirected to {other.url}/chat/completions" in answer.json()["error"]["message"]
    assert "p4ss" not in answer.text
    assert "t0ken" not in answer.text
    assert not other.seen
    assert len(server.seen) == 1


def test_within_the_origin_the_client_follows_with_its_keys(server, ask):
    server.play(Answer(status=307, headers={"Location": "/moved/v1/chat/completions"}), completion("here"))
    answer = ask(f"{server.url}/chat/completions", json=BODY, headers=SECRETS)
    assert answer.json()["choices"][0]["message"]["content"] == "here"
    assert [each.status_code for each in answer.history] == [307]
    assert server.seen[1].headers["authorization"] == "Bearer s1"
    assert server.seen[1].json == BODY


def test_another_providers_redirection_is_followed_there_with_its_own_key(server, other, ask, monkeypatch):
    monkeypatch.setenv("B_KEY", "kb")
    config = Config(providers={"b": Provider("b", kind="vllm", base_url=other.url, api_key_env="B_KEY")})
    server.play(completion("of a"))
    other.play(Answer(status=307, headers={"Location": "/v2/chat/completions"}), completion("of b"))
    body = {**BODY, "promptools": {"provider": "b"}}
    answer = ask(f"{server.url}/chat/completions", config, json=body, headers=SECRETS)
    assert answer.json()["choices"][0]["message"]["content"] == "of b"
    assert not server.seen
    assert other.seen[1].path == "/v2/chat/completions"
    assert other.seen[1].headers["authorization"] == "Bearer kb"
    assert "s2" not in str(other.seen[1].headers)


def test_another_provider_with_a_password_in_its_address_gets_it_as_basic_authorization(server, other, ask):
    config = Config(providers={"b": Provider("b", kind="vllm", base_url=other.url.replace("//", "//u:p@"))})
    other.play(completion("of b"))
    body = {**BODY, "promptools": {"provider": "b"}}
    assert ask(f"{server.url}/chat/completions", config, json=body, headers=SECRETS).status_code == 200
    assert other.seen[0].headers["authorization"] == "Basic dTpw"


@pytest.mark.parametrize(
    ("url", "place", "may"),
    [
        ("http://h/v1", "http://h:80/x", True),
        ("https://h/v1", "https://H:443/x", True),
        ("http://h:1/v1", "http://h:1/x", True),
        ("http://h/v1", "https://h/v1", True),
        ("http://h:8000/v1", "https://h/v1", False),
        ("http://h/v1", "https://h:8443/v1", False),
        ("https://h/v1", "http://h/v1", False),
        ("http://h/v1", "http://h:8000/v1", False),
        ("http://h/v1", "https://other/v1", False),
        ("http://h/v1", "http://h.evil.example/v1", False),
        ("http://h/v1", "ftp://h/v1", False),
    ],
)
def test_what_is_one_origin(url, place, may):
    url_of = installed_library().module.URL
    assert is_same_origin_redirect(url_of(url), url_of(place)) is may


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [("POST", 303, "GET"), ("POST", 301, "GET"), ("PUT", 301, "PUT"), ("HEAD", 303, "HEAD"), ("POST", 308, "POST")],
)
def test_the_method_after_a_redirection_is_that_of_httpx(method, status, then):
    module = installed_library().module
    request = module.Request(method, "http://h/a", content=b"body", headers={"X-A": "b", "Host": "virtual"})
    made = build_redirect(installed_library(), request, status, module.URL("http://h/b"))
    assert (made.method, str(made.url), made.headers["x-a"], made.headers["host"]) == (
        then,
        "http://h/b",
        "b",
        "virtual",
    )
    assert made.content == (b"" if then == "GET" else b"body")


def test_a_location_that_is_not_a_url_leads_nowhere():
    module = installed_library().module
    request = module.Request("POST", "http://h/a")
    place = redirect_location(installed_library(), request, module.Response(307, headers={"Location": "http://h:x/"}))
    assert not is_same_origin_redirect(request.url, place)
    assert "something that is not a URL" in cross_origin_message(place)
