"""A server that repeats the key it was sent: the client of a proxy that spends it sees asterisks."""

import gzip
import html
import json
import logging
import zlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import HTTP, raw, request, serving
from upstream import Answer, completion, running

from promptools.exchange import Request
from promptools.exchange.context import Route
from promptools.masking import MAX_SECRETS, PartialSecret, SecretMask, secrets_in
from promptools.profiles import Config, Provider, resolve
from promptools.proxy import Proxy
from promptools.proxy.key_masking import KeyMask
from promptools.transport import installed_library

KEY = "sk-operators-4242"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CHAT = "/v1/chat/completions"
ERROR = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}}).encode()


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def http():
    with installed_library().module.Client(timeout=300) as client:
        yield client


def spending(server, monkeypatch, key=KEY, **settings):
    monkeypatch.setenv("A_KEY", key)
    provider = Provider("a", kind="vllm", base_url=server.url, api_key_env="A_KEY")
    return Proxy(config=Config(providers={"a": provider}), provider="a", **settings)


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_an_error_that_repeats_the_key_shows_asterisks(server, http, monkeypatch, caplog, status, path, tools, coding):
    caplog.set_level(logging.DEBUG, "promptools")
    packed = {None: ERROR, "gzip": gzip.compress(ERROR), "deflate": zlib.compress(ERROR)}[coding]
    fields = {"X-Debug": f"Bearer {KEY}", **({"Content-Encoding": coding} if coding else {})}
    server.play(Answer(status, (packed[:40], packed[40:]), headers=fields))
    body = {**HELLO, **({"tools": tools, "promptools": {"trace": True}} if tools else {})}
    with serving(spending(server, monkeypatch)) as port:
        answer = http.post(f"http://127.0.0.1:{port}{path}", json=body)
    assert answer.status_code == status
    assert KEY not in answer.text
    assert KEY not in str(answer.headers)
    assert "*" * len(KEY) in answer.json()["error"]["message"]
    assert KEY not in caplog.text
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_trace_that_holds_an_error_of_the_server_holds_no_key(server, http, monkeypatch):
    crash = f"Unexpected token 1 while expecting start token 200006 {KEY}"
    replies = []
    server.play(
        Answer(500, (json.dumps({"error": {"message": crash}}).encode(),)),
        completion('```json\n{"tool": "f", "arguments": {}}\n```'),
    )
    with serving(spending(server, monkeypatch, on_reply=replies.append)) as port:
        body = {**HELLO, "tools": TOOLS, "promptools": {"trace": True}}
        answer = http.post(f"http://127.0.0.1:{port}{CHAT}", json=body)
    assert answer.headers["x-promptools-attempts"] == "3"  # native; raw, for which nothing is rendered here; prompt
    assert KEY not in answer.text
    assert KEY not in repr(replies)


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_what_is_no_secret_of_the_operator_is_left_as_it_is(server, http, monkeypatch, path):
    error = Answer(401, (ERROR,))
    with serving(Proxy(base_url=server.url, config=Config())) as port:
        server.play(error)
        own = http.post(f"http://127.0.0.1:{port}{path}", json=HELLO, headers={"Authorization": f"Bearer {KEY}"})
    assert own.content == ERROR
    with serving(spending(server, monkeypatch)) as port:
        server.play(completion(f"your key is {KEY}"))
        assert KEY in http.post(f"http://127.0.0.1:{port}{path}", json=HELLO).text
    with serving(spending(server, monkeypatch, key="key")) as port:
        server.play(error)
        assert http.post(f"http://127.0.0.1:{port}{path}", json=HELLO).content == ERROR


def test_a_server_is_asked_only_for_compression_that_can_be_undone(server, http, monkeypatch):
    server.play(completion())
    with serving(spending(server, monkeypatch)) as port:
        http.get(f"http://127.0.0.1:{port}/v1/models", headers={"Accept-Encoding": "gzip, br, zstd"})
    assert server.seen[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_an_error_that_is_not_compressed_as_it_says_is_masked_as_it_is(server, http, monkeypatch, path):
    server.play(Answer(500, (ERROR,), headers={"Content-Encoding": "gzip"}))
    with serving(spending(server, monkeypatch)) as port:
        answer = http.post(f"http://127.0.0.1:{port}{path}", json=HELLO)
    assert answer.status_code == 500
    assert answer.content == ERROR.replace(KEY.encode(), b"*" * len(KEY))


def test_a_compressed_error_that_is_damaged_breaks_off(server, http, monkeypatch):
    packed = gzip.compress(b"damaged " * 40000)
    server.play(Answer(500, (packed[:-8] + bytes(8),), headers={"Content-Encoding": "gzip"}))
    with serving(spending(server, monkeypatch)) as port, pytest.raises(installed_library().module.RemoteProtocolError):
        http.get(f"http://127.0.0.1:{port}/v1/models")


@given(st.lists(st.sampled_from([b"abcab", b"abc", b"a", b"b", b"", b"abcabd", b"d"])), st.integers(1, 4))
def test_a_key_is_found_wherever_the_pieces_end(words, size):
    text = b"".join(words)
    mask = KeyMask(["abcabd"])
    out = b"".join(mask.feed(text[at : at + size]) for at in range(0, len(text), size)) + mask.held_back
    assert out == text.replace(b"abcabd", b"******")


ESCAPED = {
    "html": html.escape,
    "numbers in html": lambda text: "".join(char if char.isalnum() else f"&#{ord(char)};" for char in text),
    "json in json in json": lambda text: dumped(dumped(dumped(text))),
    "a url": lambda text: quote(text, safe=""),
    "a url in a url": lambda text: quote(quote(text, safe=""), safe=""),
}


def dumped(text):
    return json.dumps(text).replace("/", "\\/")[1:-1]


@pytest.mark.parametrize("form", ESCAPED)
@pytest.mark.parametrize("key", ["sk-a+b/c=d_4242", "k&x%y\"z<1>2'/99", "&&%25%%&amp%&&_4242", 'k\\\\x\\"y_4242'])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_escaped_key_is_found_wherever_the_pieces_end(key, form, size):
    escaped = ESCAPED[form](key)
    text = f"Incorrect: {escaped}. {escaped[:-1]}!".encode()
    mask = KeyMask([key])
    out = b"".join(mask.feed(text[at : at + size]) for at in range(0, len(text), size)) + mask.held_back
    assert out == f"Incorrect: {'*' * len(escaped)}. {escaped[:-1]}!".encode()


@pytest.mark.parametrize("part", ['\\"', "\\", "\\/", "%25", "&amp;"])
def test_a_key_full_of_escapes_is_not_searched_for_in_exponentially_many_ways(part):
    text = {"%25": "%252525", "&amp;": "&amp;amp;"}.get(part, part.replace("\\", "\\" * 4)) * 500
    key = part * 40 + "X"
    assert SecretMask([key]).text(text) == text
    assert PartialSecret(key).hold_from(text + "y") == len(text) + 1


def test_credentials_that_a_client_makes_up_are_searched_for_in_bounded_patterns():
    long = "+/" * 20_000
    cookies = "; ".join(f"c{number}=secret+/{number:04}" for number in range(3000))
    headers = [("cookie", cookies), ("x-my-token", long), ("authorization", f"Bearer {KEY}")]
    secrets = secrets_in(headers)
    assert len(secrets) == MAX_SECRETS
    assert KEY in secrets
    mask = SecretMask({*secrets, long, "c+d/e=f_4242"})
    assert len(mask.pattern.pattern) < 50_000
    said = f"{KEY} c%2Bd\\/e=f_4242 {long} hi"
    assert mask.text(said) == f"{'*' * len(KEY)} {'*' * len('c%2Bd__e=f_4242')} {'*' * len(long)} hi"


def test_a_long_key_of_the_operator_is_masked_wherever_the_pieces_end():
    key = "".join(f"{number:x}-_" for number in range(1000))
    text = f"bad {key}!".encode()
    mask = KeyMask([key])
    out = b"".join(mask.feed(text[at : at + 700]) for at in range(0, len(text), 700)) + mask.held_back
    assert out == b"bad " + b"*" * len(key) + b"!"


def test_one_clients_wrong_key_costs_the_others_nothing(server, http):
    app = Proxy(base_url=server.url, config=Config())
    with serving(app) as port:
        for status in (401, 403):
            server.play(Answer(status, (ERROR,)))
            for _ in range(5):
                asked = http.post(f"http://127.0.0.1:{port}{CHAT}", json={**HELLO, "tools": TOOLS})
                assert asked.status_code == status
            server.play(completion(None, [("f", "{}")]))
            answer = http.post(f"http://127.0.0.1:{port}{CHAT}", json={**HELLO, "tools": TOOLS})
            assert answer.headers["x-promptools-mode"] == "native"
    assert not app.session.context.breaker.states(0.0)


def test_no_repr_shows_a_key_or_a_password(server, monkeypatch):
    url = server.url.replace("://", "://user:p4ssword@")
    provider = Provider("a", kind="vllm", base_url=url, api_key_env="A_KEY")
    config = Config(providers={"a": provider})
    app = Proxy(config=config, provider="a")
    sent = Request("POST", "http://h/v1", (("authorization", f"Bearer {KEY}"),), KEY.encode())
    route = Route(resolve("m", config=config, provider="a"), headers=sent.headers)
    for each in (config, provider, app, app.target, app.upstream, app.access, app.session, sent, route):
        assert "p4ssword" not in repr(each)
        assert "dXNlcjpwNHNzd29yZA" not in repr(each)
        assert KEY not in repr(each)
    assert repr(Provider("b", base_url="http://h/v1", system_prompt="a@b")).startswith(
        "Provider(name='b', kind=None, base_url='http://h/v1'"
    )
    assert "system_prompt='a@b'" in repr(Provider("b", system_prompt="a@b"))


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
def test_a_request_that_ends_in_two_places_is_refused_and_read_no_further(server, kind, path):
    server.play(completion())
    fields = ("Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked")
    data = request(f"POST {path} HTTP/1.1", *fields) + b"0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(Proxy(base_url=server.url, config=Config()), kind) as port:
        status, answer = raw(port, data)
    assert status == 400
    assert answer.count(b"HTTP/1.1") == 1
    assert not server.seen
