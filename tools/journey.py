"""Count the functions and modules of promptools that one request, one streamed chunk and one parse pass through.

    usage: python tools/journey.py [--list]

There are four journeys: a chat completion without a call, a chat completion whose call is in the text, one chunk of a
streamed reply (from the bytes of the server to the event of the client), and `parse` of a reply of Qwen3-Coder. Each is
made once before it is counted, so that what is loaded on first use is loaded. The server answers from this process;
nothing else is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

import promptools

ROOT = str(Path(promptools.__file__).parent)

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
QWEN3_CODER = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"

permits = threading.Semaphore(0)
"""One permit for every chunk that the server may send, so that a chunk is sent only while its journey is measured."""

Seen = set[tuple[str, str]]
"""Pairs of a module's path and a function's qualified name."""


class Handler(BaseHTTPRequestHandler):
    """A chat endpoint. A whole reply has a call in its text if tools are offered; a stream has only words."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer probes as a server that knows none of them."""
        self._send(404, "application/json", b'{"error": {"message": "not found"}}')

    def do_POST(self) -> None:
        """Answer a chat completion."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = CALL if request.get("tools") else "It is sunny."
        head = {"id": "c1", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send(200, "application/json", json.dumps(head | {"choices": [choice]}).encode())
            return
        pieces = [{"role": "assistant", "content": ""}, *({"content": f"word {n} "} for n in range(20)), {}]
        events = [
            head | {"choices": [{"index": 0, "delta": piece, "finish_reason": None if piece else "stop"}]}
            for piece in pieces
        ]
        allowed = permits
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            allowed.acquire()
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def server() -> Iterator[str]:
    """Yield the base URL of a server that answers until the block ends."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    finally:
        httpd.shutdown()


def passed(journey: Callable[[], object]) -> Seen:
    """Return the functions of promptools that were called while `journey` ran, in any thread."""
    seen: Seen = set()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_qualname))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        journey()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return seen


def journeys(base_url: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each journey, and a function that makes it."""
    client: Any = promptools.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]

    def chat(**options: Any) -> Any:
        return client.chat.completions.create(model="qwen3", messages=messages, **options)

    chunks = iter(())

    def begin() -> None:
        global permits  # noqa: PLW0603 - read by the handler's thread
        nonlocal chunks
        permits = threading.Semaphore(10)
        chunks = iter(chat(tools=TOOLS, stream=True))
        for _ in range(10):
            next(chunks)

    def one_more() -> None:
        permits.release()
        next(chunks)

    yield "a plain chat", chat
    yield "a chat with a call in its text", lambda: chat(tools=TOOLS)
    begin()
    yield "a streamed chunk", one_more
    yield "a parse", lambda: promptools.parse(QWEN3_CODER, TOOLS)


def main() -> int:
    """Print a line for each journey, with `--list` also the functions that it passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="the functions of each journey, by module")
    options = parser.parse_args()
    with server() as base_url:
        for _, journey in journeys(base_url):
            journey()
        for name, journey in journeys(base_url):
            seen = passed(journey)
            print(f"{name:32} {len(seen):4} functions {len({path for path, _ in seen}):4} modules")
            if options.list:
                for path, function in sorted(seen):
                    print(f"    {Path(path).relative_to(ROOT)}:{function}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
