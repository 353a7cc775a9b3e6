"""The overhead of promptools per request and per streamed chunk, over the bare client on the same real server."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import openai

from benchmarks import samples
from benchmarks.servers import ASK, LONG, ROOT, SHORT
from benchmarks.table import Row, Table
from benchmarks.timing import seconds
from promptools.client import OpenAI
from promptools.profiles import Config

SERVERS = {"llama.cpp": ("llamacpp", "chat"), "Ollama": ("ollama", "ollama"), "vLLM": ("vllm", "chat")}
"""The real servers, each with its kind in a config and the wire protocol that promptools uses with it."""
FEWEST, MOST, SECONDS = 8, 60, 30.0
"""The fewest and the most requests of each kind, and the seconds for which the kinds take turns. The cheapest request
of each kind counts."""
PYTHON = ROOT / ".venv" / "bin" / "python"


def real() -> Table:
    """Measure requests and chunks on each real server that is installed."""
    rows: list[Row] = []
    for name, (kind, wire) in SERVERS.items():
        with server_of(name) as started:
            if isinstance(started, str):
                print(f"!!! no figures for {name}: {started}", file=sys.stderr, flush=True)
                rows.append(Row(f"{name}: not measured, {started}", {}))
            else:
                rows.extend(_measured(f"{name}, wire {wire}", kind, *started))
    return Table("real", "Real servers: processor time of the client", rows)


def _measured(name: str, kind: str, url: str, model: str) -> Iterator[Row]:
    options: dict[str, Any] = {"base_url": url, "api_key": "none", "max_retries": 0}
    bare = openai.OpenAI(**options)
    ours = {mode: OpenAI(**options, provider=kind, mode=mode, config=Config()) for mode in ("native", "prompt")}
    clients: dict[str, openai.OpenAI] = {"bare": bare, **ours}
    request_times = _least({who: lambda client=client: _ask(client, model) for who, client in clients.items()})
    for mode in ours:
        yield _row(f"{name}: a request, {mode}", request_times["bare"], request_times[mode])
    chunks = {text: len(list(_stream(bare, model, text))) for text in (SHORT, LONG)}
    stream_times = _least(
        {
            f"{who} {text}": lambda client=client, text=text: list(_stream(client, model, text))
            for who, client in clients.items()
            for text in chunks
        }
    )
    apart = chunks[LONG] - chunks[SHORT]
    chunk_times = {
        client: (stream_times[f"{client} {LONG}"] - stream_times[f"{client} {SHORT}"]) / apart for client in clients
    }
    for mode in ours:
        yield _row(f"{name}: a chunk, {mode}", chunk_times["bare"], chunk_times[mode])


def _ask(client: openai.OpenAI, model: str) -> None:
    messages: Any = [{"role": "user", "content": ASK}]
    tools: Any = samples.OPENAI
    reply = client.chat.completions.create(model=model, messages=messages, tools=tools)
    calls = reply.choices[0].message.tool_calls
    assert calls, reply
    assert calls[0].function.name == "get_weather"


def _stream(client: openai.OpenAI, model: str, text: str) -> Iterator[Any]:
    messages: Any = [{"role": "user", "content": text}]
    tools: Any = samples.OPENAI
    with client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True) as stream:
        yield from stream


def _least(jobs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least processor time of each job; waiting for the server takes no processor time."""
    least = dict.fromkeys(jobs, float("inf"))
    gc.collect()
    gc.disable()
    try:
        until = time.monotonic() + SECONDS
        for done in range(MOST):
            if done >= FEWEST and time.monotonic() > until:
                break
            for name, job in jobs.items():
                began = time.process_time_ns()
                job()
                least[name] = min(least[name], (time.process_time_ns() - began) / 1e9)
    finally:
        gc.enable()
    return least


def _row(case: str, bare: float, ours: float) -> Row:
    shown = {"bare": seconds(bare), "ours": seconds(ours), "added": seconds(ours - bare) if ours > bare else "nothing"}
    return Row(case, shown, measured={"bare_s": bare, "ours_s": ours})


@contextlib.contextmanager
def server_of(name: str) -> Iterator[tuple[str, str] | str]:
    """Run a real server, and yield its URL and model, or the reason why it cannot run."""
    python = PYTHON if PYTHON.exists() else Path(sys.executable)
    command = [python, "-m", "benchmarks.servers", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            status, _, details = process.stdout.readline().strip().partition(" ")
            if status == "up":
                url, _, model = details.partition(" ")
                yield url, model
            else:
                yield details or "it did not come up: see above"
        finally:
            process.stdin.close()
            process.wait(30)
