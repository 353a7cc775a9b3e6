"""Whose key goes where: to the server that it is meant for, from those who may use it, and nowhere else."""

import json
import logging
import re

import pytest
from serving import HTTP, Canary, raw, request, serving
from upstream import Answer, completion, running

from promptools.errors import UsageError, without_credentials
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.access import ApiKey
from promptools.proxy.asgi import RefusedError
from promptools.transport import installed_library

HELLO = {"model": "m", "messages": [{"role": "user", "content": "my prompt"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CHAT = "/v1/chat/completions"
SECRETS = {"Authorization": "Bearer s1", "X-Api-Key": "s2", "Api-Key": "s3", "Cookie": "c=s4", "X-Goog-Api-Key": "s5"}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def other():
    with running() as upstream:
        yield upstream


@pytest.fixture
def http():
    with installed_library().module.Client(timeout=300) as client:
        yield client


def of(server, name="a"):
    return Provider(name, kind="vllm", base_url=server.url, api_key_env=f"{name.upper()}_KEY")


def ask(http, port, path=CHAT, body=HELLO, **headers):
    return http.post(f"http://127.0.0.1:{port}{path}", json=body, headers=headers)


# -- the proxy's own keys


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/health"])
def test_without_a_right_key_nothing_is_read_or_sent(server, kind, path):
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), api_keys=["key1", "key2"]), kind) as port:
        for fields in ((), ("Authorization: Bearer wrong",), ("Authorization: Basic a2V5MQ==",), ("X-Api-Key: key",)):
            # the body never comes: the answer does not wait for it
            status, answer = raw(
                port, request(f"POST {path} HTTP/1.1", "Host: localhost", "Content-Length: 9", *fields)
            )
            assert status == 401
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
            assert b"key1" not in answer
    assert not server.seen


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer k2"}, {"Authorization": "bearer  k1"}, {"X-Api-Key": "k1"}, {"Api-Key": "k2"}],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_any_of_the_keys_is_taken_and_none_goes_upstream(server, http, monkeypatch, headers, path):
    monkeypatch.setenv("PROMPTOOLS_API_KEY", "k1, k3")
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config(), api_keys=["k2"])) as port:
        assert ask(http, port, path, **headers).status_code == 200
    assert not {"authorization", "x-api-key", "api-key"} & {name.lower() for name in server.seen[-1].headers}
    assert all("k1" not in value and "k2" not in value for value in server.seen[-1].headers.values())


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_clients_own_keys_go_upstream_only_where_nobody_else_has_one(server, http, monkeypatch, path, own, keyed):
    monkeypatch.setenv("A_KEY", "theirs" if keyed else "")
    server.play(completion())
    provider = Provider("a", kind="vllm", base_url=server.url, api_key_env="A_KEY", facts={"needs_key": False})
    app = Proxy(config=Config(providers={"a": provider}), api_keys=["s2"] if own else [])
    with serving(app) as port:
        assert ask(http, port, path, **SECRETS, **{"OpenAI-Organization": "o"}).status_code == 200
    seen = {name.lower(): value for name, value in server.seen[-1].headers.items()}
    assert seen.get("authorization") == ("Bearer theirs" if keyed else None if own else "Bearer s1")
    assert ("x-api-key" in seen, "openai-organization" in seen) == (not own and not keyed,) * 2
    assert seen["cookie"] == "c=s4"


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "a\n"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key):
    with pytest.raises(UsageError, match="API key") as raised:
        Proxy(base_url="http://127.0.0.1:1/v1", config=Config(), api_keys=["good", key])
    assert not key or key not in str(raised.value)


def test_a_single_string_is_one_key_and_one_host():
    app = Proxy(base_url="http://127.0.0.1:1/v1", config=Config(), api_keys="abc", allowed_hosts="gate")
    scope = {"headers": [(b"host", b"x"), (b"authorization", b"Bearer a")]}
    with pytest.raises(RefusedError):
        app.access.check(scope)
    scope["headers"][1] = (b"authorization", b"Bearer abc")
    assert app.access.check(scope) == "x"


def test_every_key_is_compared_whichever_is_right(monkeypatch, server):
    from promptools.proxy import access

    compared = []
    monkeypatch.setattr(access.hmac, "compare_digest", lambda one, two: compared.append((one, two)) or one == two)
    own = access.AccessControl([ApiKey("first"), ApiKey("second"), ApiKey("third")], ())
    scope = {"headers": [(b"host", b"x"), (b"authorization", b"Bearer first")], "server": ("127.0.0.1", 1)}
    own.check(scope)
    assert len(compared) == 3
    assert {len(each) for pair in compared for each in pair} == {32}
    assert "first" not in repr(vars(own))


# -- a user name and password in the base URL


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_a_password_in_the_base_url_is_sent_as_basic_authorization(server, http, path):
    server.play(completion())
    base_url = server.url.replace("http://", "http://us3r:p%40ss@")
    with serving(Proxy(base_url=base_url, config=Config())) as port:
        ask(http, port, path, **SECRETS)
    assert server.seen[-1].headers.get_all("authorization") == ["Basic dXMzcjpwQHNz"]
    assert server.seen[-1].headers["x-api-key"] is None


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_password_in_the_base_url_is_nowhere_else(http, caplog, tools):
    caplog.set_level(logging.DEBUG)
    replies = []
    app = Proxy(base_url="http://us3r:p4ss@127.0.0.1:1/v1", config=Config(), on_reply=replies.append)
    assert "p4ss" not in app.base_url
    assert "p4ss" not in str(app.target.reasons)
    with serving(app) as port:
        for path in (CHAT, "/v1/models"):
            answer = ask(http, port, path, {**HELLO, "tools": tools, "promptools": {"trace": True}})
            assert answer.status_code == 502
            assert "127.0.0.1:1" in answer.text
            assert "p4ss" not in answer.text
    assert "p4ss" not in caplog.text
    assert "p4ss" not in str(replies)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:p@h/v1", "http://***@h/v1"),
        ("no answer from https://u:p@ss@h:1/x and http://h/@y", "no answer from https://***@h:1/x and http://h/@y"),
        ("u:p@h/v1", "***@h/v1"),
        ("http:/u:p@h", "http:/***@h"),
        ("http://h/v1?mail=a@b", "http://h/v1?mail=a@b"),
    ],
)
def test_one_function_takes_credentials_out_of_a_text(text, shown):
    assert without_credentials(text) == shown


# -- redirections


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:{port}/v1/chat/completions", "//localhost:{port}/x", "https://127.0.0.1:{port}/"]
)
def test_a_redirection_to_another_origin_gets_neither_keys_nor_prompt(server, http, status, tools, place):
    canary = Canary()
    location = place.format(port=canary.port).replace("://", "://us3r:p4ss@") + "?t=t0ken"
    server.play(Answer(status=status, pieces=(b"moved",), headers={"Location": location}))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        answer = ask(http, port, body={**HELLO, **({"tools": tools} if tools else {})}, **SECRETS)
        assert answer.status_code == 502
        assert f":{canary.port}" in answer.json()["error"]["message"]
        assert "p4ss" not in answer.text
        assert "t0ken" not in answer.text
    assert not canary.heard
    assert len(server.seen) == 1
    canary.close()


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/responses/compact"), ("GET", "/"), ("POST", "/api/embed")])
def test_so_it_is_on_routes_without_attempts(server, http, method, path):
    canary = Canary()
    location = f"http://us3r:p4ss@127.0.0.1:{canary.port}/?t=t0ken"
    server.play(Answer(status=307, pieces=(b"moved",), headers={"Location": location}))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        body = {"model": "m", "input": "Hi"} if method == "POST" else None
        answer = http.request(method, f"http://127.0.0.1:{port}{path}", json=body, headers=SECRETS)
    assert answer.status_code == 502
    assert f"127.0.0.1:{canary.port}" in answer.text
    assert "p4ss" not in answer.text
    assert not canary.heard
    canary.close()


def test_all_else_that_is_redirected_is_the_clients_to_follow(server, other, http):
    server.play(Answer(status=307, pieces=(b"moved",), headers={"Location": f"{other.url}/models"}))
    other.play(completion())
    module = installed_library().module
    follower = module.AsyncClient(follow_redirects=True, limits=module.Limits(max_keepalive_connections=0))
    for given in (None, follower):
        with serving(Proxy(base_url=server.url, config=Config(), http_client=given)) as port:
            answer = ask(http, port, "/v1/models", **SECRETS)
        assert (answer.status_code, answer.headers["location"], answer.content) == (
            307,
            f"{other.url}/models",
            b"moved",
        )
    assert not other.seen


def test_a_redirection_within_the_origin_keeps_the_key_and_no_cookie_of_the_server(server, http, monkeypatch):
    monkeypatch.setenv("A_KEY", "theirs")
    moved = Answer(status=307, headers={"Location": "/moved/chat/completions", "Set-Cookie": "c=theirs"})
    server.play(moved, completion("here"))
    with serving(Proxy(config=Config(providers={"a": of(server)}))) as port:
        assert ask(http, port, **SECRETS).json()["choices"][0]["message"]["content"] == "here"
    assert server.seen[1].path == "/moved/chat/completions"
    assert server.seen[1].json == HELLO
    assert server.seen[1].headers["authorization"] == "Bearer theirs"
    assert server.seen[1].headers.get_all("cookie") == ["c=s4"]


def test_redirections_in_a_circle_end(server, http):
    server.play(Answer(status=307, headers={"Location": CHAT}))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        answer = ask(http, port)
    assert answer.status_code == 502
    assert "redirected more than 20 times" in answer.text
    assert len(server.seen) == 21


def test_what_is_redirected_by_303_is_asked_for_by_get(server, http):
    server.play(Answer(status=303, headers={"Location": "/v1/answers/1"}), completion("here"))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        assert ask(http, port).json()["choices"][0]["message"]["content"] == "here"
    assert (server.seen[1].method, server.seen[1].body) == ("GET", b"")
    assert server.seen[1].headers["content-type"] is None


def test_a_location_that_is_not_a_url_is_a_502(server, http):
    server.play(Answer(status=307, headers={"Location": "http://h:x/"}))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        assert ask(http, port).status_code == 502


# -- cookies


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_one_users_cookie_is_never_sent_for_another(server, http, path):
    moved = Answer(status=307, headers={"Location": CHAT, "Set-Cookie": "session=alice; Path=/"})
    welcome = Answer(pieces=(json.dumps(completion()).encode(),), headers={"Set-Cookie": "session=alice; Path=/"})
    server.play(welcome, moved, completion(), completion())
    app = Proxy(base_url=server.url, config=Config())
    with serving(app) as port:
        assert ask(http, port, path).headers["set-cookie"] == "session=alice; Path=/"
        http.cookies.clear()
        for _ in range(2):
            ask(http, port, path)
            http.cookies.clear()
    assert [seen.headers["cookie"] for seen in server.seen] == [None] * len(server.seen)
    assert not list(app.upstream_client.http.cookies.jar)


# -- another provider


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_request_spends_no_other_key_unless_the_operator_allows_it(server, other, http, monkeypatch, tools):
    monkeypatch.setenv("A_KEY", "ka")
    monkeypatch.setenv("B_KEY", "kb")
    config = Config(providers={"a": of(server), "b": of(other, "b")})
    body = {**HELLO, **({"tools": tools} if tools else {}), "promptools": {"provider": "b"}}
    server.play(completion("of a"))
    other.play(completion("of b"))
    with serving(Proxy(config=config, provider="a")) as port:
        refused = ask(http, port, body=body)
        assert refused.status_code == 400
        assert "--allow-provider" in refused.json()["error"]["message"]
        nobody = ask(http, port, body={**body, "promptools": {"provider": "nope"}})
        assert nobody.status_code == 400
        refusals = [re.sub(r"req_[0-9a-f]+", "ID", each.text) for each in (nobody, refused)]
        assert refusals[0].replace("nope", "b") == refusals[1]
        assert not server.seen
        assert not other.seen
        for name in ("a", "vllm", None):
            assert ask(http, port, body={**body, "tools": TOOLS, "promptools": {"provider": name}}).status_code == 200
        assert not other.seen
    with serving(Proxy(config=config, provider="a", allow_provider=True)) as port:
        assert ask(http, port, body=body, **SECRETS).json()["choices"][0]["message"]["content"] == "of b"
    assert other.seen[-1].headers["authorization"] == "Bearer kb"
    assert "s2" not in str(other.seen[-1].headers)


@pytest.mark.parametrize("name", ["base_url", "config", "overrides", "api_key", "headers", "allow_provider"])
def test_no_option_of_a_request_names_a_place_or_a_key(server, http, name):
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        answer = ask(http, port, body={**HELLO, "promptools": {name: "http://127.0.0.1:9/v1"}})
    assert answer.status_code == 400
    assert f"unknown option {name!r}" in answer.json()["error"]["message"]
    assert not server.seen


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_no_header_leads_elsewhere(server, http, path):
    canary = Canary()
    there = f"127.0.0.1:{canary.port}"
    names = ("X-Forwarded-Host", "X-Forwarded-Server", "X-Host", "X-Original-Url", "X-Rewrite-Url", "Forwarded")
    server.play(completion())
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        assert ask(http, port, path, **dict.fromkeys(names, there)).status_code == 200
    assert not canary.heard
    assert server.seen[-1].headers["host"] == f"127.0.0.1:{server.port}"
    canary.close()
