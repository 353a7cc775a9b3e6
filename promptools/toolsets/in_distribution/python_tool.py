"""`python`: code in an interpreter of the sandbox, a new one for each call or one that is kept."""

from __future__ import annotations

import json
import os
import selectors
import time
from functools import cache
from importlib import resources
from secrets import token_hex
from threading import Lock
from typing import Any

from promptools.harness.sandbox import CommandResult, Sandbox, SandboxProcess
from promptools.harness.sandbox.processes import OutputBuffer
from promptools.harness.sandbox.protocol import TIMED_OUT
from promptools.toolsets.in_distribution.observations import Observation, observe, plain_observation

PROGRAM = "python3"
DEFAULT_OUTPUT = 10_000
LOST = "\n[the interpreter is gone, and with it all variables, functions and imports; the next call gets a new one]"
_PIECE = 1 << 16
_FAILED = b"1"


def python_description(kind: str, timeout: float) -> str:
    """Return the description of the tool for the model."""
    state = (
        "Variables, functions and imports are kept from call to call."
        if kind == "stateful"
        else "Each call is a program of its own: nothing is kept from earlier calls."
    )
    return (
        f"Runs Python code and returns what it prints, and the value of its last line. {state}"
        f" It has {timeout:g} seconds, no input, and starts in the root of the repository."
    )


class PythonSession:
    """Runs code; where `stateful`, in one interpreter, which is a new one after a time-out or if it ended."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        stateful: bool,
        timeout: float,
        observation: Observation = plain_observation,
        max_output: int = DEFAULT_OUTPUT,
    ) -> None:
        self._sandbox = sandbox
        self._stateful = stateful
        self._timeout = timeout
        self._observation = observation
        self._max_output = max_output
        self._process: SandboxProcess | None = None
        self._lock = Lock()

    def run(self, code: str, **_: Any) -> str:
        """Run code and return what the model reads; raise `ToolTimeoutError` if the time is up."""
        with self._lock:
            result, gone = self._run(code)
            if gone or not self._stateful:
                self.close()
        return observe(result, self._timeout, self._observation, LOST if gone and self._stateful else "")

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _run(self, code: str) -> tuple[CommandResult, bool]:
        """Return the result, and whether the interpreter cannot be used again."""
        if self._process is None:
            self._process = self._sandbox.start([PROGRAM, "-c", worker_source()])
        mark = f"\x1e{token_hex(16)} "  # code cannot know it, so what it prints is never taken for the end
        request = json.dumps({"code": code, "mark": mark}) + "\n"
        reply = _Reply(self._process, mark.encode(), self._max_output)
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except OSError:
            pass  # it ended; the output has the reason
        result = reply.read(time.monotonic() + self._timeout)
        return result, result.timed_out or reply.ended


class _Reply:
    """The output of one piece of code: it ends with the mark, with the interpreter, or with the time."""

    def __init__(self, process: SandboxProcess, mark: bytes, max_output: int) -> None:
        self.ended = False
        """Whether the interpreter is gone."""
        self._process = process
        self._descriptor = process.stdout.fileno()
        self._mark = mark
        self._buffer = OutputBuffer(max_output)
        self._held = b""

    def read(self, deadline: float) -> CommandResult:
        """Read to the end of the code, or until the deadline."""
        os.set_blocking(self._descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    continue
                data = os.read(self._descriptor, _PIECE)
                if not data:
                    self.ended = True
                    self._buffer.feed(self._held)
                    return self._result(1)
                code = self._take(data)
                if code is not None:
                    return self._result(code)
        self._buffer.feed(self._held)
        return self._result(TIMED_OUT, timed_out=True)

    def _take(self, data: bytes) -> int | None:
        """Add output; return the exit code if the mark is complete."""
        data = self._held + data
        before, mark, after = data.partition(self._mark)
        if mark:
            if b"\n" not in after:
                self._held = data
                return None
            self._buffer.feed(before)
            return int(after.startswith(_FAILED))
        held = len(self._mark) - 1  # the beginning of the mark may be at the end
        self._buffer.feed(data[:-held])
        self._held = data[-held:]
        return None

    def _result(self, code: int, *, timed_out: bool = False) -> CommandResult:
        stopped = self._process.stopped if self.ended else ""
        return CommandResult(self._buffer.text(), code, timed_out, self._buffer.truncated, stopped)


@cache
def worker_source() -> str:
    """Return the source of the interpreter's own program."""
    return (resources.files("promptools.toolsets.in_distribution") / "python_worker.py").read_text(encoding="utf-8")
