"""Kill the engine's processes when the batch's process ends: `python engine_guard.py PID ...`, with a pipe as stdin.

vLLM's engine runs in a separate process. If the process that started the engine is killed, the engine waits for
requests forever and keeps the GPU's memory, so that none is left for the next run of the batch. The guard waits until
the other end of its standard input is closed. The system closes that end whenever the batch's process ends, even if
the process is killed. Then the guard kills the engine if the engine is still running.
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
    """Start a guard process, which kills the engine's processes once the block or this process has ended.

    The engine's processes are all current child processes of multiprocessing. A process that is forked later inherits
    the pipe to the guard, so the forked process must not outlive this one.
    """
    pids = [str(child.pid) for child in multiprocessing.active_children()]
    command = [sys.executable, "-P", str(Path(__file__).resolve()), *pids]
    # in its own session: Ctrl-C is meant for this process, and the guard must continue until this process has ended
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:  # noqa: S603 our own file
        try:
            yield
        finally:
            assert guard.stdin is not None, "it is a pipe"
            guard.stdin.close()


def wait_and_kill(pids: Iterable[int]) -> None:
    """Wait until standard input ends; then kill the processes with the ids `pids`.

    If a process has ended and a new process has got its id, the new process is not killed.
    """
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
