"""How much a command may use."""

from __future__ import annotations

from dataclasses import dataclass

from promptools.errors import UsageError

MEGABYTE = 1 << 20
GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may use. Which of these a sandbox enforces, and how exactly, is in docs/tasks/sandboxes.md."""

    timeout: float = 300.0
    """Seconds."""
    output: int = 10_000
    """Bytes of output that are kept: half of them from its beginning, half from its end."""
    memory: int = 2 * GIGABYTE
    """Bytes of memory, of each process and of all of them together."""
    processes: int = 256
    """Processes and threads at one time."""
    file_size: int = GIGABYTE
    """Bytes of the largest file that may be written."""
    disk: int = 4 * GIGABYTE
    """Bytes by which the free space of the workspace's disk may shrink while a command runs."""
    temporary: int = 256 * MEGABYTE
    """Bytes of each private temporary folder."""
    open_files: int = 1024

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"the limit {name!r} is {getattr(self, name)!r}; it has to be more than 0")

    def seconds(self, timeout: float | None) -> float:
        """Return how long a command may take that asks for `timeout` seconds."""
        return self.timeout if timeout is None else min(max(timeout, 0.0), self.timeout)
