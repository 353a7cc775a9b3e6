"""Run the real proxy, with one worker, under several loads, to see how wrong the figures of one stream are for many.

The load is a share of what the figures say that a worker can do. The delay of a chunk is measured, and not computed: it
is the time that the chunk takes through the proxy, minus the time from the same server to the same clients without a
proxy. Both times are medians of the rounds.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import psutil

from benchmarks.scale.figures import Figures
from benchmarks.scale.measuring import job
from benchmarks.scale.planning import Workload, most_open
from benchmarks.scale.rig import ProxyProcess, Streams, paced_streams, proxy
from benchmarks.table import Row, Table

LOADS = (0.1, 0.25, 0.4, 0.55, 0.7)
"""Utilizations of the worker that the figures predict."""
CHUNKS, GAP = 60, 0.05
SECONDS = 9.0
"""How long streams arrive. Measurements are taken in a window: the time that is left after the first streams have
ended."""
ROUNDS = 3
MB = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the real proxy, or the median of several."""

    used: float
    stream_cost: float
    """Seconds of processor time per stream, over the whole run. Other work of the machine changes this little."""
    late_p50: float
    late_p99: float
    forwarded_p50: float
    forwarded_p99: float
    grown: float
    """Maximum number of bytes of resident memory, minus the bytes without streams."""
    machine: float
    """Share of the machine's cores that was busy, including all other work."""


def compare(figures: Figures, kind: str = "chat") -> Table:
    """Return what was measured at each load, beside what the figures predict."""
    cost = figures.streams[kind]
    rows: list[Row] = []
    with paced_streams() as streams:
        for share in LOADS:
            load = Workload(share / (cost.request + CHUNKS * cost.chunk), CHUNKS, GAP, cost)
            runs = [_run(streams, kind, load, number) for number in range(ROUNDS)]
            real = Measured(*(statistics.median(getattr(run, name) for run in runs) for name in Measured.__slots__))
            rows.append(_row(load, real))
    return Table("scale_comparison", f"One worker, {kind}: measured / from the figures", rows)


def _row(load: Workload, real: Measured) -> Row:
    memory = most_open(load.open_streams) * load.cost.memory
    shown = {
        "utilization": f"{real.used:.3f} / {load.demand:.3f}",
        "time of a stream, ms": f"{real.stream_cost * 1e3:.2f} / {load.stream_cost * 1e3:.2f}",
        "error": f"{load.stream_cost / real.stream_cost - 1:+.0%}",
        "memory, MB": f"{real.grown / MB:.1f} / {memory / MB:.1f}",
        "chunk p50, p99, measured": f"{real.late_p50 * 1e3:.2f}, {real.late_p99 * 1e3:.2f} ms",
        "request p50, p99, measured": f"{real.forwarded_p50 * 1e3:.2f}, {real.forwarded_p99 * 1e3:.2f} ms",
        "machine busy": f"{real.machine:.0%}",
    }
    figures = {"used": real.used, "computed_used": load.demand, "stream_s": real.stream_cost, "late_p99": real.late_p99}
    return Row(f"{load.rate:.0f} streams a second, {load.open_streams:.0f} open", shown, measured=figures)


def _run(streams: Streams, kind: str, load: Workload, number: int) -> Measured:
    """Run the load without the proxy, then with it."""
    print(f"... comparison, {load.rate:.0f} streams/s, round {number + 1} ", end="\r", file=sys.stderr, flush=True)
    paced = {"chunks": CHUNKS, "gap": GAP, "rate": load.rate, "seconds": SECONDS}
    direct = streams.run(job("chat", streams.port, **paced))
    with proxy(streams.port) as worker:
        streams.run(job(kind, worker.port, chunks=4, gap=GAP, streams=20, spread=1))
        idle, before = worker.resident(), worker.spent()
        streams.begin(job(kind, worker.port, **paced))
        used, machine, most = _watch(worker)
        through = streams.end()
        cost = (worker.spent() - before) / through["streams"]
    return Measured(
        used=used,
        stream_cost=cost,
        **{name: through[name] - direct[name] for name in ("late_p50", "late_p99", "forwarded_p50", "forwarded_p99")},
        grown=most - idle,
        machine=machine,
    )


def _watch(worker: ProxyProcess) -> tuple[float, float, float]:
    """Return the worker's share of a core, the machine's share of busy cores, and the most memory, in the window."""
    time.sleep(CHUNKS * GAP * 1.5)
    begin, at = worker.spent(), time.monotonic()
    psutil.cpu_percent()
    most = worker.resident()
    while time.monotonic() < at + SECONDS - CHUNKS * GAP * 1.5:
        time.sleep(0.2)
        most = max(most, worker.resident())
    used = (worker.spent() - begin) / (time.monotonic() - at)
    return used, psutil.cpu_percent() / 100, most
