"""A real HTTP server that answers with scripted replies, remembers requests, and notices when a client disconnects.

It answers with a model's replies, which it streams if the request asks for a stream, or with raw bytes.
"""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.json_values import try_json
from promptools.types import Call
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from email.message import Message
    from io import BufferedIOBase


# The replies.


CallLike: TypeAlias = "Call | tuple[str, Mapping[str, Any] | str]"
"""A `Call`, or a tool's name with the arguments. Arguments given as text are sent exactly as they are."""
STREAMED_CHARACTERS = 8
"""Maximum number of characters of text, reasoning or arguments in one chunk of a stream."""
_ENVELOPE: dict[str, Any] = {"id": "chatcmpl-1", "created": 1, "model": "m"}


@dataclass(slots=True)
class HttpAnswer:
    """An HTTP response. Its `pieces` are sent one after the other, with `pause` seconds after each.

    `first` is called before the response begins, and `between` before each piece except the first. In these functions,
    a test can wait for an event, so that the test does not depend on timing.
    """

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    pause: float = 0.0
    before: float = 0.0
    """Seconds to wait before the response begins."""
    first: Callable[[], object] | None = None
    between: Callable[[], object] | None = None
    then: Literal["end", "cut", "hang"] = "end"
    """How the response ends after its pieces.

    With `end`, it ends normally. With `cut`, the connection is closed without the last chunk. With `hang`, it is closed
    in the same way, but only after the client has disconnected or `HANG_SECONDS` have passed.
    """
    gzip: bool = False


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply of the model. Its calls are sent as `tool_calls`, as if the server had parsed them."""

    content: str | None = None
    calls: Sequence[CallLike] = ()
    reasoning: str = ""
    finish_reason: str | None = None
    """The finish reason to send; None means `tool_calls` if there are calls, else `stop`."""
    usage: Mapping[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    )

    def answer(self, request: Mapping[str, Any]) -> HttpAnswer:
        """Return the reply as the response to a request, streamed if the request asks for a stream."""
        if request.get("stream") is not True:
            return json_answer(self._completion())
        return sse_answer(*self._chunks())

    @property
    def _finish_reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def _completion(self) -> dict[str, Any]:
        body = completion(self.content, [name_and_text(call) for call in self.calls], self._finish_reason)
        if self.reasoning:
            body["choices"][0]["message"]["reasoning_content"] = self.reasoning
        return {**body, "usage": dict(self.usage)}

    def _chunks(self) -> list[dict[str, Any]]:
        chunks = [chunk({"role": "assistant", "content": ""})]
        chunks += (chunk({"reasoning_content": piece}) for piece in _cut(self.reasoning))
        chunks += (chunk({"content": piece}) for piece in _cut(self.content or ""))
        for index, (name, text) in enumerate(map(name_and_text, self.calls)):
            function = {"name": name, "arguments": ""}
            head = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            chunks.append(chunk({"tool_calls": [head]}))
            for piece in _cut(text):
                chunks.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        chunks.append(chunk(finish=self._finish_reason))
        return [*chunks, {**chunk(), "choices": [], "usage": dict(self.usage)}]


Scripted: TypeAlias = "HttpAnswer | ModelReply | str | Mapping[str, Any]"
"""An answer that can be scripted. Text becomes the content of a reply, and a mapping becomes the JSON body of a
response."""


def as_answer(scripted: Scripted, request: Mapping[str, Any]) -> HttpAnswer:
    """Return `scripted` as the response to a request."""
    if isinstance(scripted, HttpAnswer):
        return scripted
    if isinstance(scripted, str):
        scripted = ModelReply(scripted)
    return scripted.answer(request) if isinstance(scripted, ModelReply) else json_answer(scripted)


def calls_as_text(dialect: str, calls: Sequence[CallLike]) -> str:
    """Return the text that a model writes to make `calls` in a dialect (a format of calls) such as `hermes`."""
    from promptools import dialects

    made = [_as_call(number, call) for number, call in enumerate(calls)]
    return dialects.get(dialect).render_calls(made)


def http_error(status: int, message: str = "scripted error", **fields: Any) -> HttpAnswer:
    """Return an error response with a body like OpenAI's; `fields` are added to the body's `error`."""
    return json_answer({"error": {"message": message, "type": "server_error", **fields}}, status=status)


# --- the bodies of Chat Completions ----------------------------------------------------------------------------------


def json_answer(body: Any, **options: Any) -> HttpAnswer:
    """Return a response with a JSON body; `options` are fields of `HttpAnswer`."""
    return HttpAnswer(pieces=(json.dumps(body).encode(),), **options)


def sse_answer(*events: Any, done: bool = True, **options: Any) -> HttpAnswer:
    """Return a stream of server-sent events, one for each argument. Text is sent unchanged, any other value as JSON.

    If `done` is true, the stream ends with `[DONE]`. `options` are fields of `HttpAnswer`.
    """
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in events]
    return HttpAnswer(pieces=(*lines, *([b"data: [DONE]\n\n"] if done else [])), type="text/event-stream", **options)


def completion(
    content: str | None = "hi",
    calls: Sequence[tuple[str, str]] | None = None,
    finish: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Return the body of a reply that is not streamed. `calls` holds pairs of a tool's name and arguments as text."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {**_ENVELOPE, "object": "chat.completion", "choices": [choice], "usage": usage, **extra}


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    """Return the JSON data of one chunk of a streamed reply."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return {**_ENVELOPE, "object": "chat.completion.chunk", "choices": [choice], **extra}


def name_and_text(call: CallLike) -> tuple[str, str]:
    """Return the name of a call's tool, and its arguments as text."""
    if isinstance(call, Call):
        return call.name, call.arguments_json
    name, arguments = call
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _as_call(number: int, call: CallLike) -> Call:
    if isinstance(call, Call):
        return call
    name, text = name_and_text(call)
    return Call(f"call_{number}", name, json.loads(text), text)


def _cut(text: str) -> list[str]:
    return [text[at : at + STREAMED_CHARACTERS] for at in range(0, len(text), STREAMED_CHARACTERS)]


# The server.


HANG_SECONDS = 20.0
"""Maximum number of seconds for which a response with `then="hang"` stays open after its pieces."""
PROBE_USER_AGENT = "promptools"
"""The user agent of the requests with which promptools detects the kind of a server."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that the server received."""

    method: str
    path: str
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        """The request's body, parsed as JSON."""
        return json.loads(self.body)


class ScriptedServer:
    """An HTTP server for tests, which runs in threads from its creation until `close`.

    `play` sets the answers, in order; the last answer is repeated. Requests that only detect the kind of the server get
    the answer for their path in `about`, or else 404; they do not use up the answers that `play` set.
    """

    def __init__(self) -> None:
        self.requests: list[SeenRequest] = []
        """The requests received, except those that only detect the kind of the server."""
        self.probes: list[SeenRequest] = []
        """The requests received that only detect the kind of the server."""
        self.about: dict[str, Any] = {}
        self.gone = threading.Event()
        """Set when a client disconnects before its response is complete."""
        self.sent = 0
        """Number of response pieces that were sent since `play` was last called."""
        self._script: list[Scripted] = []
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        """The base URL for clients."""
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def play(self, *script: Scripted) -> ScriptedServer:
        """Set the answers to the next requests, and forget earlier requests; return this server."""
        self._script = list(script)
        self.requests.clear()
        self.probes.clear()
        self.gone.clear()
        self.sent = 0
        return self

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, seen: SeenRequest) -> HttpAnswer:
        """Remember a request, and return the scripted response to it."""
        if seen.headers["user-agent"] == PROBE_USER_AGENT:
            self.probes.append(seen)
            return as_answer(self.about.get(seen.path, HttpAnswer(404)), {})
        self.requests.append(seen)
        if not self._script:
            return http_error(500, "nothing is scripted: call play() first")
        scripted = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return as_answer(scripted, as_object(try_json(seen.body)))

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
        """Wait for `seconds`, or until the client disconnects; return whether it disconnected."""
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
        """Print nothing, because a client that goes away is not an error."""


def _read_chunks(stream: BufferedIOBase) -> bytes:
    body = b""
    while size := int(stream.readline(), 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body
