"""Comments of the proxy while a server is silent, read by the SDK and byte by byte, over real sockets.

No test waits for the clock: the server says nothing until the client has seen a comment.
"""

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import openai
import pytest
from serving import serving
from upstream import Upstream, chunk, few_certificates, sse, unary

from promptools.client import OpenAI
from promptools.profiles import Config
from promptools.proxy import Proxy, request_sender
from promptools.transport import installed_library

PARIS = {"messages": [{"role": "user", "content": "Weather in Paris?"}], "model": "m"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = PARIS | {"tools": [TOOL], "stream": True}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
COMMENT = b": keep-alive\n\n"


class Held(Upstream):
    """A server that answers each request only when it may: before the head, or after the first piece."""

    def __init__(self):
        super().__init__()
        self.may = threading.Event()
        self.after_first = False

    def answer(self, seen):
        answer = super().answer(seen)
        held = partial(self.may.wait, 30)
        streamed = answer.type == "text/event-stream" and self.after_first
        return replace(answer, between=held) if streamed else replace(answer, first=held)


@pytest.fixture
def server():
    server = Held()
    try:
        with few_certificates():
            yield server
    finally:
        server.may.set()
        server.close()


@pytest.fixture
def proxy(server, monkeypatch):
    monkeypatch.setattr(request_sender, "TICK_SECONDS", 0.005)
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, heartbeat=0.01)) as port:
        yield f"http://127.0.0.1:{port}/v1"


class Heard:
    """A client of the SDK's, and the bytes that came to it; the server goes on when the pattern `enough` is there."""

    def __init__(self, server, enough=COMMENT):
        self.server = server
        self.enough = enough
        self.bytes = b""

    @contextmanager
    def client(self, base_url):
        module = installed_library().module
        with module.Client(event_hooks={"response": [self._wrap]}) as http:
            yield openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)

    def _wrap(self, response):
        inner = response.stream
        heard = self

        class Listening(installed_library().module.SyncByteStream):
            def __iter__(self):
                for piece in inner:
                    heard.bytes += piece
                    if re.search(heard.enough, heard.bytes):
                        heard.server.may.set()
                    yield piece

            def close(self):
                inner.close()

        response.stream = Listening()


@pytest.mark.parametrize("after_first", [False, True])
def test_the_sdk_reads_past_the_comments(server, proxy, after_first):
    server.after_first = after_first
    server.play(sse(*(chunk({"content": each}) for each in FENCED), chunk({}, finish="stop")))
    heard = Heard(server)
    with heard.client(proxy) as client:
        chunks = list(client.chat.completions.create(**ASK))
    assert heard.bytes.startswith(COMMENT)
    calls = [call for each in chunks for call in each.choices[0].delta.tool_calls or ()]
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("get_weather", {"city": "Paris"})
    ]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_forwarded_stream_has_comments_too(server, proxy):
    server.after_first = True
    server.play(sse(chunk({"content": "It is "}), chunk({"content": "sunny."}), chunk({}, finish="stop")))
    # a comment between two chunks; one may come before the first, too, where that took its time
    heard = Heard(server, b"data: .*\n\n" + COMMENT)
    with heard.client(proxy) as client:
        chunks = list(client.chat.completions.create(**PARIS, stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == "It is sunny."
    assert re.search(heard.enough, heard.bytes)


def test_a_later_failure_is_raised_with_its_message(server, proxy):
    server.play(unary({"error": {"message": "the model fell over", "type": "x"}}, status=418))
    heard = Heard(server)
    with heard.client(proxy) as client, pytest.raises(openai.APIError, match="the model fell over") as raised:
        list(client.chat.completions.create(**ASK))
    assert not isinstance(raised.value, openai.APIStatusError)
    assert raised.value.code == "refused"
    assert COMMENT in heard.bytes
    assert b"[DONE]" not in heard.bytes


def test_the_other_mode_is_tried_after_it(server, proxy):
    broken = {"error": {"message": "unexpected tokens remaining in message header", "code": 500}}
    server.play(unary(broken, status=500), sse(chunk({"content": FENCED}), chunk({}, finish="stop")))
    heard = Heard(server)
    with heard.client(proxy) as client:
        chunks = list(client.chat.completions.create(**ASK))
    assert chunks[1].choices[0].delta.tool_calls[0].function.name == "get_weather"
    assert [("tools" in each.json) for each in server.seen] == [True, False]


def test_a_failure_before_it_keeps_its_status(server):
    server.may.set()
    server.play(unary({"error": {"message": "no such model"}}, status=404))
    with (
        serving(Proxy(base_url=server.url, config=Config(), detect=False)) as port,
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.NotFoundError),
    ):
        client.chat.completions.create(**ASK)


def test_content_and_thoughts_go_out_while_the_server_still_speaks(server, proxy):
    server.after_first = True
    first = sse(chunk({"reasoning_content": "Hm. "}), chunk({"content": "Let me look. "}), done=False)
    rest = sse(chunk({"content": FENCED}), chunk({}, finish="stop"))
    server.play(rest)
    rest.pieces = (b"".join(first.pieces), *rest.pieces)
    with openai.OpenAI(base_url=proxy, api_key="none", max_retries=0) as client:
        thoughts = content = ""
        for each in client.chat.completions.create(**ASK):
            delta = each.choices[0].delta
            thoughts += getattr(delta, "reasoning_content", "")
            content += delta.content or ""
            if content and not server.may.is_set():
                assert (thoughts, content) == ("Hm. ", "Let me look.")
                server.may.set()
    assert server.may.is_set()


def test_in_process_the_head_comes_while_the_call_is_written(server):
    """What the server sends tells that time has passed: `create` returns, and the app reads on."""
    server.may.set()
    server.play(sse(*(chunk({"content": each}) for each in FENCED), chunk({}, finish="stop")))
    with OpenAI(
        base_url=server.url, api_key="none", max_retries=0, config=Config(), detect=False, heartbeat=1e-9
    ) as client:
        chunks = list(client.chat.completions.create(**ASK))
        raw = client.chat.completions.with_raw_response.create(**ASK)
        body = raw.http_response.read().decode()
    assert body.startswith(": keep-alive\n\n")
    assert chunks[1].choices[0].delta.tool_calls[0].function.name == "get_weather"
