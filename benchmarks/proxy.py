"""Measure the proxy's latency, throughput and memory, beside the floor (a minimal aiohttp proxy) and litellm's proxy.

All proxies forward to the same server. The server, the load and each proxy run in separate processes. Proxies take
turns in short rounds, so that other work of the machine affects all of them; a proxy's best round counts. Processor
time is counted for the proxy's process alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import samples
from benchmarks.figure import chart
from benchmarks.table import Row, Table, Target
from benchmarks.timing import seconds

ROOT = Path(__file__).parents[1]
ROUNDS = 7
ROUND_SECONDS = 0.7
LITELLM_ROUNDS = 2
CONCURRENCIES = (1, 16, 64)
CHUNKS = 150
STREAMS = 32
MEMORY_STREAMS = 64
MEMORY_REQUESTS = 10_000
MESSAGES = [{"role": "user", "content": "What is the weather in Longyearbyen?"}]
PLAIN: dict[str, Any] = {"model": "stub", "messages": MESSAGES}
TOOLS: dict[str, Any] = {**PLAIN, "tools": [
    {**tool, "function": {**tool["function"], "name": f"{tool['function']['name']}_{number}"}}
    for number in range(10) for tool in samples.OPENAI[:1]
]}  # fmt: skip
STREAM: dict[str, Any] = {**PLAIN, "stream": True, "max_tokens": CHUNKS}

LATENCY = Target("at most", 1.6, "<= 1.6x the floor's")
THROUGHPUT = Target("at least", 0.6, ">= 0.6x the floor's")
CHUNK = Target("at most", 1.6, "<= 1.6x the floor's")
TEN_TOOLS = Target("at most", 1.3, "<= 1.3x none")
RESIDENT = Target("at most", 130, "< 130 MB")
FLAT = Target("at most", 1.05, "flat")
LITELLM = Target("at least", 25, ">= 25x litellm")


@dataclass(slots=True)
class Peer:
    """A process that answers requests, and its best figures by case."""

    name: str
    port: int
    process: psutil.Process
    best: dict[str, float] = field(default_factory=dict)

    def spent(self) -> float:
        """Return the processor time of the process so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> float:
        """Return the resident memory of the process, in MB."""
        return float(self.process.memory_info().rss) / 1e6

    def low(self, case: str, value: float) -> None:
        """Keep the lowest value of a case."""
        self.best[case] = min(value, self.best.get(case, value))

    def high(self, case: str, value: float) -> None:
        """Keep the highest value of a case."""
        self.best[case] = max(value, self.best.get(case, value))


class Load:
    """The process that sends requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, peer: Peer, body: dict[str, Any], concurrency: int, **limits: float) -> None:
        assert self._process.stdin is not None
        job = {"port": peer.port, "body": body, "concurrency": concurrency, **limits}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        assert self._process.stdout is not None
        result: dict[str, float] = json.loads(self._process.stdout.readline())
        return result

    def run(self, peer: Peer, body: dict[str, Any], concurrency: int, **limits: float) -> dict[str, float]:
        self.begin(peer, body, concurrency, **limits)
        return self.end()


def proxy() -> tuple[Table, ...]:
    """Measure all proxies."""
    stub, floor, ours, litellm = _measure()
    peers = [peer for peer in (litellm, floor, ours) if isinstance(peer, Peer)]
    return (Table("proxy", *_rows(stub, floor, ours, litellm), _draw(peers)),)


def _measure() -> tuple[Peer, Peer, Peer, Peer | str]:
    """Return the server, the floor, our proxy, and litellm's or why it is missing; each peer has its figures."""
    with contextlib.ExitStack() as stack:
        stub = stack.enter_context(_started("server", [sys.executable, "-m", "benchmarks.proxies.stub"]))
        url = f"http://127.0.0.1:{stub.port}"
        load = Load(stack.enter_context(_process([sys.executable, "-m", "benchmarks.proxies.load"])))
        floor = stack.enter_context(_started("floor", [sys.executable, "-m", "benchmarks.proxies.floor", url]))
        command = [sys.executable, "-m", "promptools", "serve", "--base-url", f"{url}/v1", "--port", "0"]
        ours = stack.enter_context(_started("promptools", command))
        peers = [floor, ours]
        for peer in peers:
            for body in (PLAIN, TOOLS, {**STREAM, "max_tokens": 2}):
                load.run(peer, body, 16, requests=300)
        for _ in range(ROUNDS):
            _round(load, stub, peers)
        _memory(load, ours)
        litellm = stack.enter_context(_litellm(url))
        if isinstance(litellm, Peer):
            load.run(litellm, PLAIN, 16, requests=50)
            for _ in range(LITELLM_ROUNDS):
                measured = load.run(litellm, PLAIN, 1, seconds=ROUND_SECONDS)
                litellm.high("rate 1", measured["requests"] / measured["seconds"])
                _throughput(load, litellm)
        return stub, floor, ours, litellm


def _round(load: Load, stub: Peer, peers: list[Peer]) -> None:
    """Measure every case once."""
    for peer in (stub, *peers):
        measured = load.run(peer, PLAIN, 1, seconds=ROUND_SECONDS / 2)
        peer.low("p50", measured["p50"])
        peer.high("rate 1", measured["requests"] / measured["seconds"])
    for peer in peers:
        _throughput(load, peer)
    for peer in peers:
        begin = peer.spent()
        measured = load.run(peer, TOOLS, 16, seconds=ROUND_SECONDS)
        peer.low("cpu, tools", (peer.spent() - begin) / measured["requests"])
    for peer in peers:
        begin = peer.spent()
        measured = load.run(peer, STREAM, STREAMS, requests=STREAMS)
        peer.low("cpu, chunk", (peer.spent() - begin) / (measured["requests"] * CHUNKS))


def _throughput(load: Load, peer: Peer) -> None:
    for concurrency in CONCURRENCIES[1:]:
        begin = peer.spent()
        measured = load.run(peer, PLAIN, concurrency, seconds=ROUND_SECONDS)
        peer.high(f"rate {concurrency}", measured["requests"] / measured["seconds"])
        peer.low(f"cpu {concurrency}", (peer.spent() - begin) / measured["requests"])


def _memory(load: Load, peer: Peer) -> None:
    load.begin(peer, STREAM, MEMORY_STREAMS, requests=MEMORY_STREAMS)
    for _ in range(8):
        time.sleep(0.1)
        peer.high("resident, streams", peer.resident())
    load.end()
    load.run(peer, PLAIN, 16, requests=MEMORY_REQUESTS // 10)
    peer.best["resident, before"] = peer.resident()
    load.run(peer, PLAIN, 16, requests=MEMORY_REQUESTS)
    peer.best["resident, after"] = peer.resident()


def _rows(stub: Peer, floor: Peer, ours: Peer, litellm: Peer | str) -> tuple[str, list[Row]]:
    """Return the title of the table, and its rows."""
    direct = stub.best["p50"]
    rows = [_compared("p50, one at a time: added", floor, ours, "p50", LATENCY, less=direct)]
    rows += [_rate(concurrency, floor, ours, litellm) for concurrency in CONCURRENCIES[1:]]
    if isinstance(litellm, Peer):
        ratio = ours.best["rate 16"] / litellm.best["rate 16"]
        rows.append(Row("requests a second at 16, over litellm's", {"promptools": f"{ratio:.0f}x"}, ratio, LITELLM))
    else:
        rows.append(Row("litellm's proxy", {"promptools": litellm}))
    rows += [
        _compared("processor time of a request at 16", floor, ours, "cpu 16"),
        _compared("processor time of a request at 64", floor, ours, "cpu 64"),
        _compared("processor time of a request with ten tools", floor, ours, "cpu, tools"),
        _compared(f"processor time of a chunk, {STREAMS} streams", floor, ours, "cpu, chunk", CHUNK),
    ]
    tools = ours.best["cpu, tools"] / ours.best["cpu 16"]
    rows.append(Row("processor time with ten tools, over none", {"promptools": f"{tools:.2f}x"}, tools, TEN_TOOLS))
    resident, grown = ours.best["resident, streams"], ours.best["resident, after"] / ours.best["resident, before"]
    rows.append(Row(f"memory at {MEMORY_STREAMS} streams", {"promptools": f"{resident:.0f} MB"}, resident, RESIDENT))
    rows.append(
        Row(
            f"memory over {MEMORY_REQUESTS:,} requests",
            {"promptools": f"{ours.best['resident, before']:.0f} to {ours.best['resident, after']:.0f} MB"},
            grown,
            FLAT,
        )
    )
    return f"The proxy, before a server whose own p50 is {seconds(direct)}", rows


def _compared(
    title: str, floor: Peer, ours: Peer, case: str, target: Target | None = None, *, less: float = 0.0
) -> Row:
    """Return the row that compares a duration of both proxies, after subtracting `less` from each."""
    low, high = floor.best[case] - less, ours.best[case] - less
    shown = {"floor": seconds(low), "promptools": seconds(high), "ratio": f"{high / low:.2f}x"}
    return Row(title, shown, high / low, target, {"floor": low, "promptools": high})


def _rate(concurrency: int, floor: Peer, ours: Peer, litellm: Peer | str) -> Row:
    case = f"rate {concurrency}"
    measured = {peer.name: peer.best[case] for peer in (floor, ours, litellm) if isinstance(peer, Peer)}
    ratio = ours.best[case] / floor.best[case]
    shown = {name: f"{value:,.0f}" for name, value in measured.items()} | {"ratio": f"{ratio:.2f}x"}
    return Row(f"requests a second at {concurrency}", shown, ratio, THROUGHPUT, measured)


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the end of the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def _started(name: str, command: list[str]) -> Iterator[Peer]:
    """Run a process, and yield it as a peer once it prints its port: as a line of digits, or in `listening URL`."""
    with _process(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit() or line.startswith("listening "):
                port = int(line.strip().rpartition(":")[2].partition("/")[0])
                yield Peer(name, port, psutil.Process(process.pid))
                return
        raise RuntimeError(f"{name} did not start")


@contextlib.contextmanager
def _litellm(url: str) -> Iterator[Peer | str]:
    """Run litellm's proxy with one worker; yield it, or the reason why it does not run."""
    sys.path.insert(0, str(ROOT / "tools"))
    import environments
    from recipes.recipe import CannotMakeError

    try:
        python = environments.path_of("bench-litellm")
    except (CannotMakeError, subprocess.CalledProcessError) as error:
        yield f"cannot be installed: {error}"
        return
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        parameters = {"model": "openai/stub", "api_base": f"{url}/v1", "api_key": "none"}
        config.write_text(json.dumps({"model_list": [{"model_name": "stub", "litellm_params": parameters}]}))
        port = free_port()
        command = [str(Path(python).parent / "litellm"), "--config", str(config), "--port", str(port)]
        settings = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        settings |= {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        command += ["--host", "127.0.0.1", "--num_workers", "1"]
        log = Path(folder) / "log"
        with (
            log.open("w") as output,
            subprocess.Popen(command, cwd=folder, env=os.environ | settings, stdout=output, stderr=output) as process,
        ):
            try:
                yield _listening(process, port) or f"did not start: {log.read_text().strip()[-80:]!r}"
            finally:
                process.terminate()


def _listening(process: subprocess.Popen[bytes], port: int) -> Peer | None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return Peer("litellm", port, psutil.Process(process.pid))
        if process.poll() is not None:
            return None
        time.sleep(0.1)
    return None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _draw(peers: list[Peer]) -> str:
    """Return the chart of the throughput."""
    lines = {peer.name: [(0, 0), *((count, peer.best[f"rate {count}"]) for count in CONCURRENCIES)] for peer in peers}
    return chart("Requests through a proxy", "requests at a time", "requests a second", lines)
