"""The load, in a separate process. It reads jobs, one line of JSON each, and prints a line of results for each job.

A job has `port`, `body`, `concurrency`, and `seconds` or `requests`. Every response is checked: its status, its end,
and the number of its events.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Sends one request after the other on one connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pieces: list[bytes] = []
        self.answer: asyncio.Future[bytes] | None = None
        self.left: int | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and return the whole response."""
        self.pieces, self.left = [], None
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answer

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self.left is None:
            received = b"".join(self.pieces)
            head, end, body = received.partition(b"\r\n\r\n")
            if not end:
                return
            length = _LENGTH.search(head)
            self.left = int(length[1]) - len(body) if length else -1
        elif self.left > 0:
            self.left -= len(data)
        tail = data if len(data) > len(_END) else b"".join(self.pieces[-4:])
        if (self.left == 0 or (self.left < 0 and tail.endswith(_END))) and self.answer and not self.answer.done():
            self.answer.set_result(b"".join(self.pieces))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer and not self.answer.done():
            self.answer.set_exception(exc or ConnectionError("closed"))


@dataclass(slots=True)
class Work:
    """The work that all connections of a job share."""

    request: bytes
    events: int
    until: float
    left: int
    took: list[float]


async def _work(work: Work, connection: Connection) -> None:
    while work.left > 0 and time.perf_counter() < work.until:
        work.left -= 1
        begin = time.perf_counter()
        answer = await connection.ask(work.request)
        work.took.append(time.perf_counter() - begin)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert answer.count(b"data: {") == work.events, answer


async def measure(job: dict[str, Any]) -> dict[str, float]:
    body = json.dumps(job["body"]).encode()
    fields = f"Host: 127.0.0.1:{job['port']}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    more = "Accept: application/json\r\nUser-Agent: load\r\nAuthorization: Bearer sk-none-of-your-business"
    request = f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n{more}\r\n\r\n".encode() + body
    events = job["body"]["max_tokens"] + 2 if job["body"].get("stream") else 0
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(Connection, "127.0.0.1", job["port"]))[1] for _ in range(job["concurrency"])
    ]
    begin = time.perf_counter()
    work = Work(request, events, begin + job.get("seconds", 600), job.get("requests", 1 << 30), [])
    async with asyncio.TaskGroup() as tasks:
        for connection in connections:
            tasks.create_task(_work(work, connection))
    seconds = time.perf_counter() - begin
    for connection in connections:
        connection.transport.close()
    return {"requests": len(work.took), "seconds": seconds, "p50": statistics.median(work.took)}


async def main() -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
