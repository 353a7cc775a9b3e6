"""A request leaves no cycle behind: what it made is freed at its end, not when the collector comes by."""

import asyncio
import gc
import json

import pytest
from upstream import Answer, chunk, completion, running, sse

from promptools.profiles import Config
from promptools.proxy import Proxy

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PARTS = ["proxy", "transport", "exchange", "modes", "dialects", "engine", "parsing", "wire", "harmony", "telemetry"]
OURS = tuple(f"promptools.{part}" for part in PARTS)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "string"}}}}}]
CALL = [
    chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": part}}]})
    for part in ('{"x": "', "yy")
]
FAILURES = {
    "connection cut before a word": sse(done=False, then="cut"),
    "connection cut in a text": sse(chunk({"content": "a word"}), done=False, then="cut"),
    "connection cut in a call": sse(*CALL, done=False, then="cut"),
    "error in a call": sse(*CALL, {"error": {"message": "out of memory", "code": 500}}),
    "end in a call": sse(*CALL, done=False),
    "status 500": Answer(500, (b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}',)),
    "a page": Answer(200, (b"<html>It works!</html>",), type="text/html"),
}


pytestmark = pytest.mark.usefixtures("little_to_collect")


async def send_one(app, body):
    """Send a request and read its response, as a server of ASGI does; return its status."""
    done = asyncio.Event()
    messages = [{"type": "http.request", "body": json.dumps(body).encode()}]
    statuses = []

    async def receive():
        if messages:
            return messages.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    path = "/v1/chat/completions"
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    await app(scope, receive, send)
    done.set()
    return statuses[0]


def instances():
    return {id(found): found for found in gc.get_objects() if str(type(found).__module__).startswith(OURS)}


def left_by(answer, body, statuses):
    """Return the names of the types of what three requests leave to the collector."""

    async def go():
        with running() as server:
            server.play(*[answer] * 60)
            async with Proxy(base_url=server.url, config=Config(), detect=False) as app:
                for _ in range(4):  # what is kept for later requests is made by then, for all modes that are tried
                    assert await send_one(app, body) in statuses
                await asyncio.sleep(0.05)
                gc.collect()
                gc.disable()
                before = instances()
                for _ in range(3):
                    await send_one(app, body)
                await asyncio.sleep(0.05)
                return {type(found).__name__ for key, found in instances().items() if key not in before}

    try:
        # one connection may have replaced another
        return asyncio.run(go()) - {"Http1Connection", "_Target"}
    finally:
        gc.enable()


@pytest.mark.parametrize("tools", [[], TOOLS])
@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_left_to_the_collector(stream, tools):
    answer = sse(chunk({"content": "x"}), chunk({}, "stop")) if stream else completion("x")
    assert left_by(answer, {**ASK, "stream": stream, "tools": tools}, {200}) == set()


@pytest.mark.parametrize("failure", FAILURES)
def test_a_request_that_fails_leaves_nothing_either(failure):
    left = left_by(FAILURES[failure], {**ASK, "stream": True, "tools": TOOLS}, {200, 500, 502})
    assert left == set()
