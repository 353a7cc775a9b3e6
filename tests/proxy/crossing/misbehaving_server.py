"""A server on raw sockets that misbehaves with some requests, and answers the others rightly."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from contextlib import asynccontextmanager
from itertools import count

from misbehaviours import CLOSE, RESET, AfterEnd, BeforeNext, Reply
from upstream import chunk, completion

MARKER = re.compile(rb"mark-\w+-\d+-end")
_numbers = count(1)


def new_marker(user):
    """Return a word that is in one request, and in its answer only."""
    return b"mark-%b-%d-end" % (user.encode(), next(_numbers))


def right_reply(method, path, marker, body):
    """Return what a right server answers."""
    words = marker.decode()
    try:
        streamed = bool(json.loads(body).get("stream"))
    except (ValueError, AttributeError):
        streamed = False
    is_chat = path.endswith(b"/chat/completions")
    if streamed:
        chunks = [chunk({"role": "assistant", "content": words}), chunk({}, "stop")] if is_chat else [{"text": words}]
        data = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"
        return Reply(marker, data, b"text/event-stream", method)
    data = json.dumps(completion(words) if is_chat else {"object": "list", "data": [], "marker": words}).encode()
    return Reply(marker, data, method=method)


class MisbehavingServer:
    def __init__(self):
        self.misbehaviour = None
        self.bad = b""
        """The marker of the request with which it misbehaves."""
        self.connections = 0
        self._writers = set()
        self._afterwards = []

    async def start(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def stop(self):
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def end_request(self):
        """Send what comes after the end of a request."""
        afterwards, self._afterwards = self._afterwards, []
        for writer, steps in afterwards:
            self._perform(writer, steps)

    async def _accept(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        try:
            await self._talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _talk(self, reader, writer):
        late = b""
        if self.bad and self.misbehaviour.when == "connected":
            self._perform(writer, self.misbehaviour.steps(Reply(self.bad, b'{"marker": "%b"}' % self.bad)))
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b" ", 2)
            marker = MARKER.search(head)[0]
            is_bad = marker == self.bad
            writer.write(late)
            late = b""
            if is_bad and self.misbehaviour.when == "early":
                self._perform(writer, self.misbehaviour.steps(Reply(marker, b'{"marker": "%b"}' % marker)))
                await _read_body(reader, head)
                continue
            reply = right_reply(method, path, marker, await _read_body(reader, head))
            if is_bad and self.misbehaviour.when == "asked":
                late = self._perform(writer, self.misbehaviour.steps(reply))
            elif not writer.transport.is_closing():
                writer.write(reply.whole())

    def _perform(self, writer, steps):
        """Perform steps; return what is sent before the answer to the next request."""
        for at, step in enumerate(steps):
            if isinstance(step, BeforeNext):
                return step.data
            if isinstance(step, AfterEnd):
                self._afterwards.append((writer, [step.data, *steps[at + 1 :]]))
                return b""
            if step == CLOSE:
                writer.close()
            elif step == RESET:
                sock = writer.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            elif not writer.transport.is_closing():
                writer.write(step)
        return b""


async def _read_body(reader, head):
    fields = [line.lower() for line in head.split(b"\r\n")]
    if b"transfer-encoding: chunked" not in fields:
        lengths = [int(line.partition(b":")[2]) for line in fields if line.startswith(b"content-length:")]
        return await reader.readexactly(sum(lengths))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


@asynccontextmanager
async def misbehaving():
    server = MisbehavingServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
