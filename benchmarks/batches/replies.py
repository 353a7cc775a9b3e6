"""Measure the cost of reparsing a logged reply: in one process, in one process for each core, and on Ray.

The same file is read by `promptools reparse` as a user runs it. The cost of a reply is computed from the processor time
of all processes, minus the time for a file with a single reply. So it does not include the start of the interpreter and
of Ray.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import samples
from benchmarks.batches.measured_run import ROOT, MeasuredRun, measured
from benchmarks.table import Row, Table, Target
from benchmarks.timing import seconds

ROUNDS = 3
"""Runs of each case; runs with a million replies are not repeated."""
REPEATED_BELOW = 500_000
FLAT = Target("at most", 1.2, "<= 1.2x of the smallest file")
STEADY = Target("at most", 1.2, "<= 1.2x of the smallest file")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run `reparse`."""

    name: str
    options: tuple[str, ...]


def reparse_table(sizes: Sequence[int]) -> Table:
    """Measure files with these numbers of replies, in every way that this machine can run."""
    python, missing = _ray_python()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ways = [Way("1 process", ("--workers", "1")), Way(f"{cores} processes", ("--workers", str(cores)))]
    if not missing:
        ways.append(Way(f"Ray, {cores} cores", ("--ray", "local")))
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder = Path(scratch)
        runs = {(way.name, size): _runs(python, way, folder, size) for size in [1, *sizes] for way in ways}
    rows = [row for way in ways for row in _rows(way, runs, sizes)]
    largest = sizes[-1]
    if missing:
        rows.append(Row(f"Ray: not measured, {missing}", {}))
    else:
        rows.append(_overhead(ways[2], ways[1], runs, largest))
    return Table("batch_reparse", "Logged replies read again, in processor time of all processes", rows)


def _rows(way: Way, runs: dict[tuple[str, int], list[MeasuredRun]], sizes: Sequence[int]) -> Iterator[Row]:
    start = min(run.processor for run in runs[way.name, 1])
    costs = [(min(run.processor for run in runs[way.name, size]) - start) / size for size in sizes]
    resident = [statistics.median(run.resident for run in runs[way.name, size]) for size in sizes]
    for size, cost, memory in zip(sizes, costs, resident, strict=True):
        wall = min(run.seconds for run in runs[way.name, size])
        shown = {
            "of a reply": seconds(cost),
            "a second and core": f"{1 / cost:,.0f}",
            "a second, wall": f"{size / wall:,.0f}",
            "largest process": f"{memory:.0f} MB",
        }
        figures = {"cost_s": cost, "wall_s": wall, "resident_mb": memory, "start_s": start}
        yield Row(f"{way.name}, {size:,} replies", shown, measured=figures)
    if len(sizes) > 1:
        ratio, growth = costs[-1] / costs[0], resident[-1] / resident[0]
        span = f"{sizes[0]:,} to {sizes[-1]:,} replies"
        yield Row(f"{way.name}, cost of a reply, {span}", {"of a reply": f"{ratio:.2f}x"}, ratio, FLAT)
        yield Row(f"{way.name}, memory, {span}", {"largest process": f"{growth:.2f}x"}, growth, STEADY)


def _overhead(ray: Way, pool: Way, runs: dict[tuple[str, int], list[MeasuredRun]], size: int) -> Row:
    """Return the row that compares whole runs on Ray with whole runs of the process pool."""
    ours, plain = runs[ray.name, size], runs[pool.name, size]
    processor = min(run.processor for run in ours) / min(run.processor for run in plain)
    wall = min(run.seconds for run in ours) / min(run.seconds for run in plain)
    shown = {"of a reply": f"{processor:.2f}x", "a second, wall": f"{1 / wall:.2f}x"}
    return Row(f"Ray over processes, {size:,} replies, with its start", shown, processor, measured={"wall": wall})


def _runs(python: str, way: Way, folder: Path, size: int) -> list[MeasuredRun]:
    source, output = folder / f"{size}.jsonl", folder / "out.jsonl"
    if not source.exists():
        write_replies(source, size)
    command = [python, "-m", "promptools", "reparse", str(source), str(output), *way.options, "--json"]
    runs: list[MeasuredRun] = []
    for _ in range(ROUNDS if size < REPEATED_BELOW else 1):
        print(f"... reparse, {way.name}, {size:,} replies ", end="\r", file=sys.stderr, flush=True)
        runs.append(measured(command))
        totals = json.loads(runs[-1].output)
        assert totals["replies"] == size, totals
        assert totals["failed"] == 0, totals
        assert totals["with_calls"] >= size * 3 // 4, totals
        output.unlink()
    return runs


def write_replies(path: Path, count: int) -> None:
    """Write `count` different replies as models write them: calls in five dialects, answers, and broken calls."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps({"id": number, "text": _text(number), "tools": samples.OPENAI[:1]}) + "\n")


def _text(number: int) -> str:
    arguments: dict[str, Any] = {"city": f"City {number}", "days": number % 14, "unit": "celsius"}
    call = json.dumps({"name": "get_weather", "arguments": arguments})
    forms = (
        lambda: f"<tool_call>\n{call}\n</tool_call>",
        lambda: samples.prose(300) + "\n" + samples.fenced(samples.call("get_weather", arguments)),
        lambda: "[TOOL_CALLS]" + json.dumps([{"name": "get_weather", "arguments": arguments}]),
        lambda: f"[get_weather(city='City {number}', days={number % 14})]",
        lambda: f"{samples.prose(200)}<tool_call>\n{call[:-2]},}}}}\n</tool_call>",
        lambda: (
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
            f"City {number}\n</parameter>\n</function>\n</tool_call>"
        ),
        lambda: samples.prose(400) + f" This is answer {number}.",
        lambda: f"<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>",
    )
    return forms[number % len(forms)]()


def _ray_python() -> tuple[str, str]:
    """Return the Python for all runs: that of the environment `ray` if there is one. Also return why Ray cannot run.

    The reason is empty if Ray can run.
    """
    sys.path.insert(0, str(ROOT / "tools"))
    import environments

    if "ray" not in environments.ENVIRONMENTS or not environments.is_made("ray"):
        return sys.executable, "there is no environment for it: `python tools/environments.py ray` makes it"
    python = str(environments.path_of("ray"))
    shown = subprocess.run(
        [python, "-m", "promptools", "reparse", "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return (python, "") if "--ray" in shown.stdout else (sys.executable, "`promptools reparse` has no option --ray")
