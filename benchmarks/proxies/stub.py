"""The server that the proxies are measured on, as fast as an event loop allows: it parses no JSON. Prints its port.

A request's `max_tokens` is the number of chunks of a stream, which are written separately, some milliseconds apart.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

CHUNK_SECONDS = 0.005
"""Time between two chunks. They do not arrive together, since a real model computes them one by one."""
WORDS = "The wind is strong and it is cold, so take a warm coat with you."
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHUNKS = re.compile(rb'"max_tokens": *(\d+)')
_STREAM = re.compile(rb'"stream": *true')


def _completion() -> bytes:
    message = {"role": "assistant", "content": WORDS}
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
    }
    return json.dumps(body).encode()


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice]}
    return _chunk(b"data: " + json.dumps(body).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


ANSWER = _whole(b"200 OK", _completion())
MODELS = _whole(b"200 OK", b'{"object": "list", "data": [{"id": "stub", "object": "model", "owned_by": "stub"}]}')
MISSING = _whole(b"404 Not Found", b"{}")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST, WORD = _event({"role": "assistant", "content": ""}), _event({"content": "coat "})
LAST = _event({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Stub(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return
        length = _LENGTH.search(head)
        if len(body) < int(length[1] if length else 0):
            return
        self.received = b""
        if not head.startswith(b"POST"):
            self.transport.write(MODELS if b"/v1/models" in head else MISSING)
            if b"onnection: close" in head:
                self.transport.close()
        elif _STREAM.search(body):
            chunks = _CHUNKS.search(body)
            self.transport.write(STREAM_HEAD + FIRST)
            asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._stream, int(chunks[1] if chunks else 0))
        else:
            self.transport.write(ANSWER)

    def _stream(self, left: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(WORD if left else LAST)
        if left:
            asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._stream, left - 1)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
