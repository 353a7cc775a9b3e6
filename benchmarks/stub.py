"""An OpenAI-compatible server with fixed replies, in a process of its own. Prints its port."""

from __future__ import annotations

import contextlib
import json
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

CALL = {"name": "get_weather", "arguments": '{"city": "Longyearbyen", "unit": "celsius"}'}
FENCED = f'```json\n{{"tool": "get_weather", "arguments": {CALL["arguments"]}}}\n```'
WORDS = "The wind is strong and it is cold, so take a warm coat with you. "
PAUSE_SECONDS = 0.01
"""Time between the first word of a stream and the rest."""


def message(body: dict[str, Any]) -> dict[str, Any]:
    """Return a native call if the request has tools, a fenced one if its prompt describes tools, else an answer."""
    if body.get("tools"):
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a1b2c3d4e", "type": "function", "function": CALL}],
        }
    if "# Tools" in json.dumps(body["messages"]) and not body.get("stream"):
        return {"role": "assistant", "content": FENCED}
    return {"role": "assistant", "content": WORDS}


class Stub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = message(body)
        if body.get("stream"):
            self._stream(reply["content"] or WORDS)
            return
        choice = {"index": 0, "message": reply, "finish_reason": "tool_calls" if reply.get("tool_calls") else "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        completion = {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "stub",
            "choices": [choice],
            "usage": usage,
        }
        self._answer("application/json", json.dumps(completion).encode())

    def _stream(self, content: str) -> None:
        deltas: list[dict[str, Any]] = [
            {"role": "assistant", "content": ""},
            *({"content": word + " "} for word in content.split()),
        ]
        events = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        events.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        chunks = [
            {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [event]}
            for event in events
        ]
        lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
        self._answer("text/event-stream", b"".join(lines[:2]), b"".join([*lines[2:], b"data: [DONE]\n\n"]))

    def _answer(self, kind: str, body: bytes, rest: bytes = b"") -> None:
        """Write `body`, and `rest` some milliseconds later: a first token never arrives together with the last."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) + len(rest)))
        self.end_headers()
        self.wfile.write(body)
        if rest:
            time.sleep(PAUSE_SECONDS)
            self.wfile.write(rest)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run the server in a process of its own, so that its work does not count as processor time of this one.

    Yields its base URL.
    """
    command = [sys.executable, "-m", "benchmarks.stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Stub) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
