"""A minimal client for a batch, in a separate process: it sends the requests of a file, a fixed number at once.

`python -m benchmarks.batches.bare_client FILE OUT URL CONCURRENCY` writes the bodies of the responses into OUT, and
prints the seconds. With `sdk` as the last argument the requests are sent by the openai SDK, without promptools.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.proxies.load import Connection

Send = Callable[[bytes], Awaitable[bytes]]


class BareSender:
    """Sends requests over one connection, and opens a new one when the server has closed it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname or "", parts.port or 80, f"{parts.path}/chat/completions"
        self.connection: Connection | None = None

    async def send(self, body: bytes) -> bytes:
        """Return the body of the response."""
        if self.connection is None or self.connection.transport.is_closing():
            loop = asyncio.get_running_loop()
            self.connection = (await loop.create_connection(Connection, self.host, self.port))[1]
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        answer = await self.connection.ask(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        fields, _, content = answer.partition(b"\r\n\r\n")
        assert fields.startswith(b"HTTP/1.1 200"), answer
        if b"connection: close" in fields.lower():
            self.connection.transport.close()
        return content


def sdk_sender(url: str) -> Send:
    """Return a sender that uses the openai SDK as `promptools batch` does: body and response stay as they are."""
    import httpx2
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def send(body: bytes) -> bytes:
        response = await client.post("/chat/completions", cast_to=httpx2.Response, body=json.loads(body))
        return bytes(response.content)

    return send


async def run(source: Path, output: Path, url: str, concurrency: int, *, sdk: bool) -> float:
    """Send all requests of a file; return the seconds."""
    lines = iter(source.read_bytes().splitlines())
    common = sdk_sender(url) if sdk else None
    with output.open("wb") as file:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(_work(lines, common or BareSender(url).send, file.write))
        return time.perf_counter() - began


async def _work(lines: Iterator[bytes], send: Send, write: Callable[[bytes], object]) -> None:
    for line in lines:
        answer = await send(json.dumps(json.loads(line)["body"]).encode())
        write(json.dumps({"response": {"status_code": 200, "body": json.loads(answer)}}).encode() + b"\n")


if __name__ == "__main__":
    _, file, out, base_url, at_once, *more = sys.argv
    took = asyncio.run(run(Path(file), Path(out), base_url, int(at_once), sdk="sdk" in more))
    print(json.dumps({"seconds": took}))
