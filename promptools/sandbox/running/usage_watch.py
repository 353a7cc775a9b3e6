"""What the system does not bound by itself: the memory of all processes together, their number, and the disk.

The kernel limits each process (rlimits), and the number of a user's processes unless the user is root. The rest is
looked at ten times a second, so a command may exceed a limit for a moment before it is ended. Memory that no process
has mapped (a file in memory, a System V segment) is not seen.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.sandbox.command_limits import CommandLimits

_OWN_MEMORY = (b"RssAnon:", b"RssShmem:")
_SPARE_PROCESSES = 8
"""Processes of the sandbox itself, and commands that ask how many there are."""


class UsageWatch:
    """Looks at the processes below one process, and at the free space of the disk of `root`."""

    def __init__(self, limits: CommandLimits, root: Path) -> None:
        self._limits = limits
        self._root = root
        self._free_before = _free(root)

    def __call__(self, process: int) -> str:
        """Return which limit was exceeded, in words, or an empty string."""
        limits = self._limits
        processes = descendants(process)
        if sum(map(_threads, processes)) > limits.processes + _SPARE_PROCESSES:
            return f"it had more than {limits.processes} processes"
        if sum(map(_resident, processes)) > limits.memory and sum(map(_proportional, processes)) > limits.memory:
            return f"it used more than {limits.memory} bytes of memory"
        if self._free_before - _free(self._root) > limits.disk:
            return f"it filled more than {limits.disk} bytes of the disk"
        return ""


class ProcessWatch:
    """Looks at how many processes a command has: those below it, and those of its session whose parents have ended.

    For commands that are confined by nothing: one that leaves the session and whose parent ends is not counted. Where
    there is no /proc, nothing is.
    """

    def __init__(self, limits: CommandLimits) -> None:
        self._limits = limits

    def __call__(self, process: int) -> str:
        """Return that the limit was exceeded, in words, or an empty string."""
        if sum(map(_threads, started_by(process))) > self._limits.processes:
            return f"it had more than {self._limits.processes} processes"
        return ""


def started_by(process: int) -> set[int]:
    """Return a process, those below it, and those of its session."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208  ten times a second
    except OSError:
        return {process}
    session = {int(name) for name in names if name.isdigit() and _session(name) == process}
    return {process, *descendants(process), *session}


def _session(process: str) -> int:
    fields = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()  # the name before it may hold anything
    return int(fields[3]) if len(fields) > 3 else 0


def descendants(process: int) -> list[int]:
    """Return the processes below one: its children, and theirs."""
    known, waiting = {process}, [process]
    while waiting:
        for child in children(waiting.pop()):
            if child not in known:
                known.add(child)
                waiting.append(child)
    known.remove(process)
    return list(known)


def children(process: int) -> list[int]:
    """Return the children of a process; none if it has ended."""
    try:
        threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208  ten times a second
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{process}/task/{thread}/children").split()]


def _threads(process: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208
    return 0


def _resident(process: int) -> int:
    """Return the memory of a process without that of files; what several processes share counts for each."""
    return sum(
        _kilobytes(line) for line in _read(f"/proc/{process}/status").split(b"\n") if line.startswith(_OWN_MEMORY)
    )


def _proportional(process: int) -> int:
    """Return the memory of a process, where what is shared counts once: exact, and slow."""
    lines = _read(f"/proc/{process}/smaps_rollup").split(b"\n")
    proportional = sum(_kilobytes(line) for line in lines if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")))
    return proportional or _resident(process)


def _kilobytes(line: bytes) -> int:
    return int(line.split()[1]) * 1024


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _free(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bfree * status.f_frsize
