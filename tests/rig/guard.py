"""Run a server and end it with all its child processes: `python guard.py PROGRAM ARGUMENTS`.

Servers start more processes (Ollama one for each model, vLLM its engine), and leave them running when they are killed.
So a server runs in a session of its own, which is ended as a whole when standard input closes: when the process that
started the guard calls `Server.stop()`, and also when that process dies. The guard first prints `guard: running PID`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

COMMAND = (sys.executable, "-P", __file__)
"""Prefix for the command of a server that starts more processes: they are ended with it."""
_PATIENCE_SECONDS = 3.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG, prctl(2)


def guard(command: list[str]) -> int:
    """Run `command` until it ends or standard input closes; return its exit status."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the process that started the guard, which then stops it
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - no thread runs yet
    )
    sys.stdout.write(f"guard: running {process.pid}\n")
    sys.stdout.flush()

    def stop(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=_end, args=(process,), daemon=True).start()  # the main thread keeps waiting

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
    status = process.wait()
    _signal_all(process.pid, signal.SIGKILL)  # what is left of its session
    return status


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the session, resume it if it is stopped, and kill it if it does not end in time."""
    _signal_all(process.pid, signal.SIGTERM)
    _signal_all(process.pid, signal.SIGCONT)
    until = time.monotonic() + _PATIENCE_SECONDS
    while process.returncode is None and time.monotonic() < until:
        time.sleep(0.05)
    _signal_all(process.pid, signal.SIGKILL)


def _signal_all(session: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, number)


def _die_with_guard() -> None:
    """Have the kernel kill the server when the guard itself is killed; on Linux only, elsewhere it keeps running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
