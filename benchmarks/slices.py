"""Measure the longest slice of the proxy's event loop: how long one large request, reply or error delays all others.

A real proxy runs on an event loop of this process, under uvicorn; the servers answer from threads with bytes that are
ready, and the client only passes bytes on. Two things are measured: the longest callback of the loop, in processor time
of its thread, and the longest delay of a timer that fires every millisecond, in processor time of the process. Neither
includes other work of the machine. The delay, but not the callback, includes how long the loop waits for the
interpreter while a thread computes. Meanwhile other requests go to /healthz; `beside` is the time of the slowest. The
best of several rounds counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from benchmarks import samples
from benchmarks.table import Row, Table, Target
from benchmarks.timing import seconds
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy

MB = 1 << 20
ERROR_MB = 64
ROUNDS = 2
KEY = "sk-operators-4242424242"
LIMIT = Target("at most", 50, "<= 50 ms")
TICK = 0.001
UNSEEN = "UNSEEN"
"""A placeholder that gets a new value in each request, so that its tools are never found in a cache."""
CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
HELLO = [{"role": "user", "content": "hi"}]
ANTHROPIC_TOOLS = [
    {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in samples.OPENAI
]


@dataclass(frozen=True, slots=True)
class Case:
    """A request and the server's response to it."""

    name: str
    path: str
    request: dict[str, Any]
    response: Callable[[], bytes]
    mode: str = "native"
    """The mode of the proxy. `masked` is native mode with a key of the proxy that must be masked."""


@dataclass(slots=True)
class Loop:
    """What was measured on an event loop, in seconds."""

    slice: float = 0.0
    delay: float = 0.0
    beside: float = 0.0
    what: str = ""


@contextlib.asynccontextmanager
async def watched(port: int) -> AsyncIterator[Loop]:
    """Measure the callbacks and the delays of the running loop, and the time of other requests to the proxy."""
    seen = Loop()
    handles: Any = asyncio.events.Handle
    run = handles._run  # noqa: SLF001 - there is no public hook

    def timed(handle: Any) -> None:
        what = repr(handle) if os.environ.get("SLICES_SHOW") else ""
        begin = time.thread_time()
        run(handle)
        took = time.thread_time() - begin
        if took > seen.slice:
            seen.slice, seen.what = took, what

    async def tick() -> None:
        while True:
            begin = time.process_time()
            await asyncio.sleep(TICK)
            seen.delay = max(seen.delay, time.process_time() - begin)

    async def ask_beside() -> None:
        while True:
            begin = time.process_time()
            await ask(port, "/healthz", b"", "GET")
            seen.beside = max(seen.beside, time.process_time() - begin)
            await asyncio.sleep(5 * TICK)

    tasks = [asyncio.create_task(tick()), asyncio.create_task(ask_beside())]
    handles._run = timed  # noqa: SLF001
    try:
        yield seen
    finally:
        handles._run = run  # noqa: SLF001
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


# -- the server


@contextlib.contextmanager
def answering(response: bytes) -> Iterator[str]:
    """Answer each request with these bytes, and close its connection."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, rest = data.partition(b"\r\n\r\n")
            fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
            left = next(int(value) for name, _, value in fields if name == b"content-length") - len(rest)
            while left > 0:
                left -= len(connection.recv(65536))
            connection.sendall(response)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def answer(body: bytes, kind: str = "application/json", status: str = "200 OK", *more: str) -> bytes:
    fields = "".join(f"{each}\r\n" for each in (f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more))
    return f"HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n".encode() + body


def failed(body: bytes, *more: str, kind: str = "application/json", status: str = "500 Oops") -> bytes:
    return answer(body, kind, status, *more)


def bomb(size: int) -> bytes:
    pack = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(pack.compress(b" " * MB) for _ in range(size // MB)) + pack.flush()


def reply(message: dict[str, Any], finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return answer(json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m",
                              "choices": [choice]}).encode())  # fmt: skip


def stream(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    """Return a stream with an event for each delta."""
    envelope = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    events.append({"index": 0, "delta": {}, "finish_reason": finish})
    data = "".join(f"data: {json.dumps({**envelope, 'choices': [event]})}\n\n" for event in events)
    return answer(f"{data}data: [DONE]\n\n".encode(), "text/event-stream")


def native(arguments: str, name: str = "write_file", index: int = 0) -> dict[str, Any]:
    """Return a call as a server sends it."""
    return {"index": index, "id": f"call_{index}", "type": "function",
            "function": {"name": name, "arguments": arguments}}  # fmt: skip


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


FILE = json.dumps({"path": "a.py", "content": samples.prose(MB)})
CALL = f"<tool_call>\n{json.dumps({'name': 'write_file', 'arguments': json.loads(FILE)})}\n</tool_call>"
SMALL = json.dumps({"path": "a.py", "content": samples.prose(200)})
MANY = MB // len(SMALL)
SMALL_CALL = f"<tool_call>\n{json.dumps({'name': 'write_file', 'arguments': json.loads(SMALL)})}\n</tool_call>\n"
ROWS = json.dumps({"table": "t", "rows": [{"id": n, "name": f"row {n}", "price": 1.5, "sold": True}
                                          for n in range(MB // 60)]})  # fmt: skip


def turns(size: int) -> list[dict[str, Any]]:
    """Return a conversation of calls and results with about `size` characters."""
    messages: list[dict[str, Any]] = list(HELLO)
    for number in range(size // 1200):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "write_file", "arguments": SMALL}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": samples.prose(700)})
    return messages


def response_items(size: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = list(HELLO)
    for number in range(size // 1200):
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "write_file", "arguments": SMALL})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": samples.prose(700)})
    return items


def message_turns(size: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = list(HELLO)
    for number in range(size // 1200):
        used = {"type": "tool_use", "id": f"c{number}", "name": "write_file", "input": json.loads(SMALL)}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": samples.prose(700)}
        messages += [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    return messages


def ollama_turns(size: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = list(HELLO)
    for _ in range(size // 1200):
        function = {"name": "write_file", "arguments": json.loads(SMALL)}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        messages.append({"role": "tool", "tool_name": "write_file", "content": samples.prose(700)})
    return messages


def wide(properties: int) -> dict[str, Any]:
    """Return a tool with this many properties, which no earlier request declared."""
    return {"type": "function", "function": {"name": "wide", "parameters": {
        "type": "object", "title": UNSEEN,
        "properties": {f"property_{n}": {"type": "string", "description": f"number {n}"} for n in range(properties)},
    }}}  # fmt: skip


def cases() -> Iterator[Case]:
    plain: dict[str, Any] = {"model": "m", "messages": HELLO}
    tools = {**plain, "tools": samples.OPENAI}
    streamed = {**tools, "stream": True}
    words = samples.prose(MB)

    def hello() -> bytes:
        return reply({"content": "hello"})

    def error(text: str) -> Callable[[], bytes]:
        return lambda: failed(json.dumps({"error": {"message": text}}).encode())

    big = ERROR_MB * MB
    for name, asked in (("", plain), (", tools", tools)):
        yield Case(f"error of {ERROR_MB} MB, text{name}", CHAT, asked, lambda: failed(b"x" * big, kind="text/plain"))
        yield Case(f"error of {ERROR_MB} MB, JSON{name}", CHAT, asked, error("tool " * (big // 5)))
        yield Case(f"error of {ERROR_MB} MB, a gzip bomb{name}", CHAT, asked,
                   lambda: failed(bomb(big), "Content-Encoding: gzip"))  # fmt: skip
    yield Case(f"error of {ERROR_MB} MB in a stream, tools", CHAT, streamed,
               lambda: answer(b"data: %b\n\n" % json.dumps({"error": {"message": "tool " * (big // 5)}}).encode(),
                              "text/event-stream"))  # fmt: skip
    yield Case("error of 60 MB under 200, tools", CHAT, tools,
               lambda: answer(json.dumps({"error": {"message": "tool " * (60 * MB // 5)}}).encode()))  # fmt: skip
    yield Case(f"error of {ERROR_MB} MB with prefixes of the key", CHAT, tools,
               lambda: failed(KEY[:-1].encode() * (big // len(KEY))), mode="masked")  # fmt: skip
    yield Case("error of 64 MB, /v1/models", "/v1/models", plain, lambda: failed(b"x" * big), mode="masked")
    yield Case("error with a call of 1 MB inside", CHAT, tools, error(f"error parsing tool call: raw='{FILE}', err=x"))
    file = json.dumps({"path": "a", "content": samples.prose(16 * MB)})
    yield Case("error with a call of 16 MB inside", CHAT, tools, error(f"error parsing tool call: raw='{file}', err=x"))
    yield Case("error with rows of 1 MB inside", CHAT, tools, error(f"error parsing tool call: raw='{ROWS}', err=x"))
    yield Case("error of 16 MB with values inside", CHAT, tools,
               error(f"error parsing tool call: raw='{json.dumps([0] * (16 * MB // 3))}', err=x"))  # fmt: skip
    yield Case("error with a reply of 1 MB inside", CHAT, tools, error(f"Failed to parse input at pos 0: {CALL}"))
    yield Case("request of 1 MB, no tools", CHAT, {**plain, "messages": turns(MB)}, hello)
    for mode in ("native", "prompt"):
        yield Case(f"request of 1 MB, {mode}", CHAT, {**tools, "messages": turns(MB)}, hello, mode)
        yield Case(f"request of 1 MB, one message, {mode}", CHAT,
                   {**tools, "messages": [{"role": "user", "content": words}]}, hello, mode)  # fmt: skip
        yield Case(f"request of 1 MB, 2,000 tools, {mode}", CHAT,
                   {**plain, "tools": [
                       {**tool, "function": {**tool["function"], "name": f"{tool['function']['name']}_{number}",
                                 "description": UNSEEN}}
                       for number in range(2000) for tool in samples.OPENAI[:1]]}, hello, mode)  # fmt: skip
        yield Case(f"schema of 50,000 properties, {mode}", CHAT,
                   {**plain, "tools": [wide(50_000)]}, hello, mode)  # fmt: skip
        yield Case(f"Responses, 1 MB, {mode}", RESPONSES, {"model": "m", "input": response_items(MB), "tools": [
            {"type": "function", **tool["function"]} for tool in samples.OPENAI]}, hello, mode)  # fmt: skip
        yield Case(f"Messages, 1 MB, {mode}", MESSAGES, {"model": "m", "max_tokens": 100, "tools": ANTHROPIC_TOOLS,
                                                         "messages": message_turns(MB)}, hello, mode)  # fmt: skip
        yield Case(f"Ollama, 1 MB, {mode}", OLLAMA, {"model": "m", "stream": False, "tools": samples.OPENAI,
                                                     "messages": ollama_turns(MB)}, hello, mode)  # fmt: skip
        yield Case(f"reply of 1 MB, words, {mode}", CHAT, tools, lambda: reply({"content": words}), mode)
        yield Case(f"reply of 1 MB, a call in text, {mode}", CHAT, tools, lambda: reply({"content": CALL}), mode)
        yield Case(f"reply of 1 MB, {MANY:,} calls in text, {mode}", CHAT, tools,
                   lambda: reply({"content": SMALL_CALL * MANY}), mode)  # fmt: skip
        yield Case(f"reply of 1 MB, rows of a call in text, {mode}", CHAT, tools, lambda: reply(
            {"content": f'<tool_call>\n{{"name": "add_rows", "arguments": {ROWS}}}\n</tool_call>'}), mode)  # fmt: skip
        for size in (40, 4096, MB):
            pieces = {40: "40 characters", 4096: "4 KB", MB: "1 MB"}[size]
            yield Case(f"stream of 1 MB in pieces of {pieces}, words, {mode}", CHAT, streamed,
                       lambda size=size: stream(*({"content": part} for part in cut(words, size))), mode)  # type: ignore[misc]  # fmt: skip
            yield Case(f"stream of 1 MB in pieces of {pieces}, a call in text, {mode}", CHAT, streamed,
                       lambda size=size: stream(*({"content": part} for part in cut(CALL, size))), mode)  # type: ignore[misc]  # fmt: skip
    yield Case("reply of 1 MB, no tools", CHAT, plain, lambda: reply({"content": words}))
    yield Case("reply of 1 MB, a native call", CHAT, tools, lambda: reply(
        {"content": None, "tool_calls": [native(FILE)]}, "tool_calls"))  # fmt: skip
    yield Case("reply of 1 MB, rows of a native call", CHAT, tools, lambda: reply(
        {"content": None, "tool_calls": [native(ROWS, "add_rows")]}, "tool_calls"))  # fmt: skip
    yield Case(f"reply of 1 MB, {MANY:,} native calls", CHAT, tools, lambda: reply(
        {"content": None, "tool_calls": [native(SMALL, index=n) for n in range(MANY)]}, "tool_calls"))  # fmt: skip
    for size in (40, 4096, MB):
        pieces = {40: "40 characters", 4096: "4 KB", MB: "1 MB"}[size]
        yield Case(f"stream of 1 MB in pieces of {pieces}, a native call", CHAT, streamed, lambda size=size: stream(  # type: ignore[misc]
            {"tool_calls": [native("")]},
            *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in cut(FILE, size)),
            finish="tool_calls"))  # fmt: skip
    for path, body in ((RESPONSES, {"model": "m", "input": HELLO, "tools": [
        {"type": "function", **tool["function"]} for tool in samples.OPENAI]}),
        (MESSAGES, {"model": "m", "max_tokens": 100, "tools": ANTHROPIC_TOOLS, "messages": HELLO}),
        (OLLAMA, {"model": "m", "stream": False, "tools": samples.OPENAI, "messages": HELLO})):  # fmt: skip
        yield Case(f"reply of 1 MB, a native call, {path}", path, body, lambda: reply(
            {"content": None, "tool_calls": [native(FILE)]}, "tool_calls"))  # fmt: skip
        yield Case(f"reply of 1 MB, rows of a native call, {path}", path, body, lambda: reply(
            {"content": None, "tool_calls": [native(ROWS, "add_rows")]}, "tool_calls"))  # fmt: skip


# -- measuring


async def ask(port: int, path: str, body: bytes, method: str = "POST") -> tuple[int, int]:
    """Send a request; return the status, and the number of bytes of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    size, first = 0, b""
    while piece := await reader.read(65536):
        first = first or piece
        size += len(piece)
    writer.close()
    return int(first.split()[1]), size


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """Serve an app on the running loop."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


def build_proxy(url: str, mode: Any) -> Proxy:
    if mode == "masked":
        os.environ["SLICES_KEY"] = KEY
        provider = Provider("a", kind="vllm", base_url=url, api_key_env="SLICES_KEY")
        return Proxy(config=Config(providers={"a": provider}), provider="a", detect=False)
    return Proxy(base_url=url, config=Config(), detect=False, mode=None if mode == "native" else mode)


async def measure(case: Case) -> tuple[Loop, int, int, float]:
    """Return, for the best round, what the loop did, the status, the bytes of the response, and the seconds."""
    text = json.dumps(case.request)
    best: tuple[Loop, int, int, float] | None = None
    with answering(case.response()) as url:
        for number in range(ROUNDS):
            body = text.replace(UNSEEN, f"{case.name} {number}").encode()
            async with serving(build_proxy(url, case.mode)) as port:
                small = json.dumps({"model": "m", "messages": HELLO}).encode()
                await ask(port, "/healthz", b"", "GET")
                if best is None and "error" not in case.name:
                    await ask(port, CHAT, small)
                await asyncio.sleep(0.05)
                begin = time.perf_counter()
                async with watched(port) as loop:
                    status, size = await ask(port, case.path, b"" if case.path.endswith("models") else body,
                                             "GET" if case.path.endswith("models") else "POST")  # fmt: skip
                took = time.perf_counter() - begin
                if best is None or loop.delay < best[0].delay:
                    best = loop, status, size, took
    assert best is not None
    return best


def slices() -> Table:
    """Measure all cases, or with SLICES_ONLY those whose name contains it; SLICES_SHOW prints the callbacks."""
    only = os.environ.get("SLICES_ONLY", "")
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    sys.setswitchinterval(0.001)  # as `promptools serve` has it
    rows = []
    for case in cases():
        if only not in case.name:
            continue
        loop, status, size, took = asyncio.run(measure(case))
        if loop.what:
            print(case.name, seconds(loop.slice), seconds(loop.delay), loop.what[:300], flush=True)
        shown = {"slice": seconds(loop.slice), "delay": seconds(loop.delay),
                 "beside": seconds(loop.beside), "took": seconds(took),
                 "answer": f"{status}, {size:,} B"}  # fmt: skip
        measured = {"slice": loop.slice, "delay": loop.delay, "beside": loop.beside, "took": took}
        rows.append(Row(case.name, shown, loop.delay * 1000, LIMIT, measured))
    return Table("slices", "The event loop of the proxy: its longest slice, and the longest delay of a timer", rows)
