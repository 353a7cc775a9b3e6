"""Processes of this machine with their time-outs, budgets and ends, for all sandboxes.

A command is over when its first process is. What that one left running has the same pipe open, so the end of the output
is not waited for: the rest of the group is killed, and what is in the pipe by then is read. `watch` is asked ten times
a second whether the command has exceeded a limit that the system does not enforce.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from promptools.sandbox.protocol import TIMED_OUT, CommandResult, SandboxError
from promptools.sandbox.running.output_buffer import OutputBuffer

Watch = Callable[[int], str]
"""Gets the id of the process; returns which limit was exceeded, in words, or an empty string."""
Kill = Callable[["subprocess.Popen[bytes]"], None]

INTERVAL = 0.1
"""Seconds between two looks at a command."""
_PIECE = 1 << 16
_MOST_PIPED = 1 << 24
"""Bytes that are read after the end: a survivor outside the group could write for ever."""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a process that was started in a session of its own; it may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What is started, and how it is watched and ended."""

    arguments: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None
    watch: Watch | None = None
    kill: Kill = kill_group
    descriptors: Sequence[int] = ()
    """The only open files that it inherits."""

    def open(self, stdin: int) -> subprocess.Popen[bytes]:
        """Start it in a session of its own. Raises `OSError`, and `ValueError` for a NUL in an argument."""
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


def run_process(settings: ProcessSettings, *, stdin: str | bytes | None, timeout: float, output: int) -> CommandResult:
    """Run a command to its end and return how it ended; `timeout` is in seconds, `output` in bytes."""
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
    """Return the result of a command that is not there, or cannot be run: the codes are the shell's."""
    missing = isinstance(error, FileNotFoundError)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return CommandResult(f"{arguments[0] if arguments else '(no command)'}: {why}\n", 127 if missing else 126)


class _Run:
    """A process whose input is written and whose output is read at the same time."""

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
        """Wait for the end of the process; return whether its time was up, and which limit ended it."""
        while self._process.poll() is None:
            left = deadline - time.monotonic()
            stopped = self._exceeded()
            if left <= 0 or stopped:
                self._kill(self._process)
                return not stopped, stopped
            self._step(min(left, INTERVAL))
        return False, ""

    def _exceeded(self) -> str:
        now = time.monotonic()
        if self._watch is None or now - self._watched < INTERVAL:
            return ""
        self._watched = now
        return self._watch(self._process.pid)

    def _step(self, seconds: float) -> None:
        if not self._selector.get_map():  # it closed its outputs, and runs on
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
        except OSError:  # it does not read its input to the end
            self._rest = self._rest[:0]
        if not self._rest and self._process.stdin is not None:
            self._selector.unregister(self._process.stdin)
            self._process.stdin.close()

    def _read_once(self) -> bool:
        """Read what is there; return whether there may be more."""
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
        """Kill what the process left of its group, and read what they wrote, as far as it is in the pipe."""
        kill_group(self._process)
        left = _MOST_PIPED
        while left > 0 and self._read_once():
            left -= _PIECE

    def close(self) -> None:
        """Release everything; a process that still runs, because of an exception, is killed."""
        if self._process.poll() is None:
            self._kill(self._process)
            self._process.wait()
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class StartedProcess:
    """A process that is talked to.

    A thread of its own starts it and waits for its end: under bubblewrap a process dies with the thread that started
    it, and threads of a pool end when they are idle.
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
        kill_group(process)  # at once, since later its id may be another's

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
