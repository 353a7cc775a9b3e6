"""A small real HTTP server for tests: plays back answers, remembers requests, and sees when a client goes away."""

from __future__ import annotations

import atexit
import gzip
import json
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi
import pytest


@dataclass
class Answer:
    """One answer: `pieces` are sent as HTTP chunks with `pause` seconds between; `then` says how it ends.

    `first` is called before the answer begins, `between` before each piece but the first: with them a test holds the
    server until something has happened, and measures no time.
    """

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0
    before: float = 0.0
    first: Callable[[], object] | None = None
    between: Callable[[], object] | None = None
    then: str = "end"  # end | cut (close without the last chunk) | hang (until the client goes)
    gzip: bool = False


@dataclass
class Seen:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: Message
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def unary(body, **kw):
    return Answer(pieces=(json.dumps(body).encode(),), **kw)


def sse(*datas, done=True, **kw):
    """An SSE answer, one event a chunk."""
    lines = [f"data: {d if isinstance(d, str) else json.dumps(d)}\n\n".encode() for d in datas]
    return Answer(pieces=(*lines, *([b"data: [DONE]\n\n"] if done else [])), type="text/event-stream", **kw)


def completion(content="hi", calls=None, finish=None, **kw):
    """A chat completion as a server would say it."""
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(calls)
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        **kw,
    }


def chunk(delta=None, finish=None, **kw):
    """One chunk of a streamed completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **kw,
    }


class Upstream:
    """The server. `answers` are used up in order, the last one again and again.

    What a look asks is not among them: it is answered as `about` says by path, else with 404, and kept in `looks`.
    """

    def __init__(self):
        self.answers = []
        self.about = {}
        self.seen = []
        self.looks = []
        self.gone = threading.Event()
        self.sent = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                owner.handle(self)

            do_GET = do_POST = do_DELETE = do_PUT = do

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def play(self, *answers):
        self.answers = [a if isinstance(a, Answer) else unary(a) for a in answers]
        self.seen.clear()
        self.looks.clear()
        self.gone.clear()
        self.sent = 0
        return self

    def handle(self, http):
        length = int(http.headers.get("content-length") or 0)
        body = http.rfile.read(length)
        if http.headers.get("transfer-encoding") == "chunked":
            body = _dechunk(http.rfile)
        seen = Seen(http.command, http.path, http.headers, body)
        if http.headers["user-agent"] == "promptools":
            self.looks.append(seen)
            said = self.about.get(http.path, Answer(404))
            answer = said if isinstance(said, Answer) else unary(said)
            if not (answer.before and self.left(http, answer.before)):
                self.say(http, answer)
            return
        self.seen.append(seen)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.before and self.left(http, answer.before):
            http.close_connection = True
            return
        self.say(http, answer)

    def say(self, http, answer):
        if answer.first:
            answer.first()
        http.send_response(answer.status)
        http.send_header("Content-Type", answer.type)
        pieces = answer.pieces
        if answer.gzip:
            http.send_header("Content-Encoding", "gzip")
            pieces = (gzip.compress(b"".join(pieces)),)
        for name, value in answer.headers.items():
            http.send_header(name, value)
        whole = len(pieces) <= 1 and answer.then == "end" and not answer.type.startswith("text/event")
        if whole:
            http.send_header("Content-Length", str(len(b"".join(pieces))))
        else:
            http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()
        try:
            for place, piece in enumerate(pieces):
                if place and answer.between:
                    answer.between()
                http.wfile.write(piece if whole else b"%x\r\n%s\r\n" % (len(piece), piece))
                http.wfile.flush()
                self.sent += 1
                if answer.pause and self.left(http, answer.pause):
                    break
            if answer.then == "end" and not whole:
                http.wfile.write(b"0\r\n\r\n")
            elif answer.then == "hang":
                self.left(http, 20)
        except OSError:
            self.gone.set()
        if answer.then != "end":
            http.close_connection = True
            http.connection.shutdown(socket.SHUT_RDWR)

    def left(self, http, seconds):
        """Wait, and say whether the client went away meanwhile."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            ready, _, _ = select.select([http.connection], [], [], min(rest, 0.05))
            if ready:
                try:
                    if http.connection.recv(1, socket.MSG_PEEK) == b"":
                        self.gone.set()
                        return True
                except OSError:
                    self.gone.set()
                    return True
                time.sleep(0.01)
        return False

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def _dechunk(stream):
    out = b""
    while size := int(stream.readline(), 16):
        out += stream.read(size)
        stream.readline()
    stream.readline()
    return out


@cache
def one_certificate():
    """Write one certificate into a file, for all tests of this process."""
    bundle = Path(certifi.where()).read_text(encoding="utf-8")
    start, end = bundle.index("-----BEGIN"), bundle.index("-----END CERTIFICATE-----")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "one.pem"
    path.write_text(bundle[start:end] + "-----END CERTIFICATE-----\n", encoding="utf-8")
    return str(path)


@contextmanager
def few_certificates():
    """Let HTTP clients load one certificate instead of all: what they load takes most of the time to make one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", one_certificate())
        yield


@contextmanager
def running():
    server = Upstream()
    try:
        with few_certificates():
            yield server
    finally:
        server.close()
