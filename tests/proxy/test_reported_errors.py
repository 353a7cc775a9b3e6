"""A server that reports an error under HTTP 200, and repeats the provider's key in it: no client sees the key."""

import gzip
import json
import logging
from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import serving
from upstream import Answer, chunk, completion, running

from promptools.profiles import Config, Provider
from promptools.proxy import Proxy, key_masking, request_sender
from promptools.proxy.key_masking import AnswerFinder, KeyMask

KEY = "sk-oper/ators+4242="
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
FLAT = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
REQUESTS = {
    "chat": ("/v1/chat/completions", ASK),
    "chat with tools": ("/v1/chat/completions", {**ASK, "tools": TOOLS, "promptools": {"trace": True}}),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "responses with tools": ("/v1/responses", {"model": "m", "input": "hi", "tools": FLAT}),
    "messages": ("/v1/messages", {**ASK, "max_tokens": 9}),
    "ollama chat": ("/api/chat", ASK),
    "ollama generate": ("/api/generate", {"model": "m", "prompt": "hi"}),
    "completions": ("/v1/completions", {"model": "m", "prompt": "hi"}),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "hi"}),
}


def event(value):
    return f"data: {json.dumps(value)}\n\n"


def escaped(value):
    return json.dumps(value).replace("/", "\\/").replace("+", "\\u002B")


TEXT = f"Incorrect API key provided: {KEY}."
WHOLE = {
    "object": json.dumps({"error": {"message": TEXT, "code": 401}}),
    "string": json.dumps({"error": TEXT}),
    "as FastAPI": json.dumps({"detail": [{"msg": "bad", "input": f"Bearer {KEY}"}]}),
    "as old vLLM": json.dumps({"object": "error", "message": TEXT, "code": 401}),
    "in a choice": json.dumps({"choices": [{"index": 0, "error": {"message": TEXT}, "finish_reason": "error"}]}),
    "as a finish reason": json.dumps({"choices": [{"message": {"content": ""}, "finish_reason": TEXT}]}),
    "beside a choice": json.dumps({**completion("hi"), "error": {"message": TEXT}}, indent=1),
    "escaped": escaped({"error": {"message": TEXT}}),
    "JSON in JSON": json.dumps({"error": {"message": escaped({"error": TEXT})}}),
    "a page": f"<html><body>Authorization: Bearer {KEY}</body></html>",
    "text": TEXT,
}
STREAMS = {
    "at once": event({"error": {"message": TEXT}}),
    "after text": event(chunk({"content": "Hel"})) + event({"error": {"message": TEXT}}),
    "in a chunk": event(chunk({"content": "Hel"})) + event({**chunk({}), "error": TEXT}),
    "in a choice": event({**chunk({}), "choices": [{"index": 0, "delta": {}, "error": {"message": TEXT}}]}),
    "an event": f"event: error\ndata: {json.dumps({'message': TEXT})}\n\n",
    "an event of text": f"event: error\ndata: {TEXT}\n\n",
    "a comment": f": {TEXT}\n\n" + event(chunk({"content": "hi"})) + event(chunk({}, "stop")) + "data: [DONE]\n\n",
    "after the end": event(chunk({"content": "hi"})) + event(chunk({}, "stop")) + event({"error": TEXT}),
    "a field": f"error: {json.dumps({'message': TEXT})}\n\n",
}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(server):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", KEY)
        provider = Provider("a", kind="vllm", base_url=server.url, api_key_env="A_KEY")
        app = Proxy(config=Config(providers={"a": provider}), provider="a", detect=False)
        with serving(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client


def forms_of(key):
    """Return the key as it is, and as JSON escapes it, once and twice."""
    once = key.replace("/", "\\/").replace("+", "\\u002B")
    return {key, once, key.replace("/", "\\/"), json.dumps(once)[1:-1], "sk-oper", "4242="}


def cut(text, size=7):
    """Return a body in pieces: none of them holds the whole key."""
    data = text.encode()
    return tuple(data[at : at + size] for at in range(0, len(data), size))


CASES = [
    *((request, form, False) for request in REQUESTS for form in WHOLE),
    *((request, form, True) for request in REQUESTS if request != "embeddings" for form in STREAMS),
]


@pytest.mark.parametrize(("request_kind", "form", "streamed"), CASES, ids=str)
def test_no_client_sees_the_key_of_an_error_under_200(server, proxy, caplog, request_kind, form, streamed):
    caplog.set_level(logging.DEBUG, "promptools")
    path, body = REQUESTS[request_kind]
    text = (STREAMS if streamed else WHOLE)[form]
    media_type = "text/event-stream" if streamed else "text/html" if form == "a page" else "application/json"
    headers = {"X-Debug": f"Bearer {KEY}"}
    server.play(*(Answer(200, cut(text), type=media_type, headers=headers) for _ in range(12)))
    answer = proxy.post(path, json={**body, "stream": streamed})
    assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"
    for shown in forms_of(KEY):
        assert shown not in answer.text
        assert shown not in str(answer.headers)
        assert shown not in caplog.text


@pytest.mark.parametrize("request_kind", [kind for kind in REQUESTS if kind not in {"completions", "embeddings"}])
@pytest.mark.parametrize("streamed", [False, True])
def test_no_text_of_a_model_is_changed(server, proxy, request_kind, streamed):
    path, body = REQUESTS[request_kind]
    said = f'The key {KEY}, as {{"error": "{KEY}"}}.'
    if streamed:
        text = "".join(map(event, [chunk({"content": said}), chunk({}, "stop")])) + "data: [DONE]\n\n"
        server.play(Answer(200, cut(text), type="text/event-stream"))
    else:
        server.play(Answer(200, cut(json.dumps(completion(said))), type="application/json"))
    answer = proxy.post(path, json={**body, "stream": streamed})
    assert answer.status_code == 200
    assert json.dumps(said)[1:-1] in answer.text.replace("\\/", "/")


@pytest.mark.parametrize("pretty", [None, 1])
def test_a_whole_answer_that_passes_unread_is_not_changed(server, proxy, pretty):
    said = json.dumps({"choices": [{"text": f"The key {KEY}", "logprobs": {"tokens": [KEY]}}]}, indent=pretty)
    server.play(Answer(200, cut(said), type="application/json"))
    assert proxy.post("/v1/completions", json={"model": "m", "prompt": "hi"}).text == said


def test_a_place_that_a_redirect_names_is_masked(server, proxy):
    server.play(*(Answer(307, (b"",), headers={"Location": f"http://elsewhere.example/?key={KEY}"}) for _ in range(2)))
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = proxy.post(path, json=ASK, follow_redirects=False)
        assert "sk-oper" not in answer.text + str(answer.headers)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/api/chat"])
def test_bytes_that_are_not_http_are_not_quoted_with_the_key(server, monkeypatch, path, others):
    """Not even if the HTTP library quotes what it read, and the server is not the default one."""
    import socketserver
    import threading

    class Garbled(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            self.request.sendall(f"HTTP/1.1 {KEY}\r\n{KEY}\r\n\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Garbled) as garbled:
        threading.Thread(target=garbled.serve_forever, daemon=True).start()
        monkeypatch.setenv("A_KEY", KEY)
        monkeypatch.setattr(request_sender, "error_text", lambda error: f"{error}: illegal status line {KEY}")
        base_url = f"http://127.0.0.1:{garbled.server_address[1]}/v1"
        provider = Provider("a", kind="vllm", base_url=base_url, api_key_env="A_KEY")
        default = replace(provider, name="b", api_key_env=None) if others else provider
        config = Config(providers={"a": provider, default.name: default}, default_provider=default.name)
        app = Proxy(config=config, detect=False)
        with serving(app) as port:
            body = {**ASK, "model": "a/m" if others else "m", "max_tokens": 9}
            answer = httpx.post(f"http://127.0.0.1:{port}{path}", json=body, timeout=300)
        garbled.shutdown()
    assert answer.status_code >= 400
    assert "illegal status line" in answer.text
    assert "sk-oper" not in answer.text


SMALL = "k/y+1"
WORDS = st.sampled_from(["k", "/", "y+1", SMALL, "\\/", "k\\/", "k\\u002fy+", "u002B1", '"', " ", "\n", "data: "])


@given(st.lists(WORDS), st.integers(1, 5), st.booleans())
def test_where_the_pieces_end_changes_nothing(words, size, by_lines):
    text = "".join(words).encode()

    def masked(step):
        mask = KeyMask([SMALL], AnswerFinder(by_lines=by_lines))
        return b"".join(mask.feed(text[at : at + step]) for at in range(0, len(text), step)) + mask.held_back

    assert masked(size) == masked(max(1, len(text)))
    assert SMALL.encode() not in masked(size)
    assert len(masked(size)) == len(text)


def test_a_compressed_answer_may_be_longer_than_an_error(server, proxy, monkeypatch):
    monkeypatch.setattr(key_masking, "MAX_DECOMPRESSED", 1000)
    said = json.dumps({"data": [{"embedding": [0.5] * 1000}]})
    packed = (gzip.compress(said.encode()),)
    server.play(Answer(200, packed, headers={"Content-Encoding": "gzip"}))
    assert proxy.post("/v1/embeddings", json={"model": "m", "input": "hi"}).text == said
    server.play(Answer(500, packed, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.post("/v1/embeddings", json={"model": "m", "input": "hi"})
