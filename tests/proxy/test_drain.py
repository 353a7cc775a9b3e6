"""The end of a proxy: what is in flight may finish, the rest ends with an error in its API; clients that leave."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from serving import HTTP, request, serving
from upstream import Answer, chunk, running, sse

from promptools.profiles import Config
from promptools.proxy import Extension, Proxy

CHAT = "/v1/chat/completions"
OLLAMA = "/api/chat"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
MESSAGES = [{"role": "user", "content": "hi"}]
STREAMS = {
    CHAT: {"model": "m", "messages": MESSAGES},
    f"{CHAT}?tools": {"model": "m", "messages": MESSAGES, "tools": TOOLS},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "messages": MESSAGES, "max_tokens": 9},
    "/v1/completions": {"model": "m", "prompt": "hi"},
}


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@contextmanager
def serve(server, *arguments):
    """`promptools serve` as a process."""
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--no-detect", "--base-url", server.url]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        try:
            yield process, url
        finally:
            process.kill()


class Loop(Extension):
    """Drains the proxy on its own event loop."""

    async def start(self, proxy):
        self._proxy, self._loop = proxy, asyncio.get_running_loop()

    def drain(self, seconds):
        asyncio.run_coroutine_threadsafe(self._proxy.drain(seconds), self._loop).result(300)


def draining(server):
    loop = Loop()
    return Proxy(base_url=server.url, config=Config(), detect=False, extensions=[loop]), loop


def begun(stream):
    """Read a stream until it has content; returns the pieces, and what was read."""
    pieces, head = stream.iter_raw(), b""
    while b"word" not in head:
        head += next(pieces)
    return pieces, head


def refused(url):
    """Wait until the proxy accepts no more connections."""
    address = httpx.URL(url)
    while True:
        try:
            socket.create_connection((address.host, address.port), 300).close()
        except ConnectionError:  # those in the backlog are reset
            return


ENDS = {
    CHAT: b"data: [DONE]\n\n",
    "/v1/responses": b"response.completed",
    "/v1/messages": b"message_stop",
    "/v1/completions": b"data: [DONE]\n\n",
    OLLAMA: b'"done":true',
}


def test_what_is_in_flight_finishes_after_a_sigterm(server):
    stopped = threading.Event()
    server.play(
        sse(chunk({"content": "a word, "}), chunk({"content": "more"}, "stop"), between=lambda: stopped.wait(300))
    )
    rests = {}
    with serve(server) as (process, url), httpx.Client(timeout=300) as http, ExitStack() as streams:
        for path in ENDS:
            body = {**STREAMS.get(path, STREAMS[CHAT]), "stream": True}
            stream = streams.enter_context(http.stream("POST", url.removesuffix("/v1") + path, json=body))
            rests[path], _ = begun(stream)
        process.send_signal(signal.SIGTERM)
        refused(url)
        stopped.set()
        rests = {path: b"".join(pieces) for path, pieces in rests.items()}
        assert process.wait(300) == -signal.SIGTERM
        assert process.stderr.read() == ""
    for path, end in ENDS.items():
        assert b"more" in rests[path]
        assert end.replace(b" ", b"") in rests[path].replace(b" ", b"")
        assert b"shutting_down" not in rests[path]


def test_a_second_signal_ends_it_at_once(server):
    server.play(sse(chunk({"content": "a word"}), done=False, then="hang"))
    body = {**STREAMS[CHAT], "stream": True}
    with (
        serve(server) as (process, url),
        httpx.Client(timeout=300) as http,
        http.stream("POST", f"{url}/chat/completions", json=body) as stream,
    ):
        pieces, _ = begun(stream)
        process.send_signal(signal.SIGTERM)
        refused(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == -signal.SIGTERM
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def check_failed_response(events):
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    error, failed = events[-2:]
    assert (error["type"], error["code"]) == ("error", "shutting_down")
    response = failed["response"]
    assert (failed["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"]["code"] == "shutting_down"
    assert response["id"] == events[0]["response"]["id"]
    (item,) = response["output"]
    sent = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", sent)


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_is_cut_ends_with_an_error_in_its_api(server, path):
    server.play(sse(chunk({"content": "a word, "}), chunk({"content": "and "}), done=False, then="hang"))
    app, loop = draining(server)
    with serving(app) as port, httpx.Client(timeout=300, base_url=f"http://127.0.0.1:{port}") as http:
        with http.stream("POST", path, json={**STREAMS[path], "stream": True}) as stream:
            pieces, text = begun(stream)
            assert len(app.in_flight) == 1
            loop.drain(0)
            text += b"".join(pieces)
        assert server.gone.wait(300)
    last = text.decode().rstrip("\n").rpartition("\n\n")[2]
    name = "response.failed" if path == "/v1/responses" else "error"
    assert last.startswith(f"event: {name}\ndata: {{")
    error = json.loads(last.partition("data: ")[2])
    if path == "/v1/messages":
        assert (error["type"], error["error"]["type"]) == ("error", "overloaded_error")
    elif path == "/v1/responses":
        check_failed_response(
            [json.loads(line[6:]) for line in text.decode().split("\n") if line.startswith("data: {")]
        )
    else:
        assert error["error"]["code"] == "shutting_down"


def test_a_line_of_ollamas_api_is_the_error_of_a_stream_that_is_cut(server):
    server.play(sse(chunk({"content": "a word, "}), chunk({"content": "and "}), done=False, then="hang"))
    app, loop = draining(server)
    body = {"model": "m", "messages": MESSAGES}
    with serving(app) as port, httpx.stream("POST", f"http://127.0.0.1:{port}/api/chat", json=body) as stream:
        pieces, text = begun(stream)
        loop.drain(0)
        text += b"".join(pieces)
    lines = [json.loads(line) for line in text.splitlines()]
    assert "shutting down" in lines[-1]["error"]
    assert not any(line.get("done") for line in lines)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", [*STREAMS, OLLAMA])
def test_what_was_not_answered_yet_is_a_503_that_may_be_sent_again(server, path, streamed):
    began, free = threading.Event(), threading.Event()
    server.play(Answer(pieces=(b"{}",), first=lambda: began.set() or free.wait(300)))
    app, loop = draining(server)
    answers = []
    with serving(app) as port:
        body = {**STREAMS.get(path, STREAMS[CHAT]), "stream": streamed}
        client = threading.Thread(
            target=lambda: answers.append(httpx.post(f"http://127.0.0.1:{port}{path}", json=body, timeout=300))
        )
        client.start()
        assert began.wait(300)
        loop.drain(0)
        client.join(300)
        free.set()
        assert app.draining
    assert answers[0].status_code == 503
    assert answers[0].headers["retry-after"] == "1"
    assert answers[0].headers["x-should-retry"] == "true"
    error = answers[0].json()["error"]
    if path == OLLAMA:
        assert "shutting down" in error
    else:
        assert error.get("code") == "shutting_down" or error["type"] == "overloaded_error"


def test_a_stream_that_is_cut_inside_an_event_is_not_a_whole_one(server):
    half = b'data: {"choices": [{"index": 0, "text": "a word'
    server.play(Answer(pieces=(half,), type="text/event-stream", then="hang"))
    app, loop = draining(server)
    with serving(app) as port, httpx.Client(timeout=300, base_url=f"http://127.0.0.1:{port}") as http:
        path = "/v1/completions"
        with http.stream("POST", path, json={**STREAMS[path], "stream": True}) as stream:
            pieces, _ = begun(stream)
            loop.drain(0)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)


@pytest.mark.parametrize("kind", HTTP)
@pytest.mark.parametrize("path", STREAMS)
def test_a_client_that_leaves_ends_the_request_to_the_server(server, path, kind):
    server.play(sse(chunk({"content": "a word, "}), chunk({"content": "and "}), done=False, then="hang"))
    app, _ = draining(server)
    with serving(app, kind) as port:
        body = json.dumps({**STREAMS[path], "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", port), 300) as client:
            client.sendall(request(f"POST {path} HTTP/1.1", "Host: localhost", body=body))
            text = b""
            while b"word" not in text:
                text += client.recv(65536)
            assert not server.gone.is_set()
        assert server.gone.wait(300)


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}?tools", "/v1/completions"])
def test_a_slow_reader_holds_the_server_back(server, path):
    piece = sse(chunk({"content": "a word " * 4000}), done=False).pieces[0]
    count = 4000
    server.play(Answer(pieces=(piece,) * count, type="text/event-stream", then="cut"))
    app, _ = draining(server)
    with serving(app) as port, socket.create_connection(("127.0.0.1", port), 300) as client:
        body = json.dumps({**STREAMS[path], "stream": True}).encode()
        client.sendall(request(f"POST {path} HTTP/1.1", "Host: localhost", body=body))
        client.recv(65536)
        sent = -1
        while sent < 1 or sent < server.sent:  # until it sends no more
            sent = server.sent
            server.gone.wait(0.3)
        assert 0 < sent * len(piece) < 32 * 2**20 < count * len(piece)
        before, read = sent, 0
        while server.sent <= before + 10:  # what is read makes room for more
            received = client.recv(1 << 20)
            assert received, "the answer ended before all of it was sent"
            read += len(received)
        assert read
