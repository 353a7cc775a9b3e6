"""The log of a run: one attempt at a task after the other.

A run that ended early goes on where it was: attempts that the log has are not made again, those that failed are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from promptools.evaluation.resumable_log import ResumableLog


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task, graded."""

    task: str
    repeat: int
    text: str = ""
    answer: int | None = None
    expected: int | None = None
    """None for a task that is not a question with an integer as its answer."""
    correct: bool = False
    usage: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    error: str = ""
    """What failed; such an attempt is made again when the run goes on."""
    ended: str = ""
    """Why there is no answer although nothing failed: a limit, for example."""
    failed_checks: dict[str, str] = field(default_factory=dict[str, str])
    """Why, for each check of the task that failed."""


class RunLog(ResumableLog):
    """Attempts in a file. `settings` say what was run, and must be those of the file if it exists already."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.attempts: dict[tuple[str, int], TaskAttempt] = {}
        super().__init__(path, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Add an attempt that the file has."""
        known = {name.name for name in fields(TaskAttempt)}
        try:
            attempt = TaskAttempt(**{name: value for name, value in row.items() if name in known})
        except TypeError:
            return
        self.attempts[attempt.task, attempt.repeat] = attempt

    def record(self, attempt: TaskAttempt) -> None:
        """Add an attempt, on the disk at once."""
        self.attempts[attempt.task, attempt.repeat] = attempt
        self.write(asdict(attempt))

    def is_done(self, task: str, repeat: int) -> bool:
        """Whether an attempt was made and got an answer."""
        attempt = self.attempts.get((task, repeat))
        return attempt is not None and not attempt.error
