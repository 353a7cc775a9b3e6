"""Ends the engine's processes if ours is killed: `python engine_guard.py PID ...`, with a pipe as standard input.

vLLM's engine runs in a separate process. If the process that started it is killed, it waits for requests forever and
keeps the GPU's memory, so the next run of the batch would find none. The guard waits until the other end of its
standard input is closed, as happens when a process ends in any way, and then kills the engine if it still runs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import Generator, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def guard_engine() -> Generator[None, None, None]:
    """Let a guard end the children that multiprocessing started when this process ends.

    A process that is forked later must not outlive this one: it inherits the pipe.
    """
    pids = [str(child.pid) for child in multiprocessing.active_children()]
    command = [sys.executable, "-P", str(Path(__file__).resolve()), *pids]
    # its own session: Ctrl-C is meant for us, and the guard continues until we have ended
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:  # noqa: S603 our own file
        try:
            yield
        finally:
            assert guard.stdin is not None, "it is a pipe"
            guard.stdin.close()


def wait_and_kill(pids: Iterable[int]) -> None:
    """Wait until standard input ends, and kill the processes `pids`, unless other processes have their ids by then."""
    psutil: Any = import_module("psutil")
    processes: list[Any] = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    sys.stdin.buffer.read()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    wait_and_kill(map(int, sys.argv[1:]))
