"""What every sandbox does: run a command to its end, or start one that is talked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from promptools.errors import PromptoolsError

Command: TypeAlias = "Sequence[str] | str"
"""A list is a program and its arguments; a string is a line for the shell."""

TIMED_OUT = 124
"""Exit code of a command that was ended because its time was up, as timeout(1) has it."""


class SandboxError(PromptoolsError):
    """The sandbox itself does not work: its program is missing, or the system refuses what it needs."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    output: str
    """Standard output and standard error as they came, with a notice where something was left out."""
    exit_code: int
    """128 plus the signal's number for a command that a signal ended, as shells have it; 124 after a time-out."""
    timed_out: bool = False
    truncated: bool = False
    """Whether something of the output was left out."""
    stopped: str = ""
    """Which limit ended the command, in words; empty if none did."""


class SandboxProcess(Protocol):
    """A process that was started in a sandbox and is talked to."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    """Both outputs."""
    stopped: str
    """Which limit ended it, in words; empty if none did."""

    def kill(self) -> None:
        """End the process with all that it started that the sandbox can reach. It may have ended already."""
        ...


class Sandbox(Protocol):
    """Where commands run."""

    @property
    def root(self) -> Path:
        """The workspace on this machine: where file tools work."""
        ...

    @property
    def workspace(self) -> str:
        """The absolute path of the workspace as commands see it."""
        ...

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        max_output: int | None = None,
    ) -> CommandResult:
        """Run a command to its end, or to its time-out, and return how it ended.

        `cwd` is relative to the workspace. `timeout` is in seconds and never exceeds the one of the limits;
        `max_output`, in bytes, replaces theirs. Without `stdin` the command reads an empty one. Raises `SandboxError`
        if the sandbox does not work; a command that fails, or is not there, is a result.
        """
        ...

    def start(self, command: Command, *, env: Mapping[str, str] | None = None) -> SandboxProcess:
        """Start a command in the workspace that reads what is written to its `stdin`."""
        ...

    def close(self) -> None:
        """End whatever is still running."""
        ...
