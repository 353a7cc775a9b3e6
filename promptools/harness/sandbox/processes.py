"""Run commands on this machine for any sandbox, with a fixed environment and limited time, output and resources.

`run_process` runs a command to its end. `StartedProcess` is a process that exchanges data with the caller.
`interruptible` lets another thread end commands. `OutputBuffer` keeps only the beginning and the end of long output.
`UsageWatch` watches the resources that the system itself does not limit.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

from promptools.harness.sandbox.protocol import TIMED_OUT, CommandResult, SandboxError

if TYPE_CHECKING:
    from promptools.harness.sandbox.protocol import Command, CommandLimits


# The output of a command within a budget: its beginning and its end are kept, and what is left out is counted.


_CONTINUATION = range(0x80, 0xC0)
"""The bytes of UTF-8 that continue a character, rather than begin one."""
_LONGEST_CHARACTER = 4


class OutputBuffer:
    """Accepts any amount of output, but keeps only about `budget` bytes: the beginning and the end."""

    def __init__(self, budget: int) -> None:
        self._for_tail = budget // 2
        self._for_head = budget - self._for_tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._dropped_bytes = 0
        self._dropped_lines = 0

    @property
    def truncated(self) -> bool:
        """Whether any output was left out."""
        return self._dropped_bytes > 0

    def feed(self, data: bytes) -> None:
        """Add output."""
        room = self._for_head - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._in_tail += len(data)
        while self._in_tail > self._for_tail:
            oldest = self._tail.popleft()
            excess = min(self._in_tail - self._for_tail, len(oldest))
            self._drop(oldest[:excess])
            if excess < len(oldest):
                self._tail.appendleft(oldest[excess:])

    def _drop(self, data: bytes) -> None:
        self._in_tail -= len(data)
        self._dropped_bytes += len(data)
        self._dropped_lines += data.count(b"\n")

    def text(self) -> str:
        """Return the output as text; invalid UTF-8 is replaced, and a notice marks what was left out."""
        tail = b"".join(self._tail)
        if not self.truncated:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        notice = f"[... {self._dropped_bytes} bytes of output, {self._dropped_lines} lines, were left out here ...]"
        return f"{_whole_head(bytes(self._head))}\n{notice}\n{_whole_tail(tail)}"


def shorten(text: str, budget: int) -> str:
    """Return `text` if it has at most `budget` bytes, else its beginning and its end, with a notice between them."""
    buffer = OutputBuffer(budget)
    buffer.feed(text.encode("utf-8", "replace"))
    return buffer.text()


def _whole_head(data: bytes) -> str:
    """Decode the beginning of a text; drop a character that is cut off at the end of `data`."""
    for length in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-length]
        if byte not in _CONTINUATION:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            data = data[:-length] if width > length else data
            break
    return data.decode("utf-8", "replace")


def _whole_tail(data: bytes) -> str:
    """Decode the end of a text; drop a character that is cut off at the beginning of `data`."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and data[start] in _CONTINUATION:
        start += 1
    return data[start:].decode("utf-8", "replace")


# How all sandboxes run processes on this machine: time-outs, budgets of output, and the end of a process.
#
# A command ends when its first process ends. Processes that it left running keep the pipe open, so `run_process` does
# not wait for the end of the output. It kills the rest of the group, and reads what is in the pipe by then. `watch` is
# asked ten times a second whether the command has exceeded a limit that the system does not enforce.


Watch = Callable[[int], str]
"""A function that gets a process id. It returns a description of the limit that was exceeded, or an empty string."""
Kill = Callable[["subprocess.Popen[bytes]"], None]

INTERVAL = 0.1
"""Seconds between two checks of a command."""
_PIECE = 1 << 16
_MOST_PIPED = 1 << 24
"""Maximum number of bytes that are read after a command has ended. The limit is needed because a process that left the
command's process group may live on and write forever."""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a process that was started in its own session. The group may have ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings with which a process is started, watched and ended."""

    arguments: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None
    watch: Watch | None = None
    kill: Kill = kill_group
    descriptors: Sequence[int] = ()
    """The file descriptors that the process inherits, besides its standard input, output and error."""

    def open(self, stdin: int) -> subprocess.Popen[bytes]:
        """Start the process in its own session. Raises `OSError`, or `ValueError` for a NUL in an argument."""
        return subprocess.Popen(
            list(self.arguments),
            cwd=self.cwd,
            env=dict(self.env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self.descriptors,
        )


INTERRUPTED = "it was interrupted"
_INTERRUPTION: ContextVar[threading.Event | None] = ContextVar("promptools_interruption", default=None)


@contextlib.contextmanager
def interruptible(interruption: threading.Event) -> Generator[None]:
    """Let another thread end the commands that run inside the block, by setting `interruption`.

    This ends commands that `run_process` runs and code that the tool `python` runs, also in threads that were started
    with a copy of the block's context. For a command of `run_process` in a Docker container, only Docker's client is
    ended. The command in the container ends when its time is up.
    """
    token = _INTERRUPTION.set(interruption)
    try:
        yield
    finally:
        _INTERRUPTION.reset(token)


def is_interrupted() -> bool:
    """Return whether the commands that run in this context must end now."""
    interruption = _INTERRUPTION.get()
    return interruption is not None and interruption.is_set()


def run_process(settings: ProcessSettings, *, stdin: str | bytes | None, timeout: float, output: int) -> CommandResult:
    """Run a command for at most `timeout` seconds; return how it ended, with at most `output` bytes of its output."""
    source = stdin.encode("utf-8", "replace") if isinstance(stdin, str) else stdin or b""
    try:
        process = settings.open(subprocess.PIPE if source else subprocess.DEVNULL)
    except (OSError, ValueError) as error:
        return _not_started(settings.arguments, error)
    run = _Run(process, source, OutputBuffer(output), settings)
    try:
        timed_out, stopped = run.wait(time.monotonic() + timeout)
        code = process.wait()
        run.read_rest()
    finally:
        run.close()
    exit_code = TIMED_OUT if timed_out else code if code >= 0 else 128 - code
    return CommandResult(run.buffer.text(), exit_code, timed_out, run.buffer.truncated, stopped)


def _not_started(arguments: Sequence[str], error: Exception) -> CommandResult:
    """Return the result for a command that does not exist or cannot be run. The exit codes are those of a shell."""
    missing = isinstance(error, FileNotFoundError)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return CommandResult(f"{arguments[0] if arguments else '(no command)'}: {why}\n", 127 if missing else 126)


class _Run:
    """A running process, whose input is written and whose output is read at the same time."""

    def __init__(
        self, process: subprocess.Popen[bytes], source: bytes, buffer: OutputBuffer, settings: ProcessSettings
    ) -> None:
        self.buffer = buffer
        self._kill = settings.kill
        self._process = process
        self._rest = memoryview(source)
        self._watch = settings.watch
        self._watched = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._output = process.stdout
        if self._output is not None:
            os.set_blocking(self._output.fileno(), False)
            self._selector.register(self._output, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def wait(self, deadline: float) -> tuple[bool, str]:
        """Wait for the end of the process; kill it at the deadline, or if it exceeds a limit or is interrupted.

        Return whether it timed out, and the limit or interruption that ended it, in words.
        """
        while self._process.poll() is None:
            left = deadline - time.monotonic()
            stopped = self._exceeded()
            if left <= 0 or stopped:
                self._kill(self._process)
                return not stopped, stopped
            self._step(min(left, INTERVAL))
        return False, ""

    def _exceeded(self) -> str:
        if is_interrupted():
            return INTERRUPTED
        now = time.monotonic()
        if self._watch is None or now - self._watched < INTERVAL:
            return ""
        self._watched = now
        return self._watch(self._process.pid)

    def _step(self, seconds: float) -> None:
        if not self._selector.get_map():  # the process closed its outputs, but is still running
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return
        for _, events in self._selector.select(seconds):
            if events & selectors.EVENT_WRITE:
                self._write()
            else:
                self._read_once()

    def _write(self) -> None:
        try:
            written = os.write(self._process.stdin.fileno(), self._rest[:_PIECE]) if self._process.stdin else 0
            self._rest = self._rest[written:]
        except BlockingIOError:
            return
        except OSError:  # the process does not read its input to the end
            self._rest = self._rest[:0]
        if not self._rest and self._process.stdin is not None:
            self._selector.unregister(self._process.stdin)
            self._process.stdin.close()

    def _read_once(self) -> bool:
        """Read one piece of the available output. Return False if there was nothing to read."""
        if self._output is None:
            return False
        try:
            data = os.read(self._output.fileno(), _PIECE)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._output)
            self._output.close()
            self._output = None
            return False
        self.buffer.feed(data)
        return True

    def read_rest(self) -> None:
        """Kill the rest of the process's group, and read the output that is still in the pipe."""
        kill_group(self._process)
        left = _MOST_PIPED
        while left > 0 and self._read_once():
            left -= _PIECE

    def close(self) -> None:
        """Close the pipes; kill the process if it is still running because of an exception."""
        if self._process.poll() is None:
            self._kill(self._process)
            self._process.wait()
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class StartedProcess:
    """A process that exchanges data with the caller.

    A separate thread starts the process and waits for its end. The thread must live as long as the process, because
    under bubblewrap a process dies with the thread that started it. A thread of a pool is unsuitable, because it would
    end when it is idle.
    """

    stdin: IO[bytes]
    stdout: IO[bytes]
    stopped: str = ""

    def __init__(self, settings: ProcessSettings) -> None:
        self._watch = settings.watch
        self._kill = settings.kill
        started: SimpleQueue[subprocess.Popen[bytes] | Exception] = SimpleQueue()
        self._thread = threading.Thread(target=self._own, args=(settings, started), daemon=True)
        self._thread.start()
        process = started.get()
        if isinstance(process, Exception):
            raise SandboxError(f"cannot start {settings.arguments[0]!r}: {process}") from process
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise SandboxError(f"{settings.arguments[0]!r} has no pipes")
        self.stdin, self.stdout = process.stdin, process.stdout

    def _own(self, settings: ProcessSettings, started: SimpleQueue[subprocess.Popen[bytes] | Exception]) -> None:
        try:
            process = settings.open(subprocess.PIPE)
        except (OSError, ValueError) as error:
            started.put(error)
            return
        started.put(process)
        self._wait(process)
        kill_group(process)  # at once, since another process may get the same id later

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        while self._watch is not None and not self.stopped:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERVAL)
                return
            self.stopped = self._watch(process.pid)
        if self.stopped:
            self._kill(process)
        process.wait()

    def kill(self) -> None:
        """End the process and its group, and close its pipes."""
        if self._process.poll() is None:
            self._kill(self._process)
        self._thread.join()
        for stream in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                stream.close()


# The environment and the limits of commands. The environment is fixed, because this process may have keys in its own.


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "LESS": "-R",
    "TERM": "dumb",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Environment variables that keep programs from waiting for a key press, or from filling the output with progress
bars."""


def base_environment(given: Mapping[str, str] | None, *, path: str, home: str) -> dict[str, str]:
    """Return the environment of a command: the variables that all commands get, overridden by `given`."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", **inherited, **QUIET, **(given or {})}


def to_arguments(command: Command, shell: str = "bash") -> list[str]:
    """Return a command as a program with its arguments; a string is passed to the shell as a command."""
    return [shell, "-c", command] if isinstance(command, str) else list(command) or [""]


def with_limits(arguments: list[str], limits: CommandLimits) -> list[str]:
    """Return a command for the first process of a namespace: a shell that sets limits and then runs `arguments`.

    The command and its child processes inherit the limits, and cannot raise them. The limit on processes must be set
    inside the namespace, because outside it would count all processes of the user. POSIX has no option for this limit;
    bash has -u, other shells have -p. The shell stays the first process of the namespace, instead of being replaced by
    the command, because the first process ignores most signals, and has to reap orphans.
    """
    return ["sh", "-c", f'{_ulimits(limits)}; "$@"; exit $?', "sh", *arguments]


def _ulimits(limits: CommandLimits) -> str:
    blocks, kilobytes = max(limits.file_size // 512, 1), max(limits.memory // 1024, 1)
    processes = f"ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes}"
    return f"ulimit -c 0; ulimit -f {blocks}; ulimit -d {kilobytes}; ulimit -n {limits.open_files}; {{ {processes}; }}"


# What the system itself does not limit: the memory of all processes together, their number, and the use of the disk.
#
# The kernel limits each process (rlimits), and the number of a user's processes unless the user is root. The rest is
# checked ten times a second, so a command may exceed a limit for a moment before it is ended. Memory that no process
# has mapped (a file in memory, a System V segment) is not seen.


_OWN_MEMORY = (b"RssAnon:", b"RssShmem:")
_SPARE_PROCESSES = 8
"""Number of processes that are allowed beyond the limit: for the sandbox's own processes, and for commands that count
processes, such as `ps`."""


class UsageWatch:
    """Checks whether a command has exceeded its limits on processes, memory or disk.

    All descendants of the command's process are counted. Disk use is measured as the loss of free space on the disk of
    `root` since this object was created.
    """

    def __init__(self, limits: CommandLimits, root: Path) -> None:
        self._limits = limits
        self._root = root
        self._free_before = _free(root)

    def __call__(self, process: int) -> str:
        """Return a description of the limit that was exceeded; empty if none was."""
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
    """Checks whether a command without a sandbox has exceeded its limit on processes.

    The process itself, its descendants and the processes of its session are counted. A process that has left the
    session is not counted once its parent has ended. Without /proc, nothing is counted.
    """

    def __init__(self, limits: CommandLimits) -> None:
        self._limits = limits

    def __call__(self, process: int) -> str:
        """Return a description of the limit if it was exceeded, else an empty string."""
        if sum(map(_threads, started_by(process))) > self._limits.processes:
            return f"it had more than {self._limits.processes} processes"
        return ""


def started_by(process: int) -> set[int]:
    """Return the ids of a process, its descendants, and the processes of its session."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208  ten times a second
    except OSError:
        return {process}
    session = {int(name) for name in names if name.isdigit() and _session(name) == process}
    return {process, *descendants(process), *session}


def _session(process: str) -> int:
    fields = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()  # the name in parentheses may hold anything
    return int(fields[3]) if len(fields) > 3 else 0


def descendants(process: int) -> list[int]:
    """Return the ids of the descendants of a process."""
    known, waiting = {process}, [process]
    while waiting:
        for child in children(waiting.pop()):
            if child not in known:
                known.add(child)
                waiting.append(child)
    known.remove(process)
    return list(known)


def children(process: int) -> list[int]:
    """Return the ids of the children of a process; none if the process has ended."""
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
    """Return how many bytes of memory a process uses, without mapped files.

    Shared memory counts in full for each process that shares it.
    """
    return sum(
        _kilobytes(line) for line in _read(f"/proc/{process}/status").split(b"\n") if line.startswith(_OWN_MEMORY)
    )


def _proportional(process: int) -> int:
    """Like `_resident`, but slower: divide shared memory among the processes that share it, so that sums are exact."""
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
