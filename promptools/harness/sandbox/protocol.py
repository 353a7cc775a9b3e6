"""The protocol of sandboxes: run a command to its end, or start a process and exchange data with it, under limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from promptools.errors import PromptoolsError, UsageError

Command: TypeAlias = "Sequence[str] | str"
"""A command: a list holds a program and its arguments, and a string is a command line for the shell."""

TIMED_OUT = 124
"""Exit code of a command that was ended because it took too long. The program timeout(1) uses the same code."""


class SandboxError(PromptoolsError):
    """The sandbox itself does not work: its program is missing, or the system does not allow what the program needs."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    output: str
    """Standard output and standard error, in the order of arrival. A notice replaces any part that was left out."""
    exit_code: int
    """The exit code. As in shells, it is 128 plus the signal's number for a command that a signal ended. After a
    time-out it is 124."""
    timed_out: bool = False
    truncated: bool = False
    """Whether a part of the output was left out."""
    stopped: str = ""
    """The limit or interruption that ended the command, in words; empty if none did."""


class SandboxProcess(Protocol):
    """A process that was started in a sandbox and exchanges data with the caller."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    """Standard output and standard error together."""
    stopped: str
    """The limit that ended the process, in words; empty if none did."""

    def kill(self) -> None:
        """End the process and the processes that it started. The process may have ended already.

        In some sandboxes, a started process that has left the process group is not ended.
        """
        ...


class Sandbox(Protocol):
    """Runs commands in a workspace under limits."""

    @property
    def root(self) -> Path:
        """The folder of the workspace on this machine; file tools work in this folder."""
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
        """Run a command until it ends or its time is up, and return how it ended.

        `cwd` is relative to the workspace. `timeout`, in seconds, cannot exceed the timeout of the sandbox's limits.
        `max_output`, in bytes, replaces the output limit of the sandbox. Without `stdin`, the command's input is empty.
        Raises `SandboxError` if the sandbox does not work. A command that fails, or does not exist, still has a result.
        """
        ...

    def start(self, command: Command, *, env: Mapping[str, str] | None = None) -> SandboxProcess:
        """Start a command in the workspace, and return its process without waiting for its end.

        The process reads what the caller writes to its `stdin`.
        """
        ...

    def close(self) -> None:
        """End all processes that are still running in the sandbox."""
        ...


MEGABYTE = 1 << 20
GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """The limits of a command. docs/tasks/sandboxes.md says which limits each sandbox enforces, and how exactly."""

    timeout: float = 300.0
    """Maximum number of seconds that a command may take."""
    output: int = 10_000
    """Maximum number of bytes of output that are kept: half from the beginning of the output, half from its end."""
    memory: int = 2 * GIGABYTE
    """Maximum number of bytes of memory, both for each process and for all processes together."""
    processes: int = 256
    """Maximum number of processes and threads at the same time."""
    file_size: int = GIGABYTE
    """Maximum size in bytes of a file that is written."""
    disk: int = 4 * GIGABYTE
    """Maximum number of bytes by which free space on the workspace's disk may shrink while a command runs."""
    temporary: int = 256 * MEGABYTE
    """Maximum size in bytes of each private temporary folder."""
    open_files: int = 1024

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"the limit {name!r} is {getattr(self, name)!r}; it must be more than 0")

    def seconds(self, timeout: float | None) -> float:
        """Return how many seconds a command may take if the caller asks for `timeout` seconds."""
        return self.timeout if timeout is None else min(max(timeout, 0.0), self.timeout)
