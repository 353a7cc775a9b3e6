"""Compute what many streams need, or compare the figures of one worker with the real proxy.

    python -m benchmarks.scale                          what 1,000, 100,000 and 1,000,000 streams need
    python -m benchmarks.scale --streams 5000 --kind "chat with three tools" --chunks 300 --gap 0.02
    python -m benchmarks.scale --compare                the real proxy beside the figures, some minutes

All commands read `figures.json`, which `make bench ARGS=scale` writes. The last one needs the environment `bench`.
"""

from __future__ import annotations

import argparse

from benchmarks.scale.figures import FILE, load_figures
from benchmarks.scale.planning import Plan, plan
from benchmarks.table import Row, Table

STREAMS = (1_000, 100_000, 1_000_000)


def main() -> None:
    figures = load_figures()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, nargs="+", default=list(STREAMS), help="streams open at a time")
    parser.add_argument("--kind", choices=list(figures.streams), default="chat", help="kind of the requests (chat)")
    parser.add_argument("--chunks", type=int, default=400, help="chunks of a stream (400)")
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between two chunks (0.05)")
    parser.add_argument("--redis-calls", type=float, default=0.0, help="calls of Redis of a request (0)")
    parser.add_argument("--bounded", action="store_true", help="keys with a limit on requests in progress")
    parser.add_argument("--used", type=float, default=0.6, help="utilization of a worker (0.6)")
    parser.add_argument("--workers", type=int, default=8, help="workers of a replica (8)")
    parser.add_argument("--compare", action="store_true", help="run the real proxy beside the figures")
    asked = parser.parse_args()
    print(f"{FILE.name}: {figures.machine}")
    if asked.compare:
        from benchmarks.scale.comparison import compare

        print(compare(figures, asked.kind).text())
        return
    plans = [
        plan(figures, asked.kind, streams, chunks=asked.chunks, gap=asked.gap, used=asked.used,
             workers_of_replica=asked.workers, redis_calls=asked.redis_calls, bounded=asked.bounded)
        for streams in asked.streams
    ]  # fmt: skip
    title = f"{asked.kind}, {asked.chunks} chunks, one each {asked.gap:g} s"
    print(Table("scale_plan", title, [_row(made) for made in plans]).text())


def _row(made: Plan) -> Row:
    shown = {
        "requests/s": f"{made.requests:,.0f}",
        "workers (cores)": f"{made.workers:,}",
        "replicas": f"{made.replicas:,}",
        "utilization": f"{made.used:.0%}",
        "streams of a worker": f"{made.most_open:,}",
        "memory of a replica": f"{made.replica_memory / 1e9:.2f} GB",
        "its descriptors": f"{made.replica_descriptors:,.0f}",
        "Redis calls/s": f"{made.redis_calls:,.0f}",
        "of one Redis": f"{made.redis_used:.1%}",
        "Redis instances": f"{made.redis_instances:,}",
    }
    return Row(f"{made.streams:,} streams", shown)


if __name__ == "__main__":
    main()
