"""Measure requests to a server: the share of its throughput that `promptools batch` reaches, and the client's cost.

The bare client (`bare_client.py`) and `promptools batch` (`batch_client.py`) take turns with the same requests, the
same number at once. Both begin when they have imported all that they need. Two figures are compared. One is the
throughput, which varies with other work on the machine. The other is the use of the server's slots: the seconds for
which the server computed, as it reports them in each response, divided by the seconds for which its slots existed.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.batches.measured_run import ROOT, measured
from benchmarks.real import server_of
from benchmarks.servers import SLOTS
from benchmarks.table import Row, Table, Target
from benchmarks.timing import seconds

ROUNDS = 5
REQUESTS = 40
TOKENS = 16
CONCURRENCIES = (2 * SLOTS,)
CEILING_REQUESTS = 3000
CEILING_CONCURRENCY = 32
SHARE = Target("at least", 0.95, ">= 0.95 of the bare client's")
MODULE = (sys.executable, "-m")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: answers a second, the share of the slots' time that the server used, processor time of the client."""

    rate: float
    used: float
    processor: float


def saturation_table() -> Table:
    """Measure the share of a real llama.cpp's throughput that `promptools batch` reaches."""
    title = "A real llama.cpp with a real model, whose slots are all busy: promptools batch over a bare client"
    with server_of("llama.cpp with SmolLM2") as started, tempfile.TemporaryDirectory() as scratch:
        if isinstance(started, str):
            return Table("batch_saturation", title, [Row(f"not measured, {started}", {})])
        url, model = started
        folder = Path(scratch)
        write_requests(folder / "in.jsonl", REQUESTS, model=model, max_tokens=TOKENS, ignore_eos=True,
                       cache_prompt=False, temperature=0.0)  # fmt: skip
        _bare(folder, url, SLOTS)
        rows = [row for concurrency in CONCURRENCIES for row in _shares(folder, url, concurrency)]
    return Table("batch_saturation", title, rows)


def _shares(folder: Path, url: str, concurrency: int) -> Iterator[Row]:
    pairs: list[tuple[Outcome, Outcome]] = []
    for number in range(ROUNDS):
        print(f"... batch, round {number + 1}, {concurrency} at once ", end="\r", file=sys.stderr, flush=True)
        first = _bare(folder, url, concurrency)
        ours = _ours(folder, url, concurrency)
        pairs.append((first, ours))
    case = f"{SLOTS} slots, {concurrency} requests at once"
    for what, unit in (("rate", "answers a second"), ("used", "slots in use")):
        bare, batch = ([getattr(pair[at], what) for pair in pairs] for at in (0, 1))
        ratios = sorted(one / other for one, other in zip(batch, bare, strict=True))
        share = statistics.median(ratios)
        shown = {
            "bare": f"{statistics.median(bare):.2f}",
            "promptools batch": f"{statistics.median(batch):.2f}",
            "share": f"{share:.3f}",
            "lowest, highest round": f"{ratios[0]:.2f}, {ratios[-1]:.2f}",
        }
        yield Row(f"{case}: {unit}", shown, share, SHARE)


def ceiling_table() -> Table:
    """Measure requests to a server that responds at once, so that the client is the limit."""
    rows: list[Row] = []
    with _stub() as url, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, more in (("", {}), (", a tool", {"tools": samples.OPENAI[:1]})):
            write_requests(folder / "in.jsonl", CEILING_REQUESTS, model="stub", **more)
            write_requests(folder / "one.jsonl", 1, model="stub", **more)
            for client, send in (("bare", _bare), ("openai SDK", _sdk), ("promptools batch", _ours)):
                runs = [send(folder, url, CEILING_CONCURRENCY) for _ in range(ROUNDS)]
                start = min(send(folder, url, 1, "one.jsonl").processor for _ in range(ROUNDS))
                cost = (min(run.processor for run in runs) - start) / CEILING_REQUESTS
                rate = max(run.rate for run in runs)
                shown = {"of a request": seconds(cost), "a second and core": f"{1 / cost:,.0f}", "wall": f"{rate:,.0f}"}
                rows.append(Row(f"{client}{name}", shown, measured={"cost_s": cost, "rate": rate}))
    return Table("batch_ceiling", "A server that responds at once: processor time of the client", rows)


def _bare(folder: Path, url: str, concurrency: int, source: str = "in.jsonl", *options: str) -> Outcome:
    command = [*MODULE, "benchmarks.batches.bare_client", str(folder / source), str(folder / "bare.jsonl"), url]
    return _outcome([*command, str(concurrency), *options], folder / "bare.jsonl", folder / source)


def _sdk(folder: Path, url: str, concurrency: int, source: str = "in.jsonl") -> Outcome:
    return _bare(folder, url, concurrency, source, "sdk")


def _ours(folder: Path, url: str, concurrency: int, source: str = "in.jsonl") -> Outcome:
    output = folder / "ours.jsonl"
    output.unlink(missing_ok=True)
    command = [*MODULE, "benchmarks.batches.batch_client", str(folder / source), str(output), url, str(concurrency)]
    return _outcome(command, output, folder / source)


def _outcome(command: list[str], output: Path, source: Path) -> Outcome:
    run = measured(command)
    took = json.loads(run.output)["seconds"]
    results = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(results) == len(source.read_bytes().splitlines()), len(results)
    assert all(result["response"]["status_code"] == 200 for result in results), results[0]
    timings: list[dict[str, float]] = [result["response"]["body"].get("timings") or {} for result in results]
    computed = sum(timing.get("prompt_ms", 0.0) + timing.get("predicted_ms", 0.0) for timing in timings) / 1e3
    return Outcome(len(results) / took, computed / (SLOTS * took), run.processor)


def write_requests(path: Path, count: int, **body: Any) -> None:
    """Write a file of `count` requests in OpenAI's batch format, each with a different question."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            content = f"Question {number}: what is the weather like in a town at {number % 90} degrees north?"
            request = {"messages": [{"role": "user", "content": content}], **body}
            line = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": request}
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def _stub() -> Iterator[str]:
    command = [*MODULE, "benchmarks.proxies.stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()
