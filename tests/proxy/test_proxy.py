"""The proxy under a real ASGI server (uvicorn), before a real HTTP server, asked by the SDK and by raw sockets."""

import asyncio
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import openai
import pytest
from serving import serving as served
from upstream import Answer, chunk, completion, running, sse
from waiting import LONG

from promptools.errors import UsageError
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.transport import installed_library

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@contextmanager
def serving(app):
    with served(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(server):
    with serving(Proxy(base_url=server.url, config=Config())) as url:
        yield url


@pytest.fixture
def http():
    with installed_library().module.Client(timeout=300) as client:
        yield client


def client_of(proxy):
    return openai.OpenAI(base_url=f"{proxy}/v1", api_key="mine", max_retries=0)


def test_chat_completions(server, proxy):
    server.play(completion("hello"))
    with client_of(proxy) as client:
        assert client.chat.completions.create(**HELLO).choices[0].message.content == "hello"
    assert server.seen[0].path == "/v1/chat/completions"
    assert server.seen[0].headers["authorization"] == "Bearer mine"
    assert server.seen[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert server.seen[0].json == HELLO


def test_calls(server, proxy):
    server.play(completion(None, [("f", "{}")]))
    with client_of(proxy) as client:
        reply = client.chat.completions.create(**HELLO, tools=TOOLS)
    assert reply.choices[0].message.tool_calls[0].function.name == "f"


def test_a_stream_comes_as_it_is_made(server, proxy):
    came = threading.Event()
    chunks = (chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, finish="stop"))
    server.play(sse(*chunks, between=lambda: came.wait(300)))
    words = []
    with client_of(proxy) as client:
        for each in client.chat.completions.create(**HELLO, stream=True):
            if each.choices and each.choices[0].delta.content:
                words.append((each.choices[0].delta.content, came.is_set()))
                came.set()
    assert words == [("a", False), ("b", True)]


def test_models(server, proxy):
    server.play(Answer(pieces=(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}',)))
    with client_of(proxy) as client:
        assert [each.id for each in client.models.list()] == ["m"]
    assert server.seen[0].path == "/v1/models"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/v1/embeddings?a=1&b=%2F", "/v1/embeddings?a=1&b=%2F"),
        ("/v1", "/v1"),
        ("/v1/files/a%2Fb%20c", "/v1/files/a%2Fb%20c"),
        ("/health", "/health"),
        ("/api/tags", "/api/tags"),
        ("/v1beta/x", "/v1beta/x"),
    ],
)
def test_every_other_path_passes_byte_for_byte(server, proxy, http, path, there):
    server.play(Answer(status=418, pieces=(b"\x00\xff" * 3000,), type="application/x-odd", gzip=True))
    headers = {"Accept-Encoding": "gzip", "X-Mine": "1", "Connection": "keep-alive, X-Hop", "X-Hop": "1"}
    with http.stream("PUT", proxy + path, content=b"\x01\xfe", headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
    seen = server.seen[0]
    assert answer.status_code == 418
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "application/x-odd"
    assert len(raw) == int(answer.headers["content-length"])
    assert (seen.method, seen.path, seen.body) == ("PUT", there, b"\x01\xfe")
    assert seen.headers["x-mine"] == "1"
    assert seen.headers["x-hop"] is None


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/v1/chat/completions/?a=1", "/v1/chat/completions?a=1"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/api/v0/chat/completions", "/api/v0/chat/completions"),
        ("/openai/deployments/d/chat/completions?v=1", "/openai/deployments/d/chat/completions?v=1"),
    ],
)
def test_chat_completions_elsewhere_on_the_server_are_asked_there(server, proxy, http, path, there):
    server.play(completion(None, [("f", "{}")]))
    assert http.post(proxy + path, json={**HELLO, "tools": TOOLS}).headers["x-promptools-mode"] == "native"
    assert server.seen[0].path == there


def test_a_body_in_chunks_arrives_whole(server, proxy, http):
    server.play(completion())
    http.post(f"{proxy}/v1/audio", content=iter([b"a", b"b" * 100000]))
    assert server.seen[0].body == b"a" + b"b" * 100000


def ask_raw(proxy, path, body):
    host, _, port = proxy.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    sock.sendall(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data
    )
    return sock


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize(
    "answer", [Answer(before=LONG), sse(chunk({"content": "a"}), done=False, then="hang")], ids=["before", "during"]
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_a_client_that_leaves_closes_the_upstream(server, proxy, path, answer, stream, tools):
    """Also before the first token, and for a reply that is not streamed."""
    server.play(answer)
    sock = ask_raw(proxy, path, {**HELLO, "stream": stream, **({"tools": tools} if tools else {})})
    while not server.seen:
        time.sleep(0.01)
    time.sleep(0.1)
    assert not server.gone.is_set()
    sock.close()
    assert server.gone.wait(LONG)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_client_that_leaves_amid_many_small_pieces_is_seen_at_once(path):
    """Pieces that have come together are handed on one by one: between two of them the client may have left."""
    sent = []
    gone = asyncio.Event()
    events = b"".join(b"data: %s\n\n" % json.dumps(chunk({"content": "x"})).encode() for _ in range(50))

    class Upstream(installed_library().module.AsyncByteStream):
        async def __aiter__(self):
            for line in events.splitlines(keepends=True):
                yield line

    def answer(request):
        return installed_library().module.Response(
            200, headers={"content-type": "text/event-stream"}, stream=Upstream()
        )

    async def receive():
        if not sent:
            return {"type": "http.request", "body": json.dumps({**HELLO, "stream": True}).encode()}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if len(sent) == 3:
            gone.set()

    async def go():
        module = installed_library().module
        async with module.AsyncClient(transport=module.MockTransport(answer)) as http:
            app = Proxy(base_url="http://up/v1", config=Config(), detect=False, http_client=http)
            headers = [(b"host", b"localhost")]
            scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
            await app(scope, receive, send)

    asyncio.run(go())
    assert 3 <= len(sent) <= 8


def test_a_client_that_leaves_in_its_own_request(server, proxy):
    server.play(completion())
    host, _, port = proxy.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)))
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
    time.sleep(0.1)
    sock.close()
    time.sleep(0.1)
    assert not server.seen


def test_no_server_is_a_502_and_a_slow_one_a_504(server, http):
    with serving(Proxy(base_url="http://127.0.0.1:1/v1", config=Config())) as url:
        for path in ("/v1/chat/completions", "/v1/models"):
            answer = http.post(url + path, json=HELLO)
            assert answer.status_code == 502
            assert "127.0.0.1:1" in answer.json()["error"]["message"]
            assert answer.json()["error"]["type"] == "UpstreamError"
    server.play(Answer(before=LONG))
    impatient = installed_library().module.AsyncClient(timeout=0.2)
    with serving(Proxy(base_url=server.url, config=Config(), http_client=impatient)) as url:
        for path in ("/v1/chat/completions", "/v1/models"):
            assert http.post(url + path, json=HELLO).status_code == 504


def test_an_answer_that_breaks_off_is_not_ended_well(server, proxy, http):
    server.play(Answer(pieces=(b"abc",), then="cut"))
    with pytest.raises(installed_library().module.RemoteProtocolError):
        http.get(f"{proxy}/v1/models")


def test_the_providers_key_is_used(server, http, tmp_path, monkeypatch):
    path = tmp_path / "promptools.toml"
    path.write_text(f'[providers.a]\nkind = "vllm"\nbase_url = "{server.url}"\napi_key_env = "A_KEY"\n')
    monkeypatch.setenv("A_KEY", "theirs")
    server.play(completion())
    with serving(Proxy(config=str(path))) as url:
        for there in ("/v1/chat/completions", "/v1/models"):
            http.post(url + there, json=HELLO, headers={"Authorization": "Bearer mine", "X-Api-Key": "mine"})
            assert server.seen[-1].headers.get_all("authorization") == ["Bearer theirs"]
            assert server.seen[-1].headers["x-api-key"] is None


def test_a_proxy_before_nothing_is_refused():
    with pytest.raises(UsageError, match="base_url"):
        Proxy(config=Config())


def test_lifespan_and_websockets():
    app = Proxy(base_url="http://127.0.0.1:1/v1", config=Config())
    assert app.upstream_client.http is app.upstream_client.http
    sent = []

    async def go():
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive, send)
        await app({"type": "websocket"}, receive, send)
        await app.aclose()

    asyncio.run(go())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


HARMONY = Answer(
    status=500, pieces=(b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}',)
)
FENCED = '```json\n{"tool": "f", "arguments": {}}\n```'


def test_a_fallback_behind_the_proxy(server, http, caplog):
    caplog.set_level(logging.INFO, "promptools")
    replies = []
    with serving(Proxy(base_url=server.url, config=Config(), on_reply=replies.append)) as url:
        server.play(HARMONY, completion(FENCED))
        answer = http.post(f"{url}/v1/chat/completions", json={**HELLO, "tools": TOOLS, "promptools": {"trace": True}})
        assert answer.headers["x-promptools-mode"] == "prompt"
        assert answer.headers["x-promptools-attempts"] == "2"
        assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
        assert answer.json()["promptools"]["mode"] == "prompt"
        assert "promptools" not in server.seen[0].json
        assert [reply.trace.mode for reply in replies] == ["prompt"]
    assert "harmony" in caplog.text


def test_a_streamed_fallback_repeats_the_mode_in_a_comment(server, http):
    with serving(Proxy(base_url=server.url, config=Config())) as url:
        server.play(HARMONY, sse(*[chunk({"content": c}) for c in FENCED], chunk({}, finish="stop")))
        answer = http.post(f"{url}/v1/chat/completions", json={**HELLO, "tools": TOOLS, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.rstrip().endswith("data: [DONE]")
    assert [line for line in answer.text.splitlines() if line.startswith(":") and "mode=prompt" in line]


def test_leaving_between_two_sends_closes_the_second(server):
    with serving(Proxy(base_url=server.url, config=Config())) as url:
        server.play(HARMONY, Answer(before=LONG))
        sock = ask_raw(url, "/v1/chat/completions", {**HELLO, "tools": TOOLS})
        while len(server.seen) < 2:
            time.sleep(0.01)
        sock.close()
        assert server.gone.wait(LONG)


def test_a_bad_request_of_ours(server, proxy, http):
    server.play(completion())
    answer = http.post(f"{proxy}/v1/chat/completions", json={**HELLO, "tools": {"name": "no list"}})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "UsageError"
    assert answer.headers["x-should-retry"] == "false"
    assert not server.seen


def test_untouched_bodies_are_the_same_bytes(server, proxy, http):
    odd = b'{ "choices":[ {"index":0,"message":{"role":"assistant","content":"\\u00e9"}} ] , "odd": 1.50 }'
    body = b'{ "messages" : [ {"role":"user","content":"\xc3\xa9"} ], "model":"m", "odd":1.50 }'
    server.play(Answer(pieces=(odd,)))
    answer = http.post(f"{proxy}/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert server.seen[0].body == body
    assert answer.content == odd


def test_a_body_that_is_not_json_goes_to_the_server(server, proxy, http):
    server.play(Answer(status=400, pieces=(b'{"error": {"message": "bad json"}}',)))
    answer = http.post(f"{proxy}/v1/chat/completions", content=b"{nope")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "bad json")
    assert server.seen[0].body == b"{nope"


def test_many_streams_at_once(server, proxy):
    server.play(sse(*[chunk({"content": "x"})] * 5, chunk({}, finish="stop"), pause=0.05))

    async def one(client):
        stream = await client.chat.completions.create(**HELLO, stream=True)
        return "".join([each.choices[0].delta.content or "" async for each in stream if each.choices])

    async def go():
        async with openai.AsyncOpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0) as client:
            return await asyncio.gather(*(one(client) for _ in range(40)))

    assert asyncio.run(go()) == ["xxxxx"] * 40


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_redirection_is_followed_by_the_proxy(server, proxy, http, tools):
    moved = Answer(status=307, pieces=(b"moved",), headers={"Location": f"{server.root}/moved/v1/chat/completions"})
    server.play(moved, completion("here"))
    answer = http.post(f"{proxy}/v1/chat/completions", json={**HELLO, **({"tools": tools} if tools else {})})
    assert answer.json()["choices"][0]["message"]["content"] == "here"
    assert server.seen[1].path == "/moved/v1/chat/completions"


@pytest.mark.parametrize(("settings", "status"), [({}, 400), ({"max_tools": 0}, 200), ({"max_tools": 5000}, 200)])
def test_very_many_tools_are_refused_where_the_operator_does_not_take_them(server, http, settings, status):
    function = {"parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": {"name": f"f{n}", **function}} for n in range(4097)]
    server.play(completion("hello"))
    with serving(Proxy(base_url=server.url, config=Config(), **settings)) as url:
        answer = http.post(f"{url}/v1/chat/completions", json={**HELLO, "tools": tools})
    assert answer.status_code == status
    assert len(server.seen) == (status == 200)
    if status == 400:
        assert "at most 4096" in answer.json()["error"]["message"]
