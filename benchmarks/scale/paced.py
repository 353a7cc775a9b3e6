"""A server that sends chunks at a given pace, and the clients of its streams, in one process, with the same clock.

It prints the server's port. Then it reads jobs, one line of JSON each, and prints a line of results for each job. A job
has `port`, `path`, `body`, `fields` (of the head), `chunks` and `gap` (of each stream), and `rate` and `seconds`
(streams arrive at random) or `streams` and `spread` (so many arrive evenly in so many seconds).

Each chunk has the time when the server wrote it and the time when it received the request. From these the clients
compute how late a chunk is, and how long a request took to reach the server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": *true')
_MARK = re.compile(rb"@(\d+),(\d+);")
_END = b"0\r\n\r\n"
JITTER = 0.5
"""Relative half-width of the distribution of the time between two chunks, which is uniform."""


@dataclass(slots=True)
class Pace:
    """The chunks of a stream and the mean time between two chunks, for streams that begin from now on."""

    chunks: int = 1
    gap: float = 0.01


PACE = Pace()


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: str, finish: str = "null") -> bytes:
    head = '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":'
    return _framed(f'data: {head}{delta},"finish_reason":{finish}}}]}}\n\n'.encode())


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = _event('{"role":"assistant","content":""}')
LAST = _event("{}", '"stop"') + _framed(b"data: [DONE]\n\n") + _END
WHOLE = (
    b'{"id":"c1","object":"chat.completion","created":1,"model":"stub","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"It is cold."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}'
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE)
MISSING = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class PacedServer(asyncio.Protocol):
    """One connection to the server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport  # uvloop's transport is not an asyncio.Transport
        self.received = b""
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or len(body) < int(length[1] if length else 0):
            return
        self.received = b""
        if b"/chat/completions" not in head[:64]:
            self.transport.write(MISSING)
            return
        if not _STREAM.search(body):
            self.transport.write(ANSWER)
            return
        self.begun, self.left, self.gap = time.perf_counter_ns(), PACE.chunks, PACE.gap
        self.due = self.loop.time()
        self.transport.write(HEAD + FIRST)
        self._wait()

    def _wait(self) -> None:
        self.due += self.gap * random.uniform(1 - JITTER, 1 + JITTER)
        self.loop.call_at(self.due, self._write)

    def _write(self) -> None:
        if self.transport.is_closing():
            return
        if not self.left:
            self.transport.write(LAST)
            return
        self.left -= 1
        self.transport.write(_event(f'{{"content":" coat @{time.perf_counter_ns()},{self.begun};"}}'))
        self._wait()


@dataclass(slots=True)
class Seen:
    """What the clients of a job saw, in nanoseconds."""

    late: list[int] = field(default_factory=list)
    """For each chunk, the time from its writing until its arrival."""
    forwarded: list[int] = field(default_factory=list)
    """For each request, the time from its sending until its arrival at the server."""
    streams: int = 0
    open: int = 0
    most_open: int = 0


class PacedClient(asyncio.Protocol):
    """One connection of a client, which carries one stream after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport  # uvloop's transport is not an asyncio.Transport
        self.done: asyncio.Future[None] | None = None

    async def stream(self, request: bytes, seen: Seen) -> None:
        self.seen, self.rest, self.head, self.missing = seen, b"", b"", PACE.chunks
        self.left: int | None = None
        self.done = asyncio.get_running_loop().create_future()
        self.sent = time.perf_counter_ns()
        self.transport.write(request)
        await self.done

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        ended = self._ends(data)
        data = self.rest + data
        end = 0
        for mark in _MARK.finditer(data):
            end = mark.end()
            if self.missing == PACE.chunks:
                self.seen.forwarded.append(int(mark[2]) - self.sent)
            if self.missing:  # the Responses API repeats the whole text in its last events
                self.seen.late.append(now - int(mark[1]))
                self.missing -= 1
        self.rest = data[max(end, len(data) - 64) :]
        if ended and self.done and not self.done.done():
            self.done.set_result(None)

    def _ends(self, data: bytes) -> bool:
        """Whether the response is complete. It has a length if all of it was known when its first byte was sent."""
        if b"\r\n\r\n" not in self.head:
            self.head += data
            head, end, body = self.head.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if end and length:
                self.left = int(length[1]) - len(body)
        elif self.left is not None:
            self.left -= len(data)
        return self.left == 0 if self.left is not None else (self.rest + data).endswith(_END)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done and not self.done.done():
            self.done.set_exception(exc or ConnectionError(f"closed after {self.head[:300]!r}"))


def _arrivals(job: dict[str, Any]) -> Iterator[float]:
    """Yield the seconds at which streams begin."""
    if "rate" not in job:
        yield from (job["spread"] * number / job["streams"] for number in range(job["streams"]))
        return
    at = random.expovariate(job["rate"])
    while at < job["seconds"]:
        yield at
        at += random.expovariate(job["rate"])


async def measure(job: dict[str, Any]) -> dict[str, float]:
    """Run a job."""
    PACE.chunks, PACE.gap = job["chunks"], job["gap"]
    body = json.dumps(job["body"]).encode()
    fields = "".join(f"{name}: {value}\r\n" for name, value in job.get("fields", {}).items())
    head = f"POST {job['path']} HTTP/1.1\r\nHost: 127.0.0.1:{job['port']}\r\nContent-Type: application/json\r\n{fields}"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    seen, idle = Seen(), list[PacedClient]()
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for at in _arrivals(job):
            await asyncio.sleep(begin + at - time.perf_counter())
            tasks.create_task(_stream(job["port"], request, seen, idle))
    seconds = time.perf_counter() - begin
    for client in idle:
        client.transport.close()
    assert len(seen.late) == seen.streams * job["chunks"], (len(seen.late), seen.streams)
    return {"seconds": seconds, "streams": seen.streams, "chunks": len(seen.late), "most_open": seen.most_open,
            **_quantiles("late", seen.late), **_quantiles("forwarded", seen.forwarded)}  # fmt: skip


async def _stream(port: int, request: bytes, seen: Seen, idle: list[PacedClient]) -> None:
    while idle and idle[-1].transport.is_closing():
        idle.pop()
    if idle:
        client = idle.pop()
    else:
        client = (await asyncio.get_running_loop().create_connection(PacedClient, "127.0.0.1", port))[1]
    seen.open += 1
    seen.most_open = max(seen.most_open, seen.open)
    await client.stream(request, seen)
    seen.open -= 1
    seen.streams += 1
    idle.append(client)


def _quantiles(name: str, values: list[int]) -> dict[str, float]:
    """Return the mean, the median and the 99th percentile, in seconds."""
    cuts = statistics.quantiles(values, n=100) if len(values) > 1 else list(itertools.repeat(values[0], 99))
    levels = {"mean": statistics.fmean(values), "p50": cuts[49], "p99": cuts[98]}
    return {f"{name}_{key}": value / 1e9 for key, value in levels.items()}


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(PacedServer, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
