"""A command that is run to its end, with the processor time and the memory of all its processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What a command took."""

    seconds: float
    processor: float
    """Seconds of processor time of all processes of the command."""
    resident: float
    """The most resident memory that any one of its processes had, in MB."""
    processes: int
    """Maximum number of its processes at one time."""
    output: str


def measured(command: Sequence[str], environment: Mapping[str, str] | None = None) -> MeasuredRun:
    """Run a command of Python in the checkout; raise `RuntimeError` if it fails.

    Processor time is measured in two ways, and the larger figure counts. The system counts the processes that were
    waited for. Sampling the processes every tenth of a second includes the daemons too.
    """
    started = time.perf_counter()
    settings = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=settings) as process:
        spent: dict[tuple[int, float], float] = {}
        resident, most = 0.0, 0
        root = psutil.Process(process.pid)
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            family = [root, *root.children(recursive=True)]
            most = max(most, len(family))
            for member in family:
                with contextlib.suppress(psutil.Error):
                    times = member.cpu_times()
                    spent[member.pid, member.create_time()] = times.user + times.system
                    resident = max(resident, member.memory_info().rss / 1e6)
            time.sleep(POLL_SECONDS)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = process.stdout.read().decode(), process.stderr.read().decode()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors[-2000:]}")
    processor = max(usage.ru_utime + usage.ru_stime, sum(spent.values()))
    return MeasuredRun(seconds, processor, max(resident, usage.ru_maxrss / 1e3), most, output)
