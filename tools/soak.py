"""Many concurrent streams with injected faults, through a real proxy process over a scripted upstream process.

    .venv/bin/python tools/soak.py --streams 500 --seconds 300

What each stream must result in follows from its number alone. A stream without a fault must be right; one with a fault
must be right too, after a retry, or end in an error in the API's form. Anything else is wrong, or lost. The resident
memory of the proxy is sampled every second: after the first fifth of the time it may not grow. Prints figures, and
exits with 1 if anything is wrong, lost or grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zlib import crc32

FAULTS = ("killed", "half_line", "error_event", "http_500", "page", "early_end", "stall", "client_leaves")
SHARE = 0.2
"""The share of the streams with a fault."""
FORMS = ("text", "native", "hermes")
PIECES = 10
LOST_AFTER = 120
GROWTH = 1.15
"""The memory in the last fifth of the time may be at most this many times the memory in the second fifth."""
MIN_SECONDS_FOR_MEMORY = 60
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


# --- the script ------------------------------------------------------------------------------------------------------


def form_of(number: int) -> str:
    return FORMS[number % len(FORMS)]


def fault_of(number: int) -> str | None:
    """Return the fault of a stream, which depends on its number; None for most numbers."""
    draw = crc32(b"%d" % number)
    return FAULTS[draw // 1000 % len(FAULTS)] if draw % 1000 < 1000 * SHARE else None


def is_lasting(number: int) -> bool:
    """Whether every attempt has the fault, and not only the first."""
    return crc32(b"lasting %d" % number) % 2 == 0


def text_of(number: int) -> str:
    return " ".join(f"word{number}-{at}" for at in range(30))


def arguments_of(number: int) -> dict[str, Any]:
    return {"city": f"City {number} " + "x" * (number % 50), "days": number % 7}


def expected(number: int) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text and the calls that a stream must result in."""
    return (text_of(number), []) if form_of(number) == "text" else ("", [("get_weather", arguments_of(number))])


# --- the upstream ----------------------------------------------------------------------------------------------------


class Upstream:
    def __init__(self, pause: float, stall: float) -> None:
        self.pause = pause
        self.stall = stall
        self.attempts: Counter[int] = Counter()
        self.open = 0

    async def serve(self) -> None:
        server = await asyncio.start_server(self.connect, "127.0.0.1", 0, backlog=2048)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.answer(reader, writer):
                pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /open"):
            write_whole(writer, 200, json.dumps(self.open).encode())
            return True
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(length))
        if "messages" not in body:  # a request of raw mode
            write_whole(writer, 404, b'{"error": {"message": "there is no such route"}}')
            return True
        number = int(next(m["content"] for m in body["messages"] if m["role"] == "user").split()[-1])
        fault = fault_of(number)
        if fault and self.attempts[number] and not is_lasting(number):
            fault = None
        self.attempts[number] += 1
        if fault in {"http_500", "page"}:
            message = b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}'
            write_whole(writer, *((500, message) if fault == "http_500" else (200, b"<html>It works!</html>")))
            return True
        self.open += 1
        try:
            return await self.stream(reader, writer, [*deltas_of(number, native="tools" in body)], fault)
        finally:
            self.open -= 1

    async def stream(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        deltas: list[dict[str, Any]],
        fault: str | None,
    ) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        stop = len(deltas) // 2 if fault else len(deltas)
        for delta in deltas[:stop]:
            await send(writer, event(delta))
            await asyncio.sleep(self.pause)
        if fault == "killed":
            await send(writer, event(deltas[stop])[:-15])
            writer.transport.abort()
            return False
        if fault in {"stall", "client_leaves"}:
            async with asyncio.timeout(self.stall if fault == "stall" else None):
                await reader.read(1)  # until the proxy closes the connection
            return False
        if fault == "half_line":
            await send(writer, event(deltas[stop])[:-15])
        elif fault == "error_event":
            await send(writer, b'data: {"error": {"message": "the model is gone", "code": 500}}\n\n')
        elif fault != "early_end":
            finish = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
            await send(writer, event({}, finish) + b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def deltas_of(number: int, *, native: bool) -> Iterator[dict[str, Any]]:
    """Yield a reply in pieces: text, native calls, or calls in text as the mode asks for them."""
    form, arguments = form_of(number), json.dumps(arguments_of(number))
    if form == "native" and native:
        head = {
            "index": 0,
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ""},
        }
        yield {"role": "assistant", "content": None, "tool_calls": [head]}
        for piece in cut(arguments):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        return
    text = text_of(number)
    if form != "text" and native:
        text = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    elif form != "text":
        text = f'```json\n[{{"tool": "get_weather", "arguments": {arguments}}}]\n```'
    yield {"role": "assistant", "content": ""}
    for piece in cut(text):
        yield {"content": piece}


def cut(text: str) -> Iterator[str]:
    step = len(text) // PIECES + 1
    for at in range(0, len(text), step):
        yield text[at : at + step]


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


def write_whole(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


# --- the clients -----------------------------------------------------------------------------------------------------


async def run_stream(port: int, number: int) -> str:
    """Run one stream; return its outcome: `right`, `failed well`, `left`, `wrong: ...` or `lost: ...`."""
    message = {"role": "user", "content": f"soak {number}"}
    body = json.dumps({"model": "m", "stream": True, "tools": [TOOL], "messages": [message]}).encode()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return f"lost: {error}"
    try:
        request = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{request}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + body)
        async with asyncio.timeout(LOST_AFTER):
            if fault_of(number) == "client_leaves":
                await reader.readuntil(b"\n\n")
                return "left"
            return judge(number, *await read_response(reader))
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        return f"lost: {type(error).__name__}"
    finally:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split()[1])
    if b"transfer-encoding: chunked" not in head:
        return status, await reader.read()
    return status, b"".join([piece async for piece in read_chunks(reader)])


async def read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")


def judge(number: int, status: int, body: bytes) -> str:
    """Return the outcome of a complete response."""
    fault = fault_of(number)
    if status != 200:
        error = parsed(body.decode("utf-8", "replace"))
        well = fault and isinstance(error, dict) and error.get("error", {}).get("message")
        return "failed well" if well else f"wrong: HTTP {status} {body[:80]!r}"
    if not body.endswith(b"\n\n"):
        return "wrong: the last event is not complete"
    events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    error = next((event["error"] for event in events if "error" in event), None)
    if error is not None:
        return "failed well" if fault and "error" in events[-1] and error.get("message") else f"wrong: {error}"
    text, calls, finish = join(events)
    if (text.strip(), calls) == expected(number) and finish and body.endswith(b"data: [DONE]\n\n"):
        return "right"
    if fault and finish == "length" and not calls:
        return "failed well"  # the part of a call that arrived, as text that was cut off
    return f"wrong: {fault}, {finish}, {text[:40]!r}, {calls}"


def join(events: list[dict[str, Any]]) -> tuple[str, list[tuple[str, Any]], str | None]:
    text, finish = "", None
    calls: dict[int, list[str]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        text += choice["delta"].get("content") or ""
        finish = choice["finish_reason"] or finish
        for call in choice["delta"].get("tool_calls", ()):
            slot = calls.setdefault(call["index"], ["", ""])
            slot[0] += call["function"].get("name") or ""
            slot[1] += call["function"].get("arguments") or ""
    return text, [(name, parsed(arguments)) for name, arguments in calls.values()], finish


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# --- the run ---------------------------------------------------------------------------------------------------------


async def soak(port: int, streams: int, seconds: float, pid: int) -> tuple[Counter[str], list[int]]:
    """Keep `streams` streams running for `seconds`; return their outcomes, and the memory in KiB at each second."""
    outcomes: Counter[str] = Counter()
    numbers = iter(range(1 << 30))
    until = time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < until:
            number = next(numbers)
            outcome = await run_stream(port, number)
            outcomes[f"{'a fault' if fault_of(number) else 'no fault'}: {outcome}"] += 1

    memory: list[int] = []

    async def sample() -> None:
        while True:
            memory.append(resident(pid))
            await asyncio.sleep(1)

    sampler = asyncio.create_task(sample())
    async with asyncio.TaskGroup() as clients:
        for at in range(streams):
            clients.create_task(client())
            if at % 25 == 24:
                await asyncio.sleep(0.05)  # a crowd, but not all in one accept queue
    sampler.cancel()
    return outcomes, memory


def resident(pid: int) -> int:
    """Return the resident memory of a process in KiB; 0 if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


@contextmanager
def process(*command: str, errors: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()


def first_line(running: subprocess.Popen[str], start: str = "") -> str:
    assert running.stdout is not None
    return next(line for line in running.stdout if line.startswith(start)).removeprefix(start).strip()


def report(outcomes: Counter[str], memory: list[int], seconds: float, still_open: int, errors: str = "") -> bool:
    """Print the figures; return whether all is well. `errors` is what the proxy wrote to stderr."""
    total = sum(outcomes.values())
    print(f"{total} streams in {seconds:.0f} s")
    for outcome, count in sorted(outcomes.items()):
        print(f"  {count:7} {outcome}")
    bad = sum(count for outcome, count in outcomes.items() if ": wrong" in outcome or ": lost" in outcome)
    fifth = max(1, len(memory) // 5)
    begin, end = statistics.median(memory[fifth : 2 * fifth]), statistics.median(memory[-fifth:])
    print(f"memory of the proxy: {begin / 1024:.0f} MiB in the second fifth, {end / 1024:.0f} in the last, ", end="")
    print(f"{max(memory) / 1024:.0f} at most")
    print(f"streams that the server still answers at the end: {still_open}")
    flat = end <= begin * GROWTH or seconds < MIN_SECONDS_FOR_MEMORY
    print(f"wrong or lost: {bad}; memory {'flat' if flat else 'GROWS'}")
    at = errors.find("Traceback")
    if at >= 0:
        print(f"the proxy raised {errors.count('Traceback')} errors, first:\n{errors[at : at + 4000]}")
    return not bad and flat and total > 0 and not still_open and at < 0


async def count_open(port: int) -> int:
    """Return how many streams the upstream still answers, after giving them time to end."""
    for _ in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /open HTTP/1.1\r\nhost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        count = int(await reader.readexactly(length))
        writer.close()
        if not count:
            return 0
        await asyncio.sleep(0.1)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Many concurrent streams with injected faults, through the proxy.")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--pause", type=float, default=0.25, help="seconds between the pieces of a reply")
    parser.add_argument("--stall", type=float, default=600, help="seconds after which a stalled stream is closed")
    parser.add_argument("--deadline", default="60", help="seconds after which the proxy gives up")
    parser.add_argument("--upstream", action="store_true", help="be the upstream")
    arguments = parser.parse_args()
    if arguments.upstream:
        asyncio.run(Upstream(arguments.pause, arguments.stall).serve())
    times = ("--pause", str(arguments.pause), "--stall", str(arguments.stall))
    with process(sys.executable, __file__, "--upstream", *times) as upstream:
        server = int(first_line(upstream))
        serve = (sys.executable, "-m", "promptools", "serve", "--port", "0", "--no-detect")
        options = ("--base-url", f"http://127.0.0.1:{server}/v1", "--deadline", arguments.deadline)
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
            process(*serve, *options, errors=errors) as proxy,
        ):
            port = int(first_line(proxy, "listening ").rsplit(":", 1)[1].removesuffix("/v1"))
            began = time.monotonic()
            outcomes, memory = asyncio.run(soak(port, arguments.streams, arguments.seconds, proxy.pid))
            took = time.monotonic() - began
            still_open = asyncio.run(count_open(server))
            errors.seek(0)
            return 0 if report(outcomes, memory, took, still_open, errors.read()) else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
