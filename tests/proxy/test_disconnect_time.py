"""How soon the server loses its connection after the client has left: the client, the proxy and the server in one event
loop, so that one clock measures it, and by the median, since other work of the machine may hold up any of them.
"""

import asyncio
import contextlib
import json
import statistics
import time

import pytest
from serving import HTTP, uvicorn
from upstream import few_certificates

from promptools.profiles import Config
from promptools.proxy import Proxy

REPETITIONS = 15
"""Of which the median counts."""
GOAL = 0.1
"""Seconds."""
HELLO = [{"role": "user", "content": "hello"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
REQUESTS = {
    "chat": ("/v1/chat/completions", {"messages": HELLO}),
    "tools": ("/v1/chat/completions", {"messages": HELLO, "tools": [TOOL]}),
    "responses": ("/v1/responses", {"input": "hello"}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 9}),
    "ollama": ("/api/chat", {"messages": HELLO}),
    "passed unread": ("/v1/embeddings", {"input": "hello"}),
}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hello "}}]}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class SilentServer:
    """Answers each request with these bytes, says no more, and waits until the connection is lost."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = asyncio.Event()
        self.lost = asyncio.Event()

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = (
            line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        await reader.readexactly(int(next(lengths)))
        writer.write(self.answer)
        self.asked.set()
        with contextlib.suppress(OSError):
            await reader.read()
        self.lost.set()
        writer.close()


async def measure(http, path, body, *, begun, repetitions):
    """Return the seconds from the client's end to the server's, of each repetition."""
    server = SilentServer(HEAD + b"data: " + json.dumps(CHUNK).encode() + b"\n\n" if begun else b"")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    async with Proxy(base_url=base_url, config=Config(), detect=False) as proxy:
        options = {"port": 0, "http": http, "log_level": "critical", "loop": "asyncio", "ws": "none"}
        front = uvicorn.Server(uvicorn.Config(proxy, **options))
        serving = asyncio.create_task(front.serve())
        while not front.started:
            await asyncio.sleep(0.01)
        port = front.servers[0].sockets[0].getsockname()[1]
        took = [await leave(server, port, path, body, begun=begun) for _ in range(repetitions)]
        front.should_exit = True
        await serving
    listening.close()
    return took


async def leave(server, port, path, body, *, begun):
    """Ask, leave once the server has the request, or the client the beginning of the answer, and time the server."""
    server.asked.clear()
    server.lost.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({"model": "m", "stream": begun, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await asyncio.wait_for(server.asked.wait(), 300)
    if begun:
        received = b""
        while b"Hello" not in received:
            received += await asyncio.wait_for(reader.read(65536), 300)
    else:
        await asyncio.sleep(0.03)  # the proxy watches for the client's end once an answer takes 20 ms
    assert not server.lost.is_set()
    began = time.perf_counter()
    writer.close()
    await asyncio.wait_for(server.lost.wait(), 300)
    return time.perf_counter() - began


moments = pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "amid a stream"])
requests = pytest.mark.parametrize("name", REQUESTS)
implementations = pytest.mark.parametrize("http", HTTP)


@moments
@requests
@implementations
def test_a_client_that_leaves_frees_the_server(http, name, begun):
    with few_certificates():
        assert len(asyncio.run(measure(http, *REQUESTS[name], begun=begun, repetitions=2))) == 2


@pytest.mark.clock
@moments
@requests
@implementations
def test_a_client_that_leaves_frees_the_server_within_100_ms(http, name, begun):
    with few_certificates():
        took = asyncio.run(measure(http, *REQUESTS[name], begun=begun, repetitions=REPETITIONS))
    assert statistics.median(took) < GOAL, took
