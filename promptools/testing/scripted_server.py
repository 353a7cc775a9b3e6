"""A real HTTP server that plays scripted replies, remembers requests, and sees when a client goes away."""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_object
from promptools.testing.scripted_replies import HttpAnswer, Scripted, as_answer, http_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from io import BufferedIOBase

HANG_SECONDS = 20.0
"""The most that a response hangs."""
PROBE_USER_AGENT = "promptools"
"""The user agent of the requests by which promptools detects what a server is."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class ScriptedServer:
    """The server, which runs in threads from its creation until `close`.

    `play` sets what is answered, in order; the last is answered again and again. Requests that only detect what the
    server is are answered apart from that, from `about` by path, or else with 404.
    """

    def __init__(self) -> None:
        self.requests: list[SeenRequest] = []
        """The requests, without those of the detection."""
        self.probes: list[SeenRequest] = []
        """The requests of the detection."""
        self.about: dict[str, Any] = {}
        self.gone = threading.Event()
        """Set when a client has gone before its response was complete."""
        self.sent = 0
        """The number of pieces that were sent."""
        self._script: list[Scripted] = []
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        """The base URL for clients."""
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def play(self, *script: Scripted) -> ScriptedServer:
        """Set what is answered from now on, and forget the requests so far."""
        self._script = list(script)
        self.requests.clear()
        self.probes.clear()
        self.gone.clear()
        self.sent = 0
        return self

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, seen: SeenRequest) -> HttpAnswer:
        """Return the response to a request."""
        if seen.headers["user-agent"] == PROBE_USER_AGENT:
            self.probes.append(seen)
            return as_answer(self.about.get(seen.path, HttpAnswer(404)), {})
        self.requests.append(seen)
        if not self._script:
            return http_error(500, "nothing is scripted: call play() first")
        scripted = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return as_answer(scripted, _json_object(seen.body))

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        """Answer one request, in the thread of its connection."""
        body = http.rfile.read(int(http.headers.get("content-length") or 0))
        if http.headers.get("transfer-encoding") == "chunked":
            body = _read_chunks(http.rfile)
        answer = self.answer(SeenRequest(http.command, http.path, http.headers, body))
        if answer.before and self._waits_in_vain(http.connection, answer.before):
            http.close_connection = True
            return
        self._send(http, answer)

    def _send(self, http: BaseHTTPRequestHandler, answer: HttpAnswer) -> None:
        if answer.first:
            answer.first()
        pieces = (gzip.compress(b"".join(answer.pieces)),) if answer.gzip else answer.pieces
        whole = len(pieces) <= 1 and answer.then == "end" and not answer.type.startswith("text/event")
        http.send_response(answer.status)
        http.send_header("Content-Type", answer.type)
        if answer.gzip:
            http.send_header("Content-Encoding", "gzip")
        for name, value in answer.headers.items():
            http.send_header(name, value)
        if whole:
            http.send_header("Content-Length", str(len(b"".join(pieces))))
        else:
            http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()
        try:
            self._send_pieces(http, answer, pieces, whole=whole)
        except OSError:
            self.gone.set()
        if answer.then != "end":
            http.close_connection = True
            http.connection.shutdown(socket.SHUT_RDWR)

    def _send_pieces(
        self, http: BaseHTTPRequestHandler, answer: HttpAnswer, pieces: tuple[bytes, ...], *, whole: bool
    ) -> None:
        for position, piece in enumerate(pieces):
            if position and answer.between:
                answer.between()
            http.wfile.write(piece if whole else b"%x\r\n%s\r\n" % (len(piece), piece))
            http.wfile.flush()
            self.sent += 1
            if answer.pause and self._waits_in_vain(http.connection, answer.pause):
                break
        if answer.then == "end" and not whole:
            http.wfile.write(b"0\r\n\r\n")
        elif answer.then == "hang":
            self._waits_in_vain(http.connection, HANG_SECONDS)

    def _waits_in_vain(self, connection: socket.socket, seconds: float) -> bool:
        """Wait; return whether the client has gone meanwhile."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            ready, _, _ = select.select([connection], [], [], min(rest, 0.05))
            if not ready:
                continue
            try:
                if connection.recv(1, socket.MSG_PEEK) == b"":
                    self.gone.set()
                    return True
            except OSError:
                self.gone.set()
                return True
            time.sleep(0.01)
        return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as servers do: a head and a body are two writes, and the second would wait 40 ms

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        self.server.owner.handle(self)

    do_GET = do_POST = do_DELETE = do_PUT = _answer  # noqa: N815 the names that the base class looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 as in the base class
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, owner: ScriptedServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that goes away is no fault."""


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if is_object(value) else {}


def _read_chunks(stream: BufferedIOBase) -> bytes:
    body = b""
    while size := int(stream.readline(), 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body
