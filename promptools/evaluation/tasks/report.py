"""The result of a run as figures, and as a page in Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptools.errors import clip
from promptools.evaluation.intervals import Interval, share_interval
from promptools.evaluation.tasks.run_log import TaskAttempt


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of a run."""

    accuracy: Interval
    """The mean over tasks of the share of correct attempts; what failed counts as wrong."""
    by_task: dict[str, list[TaskAttempt]]
    solved: int
    """Tasks with at least one correct attempt."""
    failed: int
    """Attempts that ended with an error."""
    unanswered: int
    """Attempts whose text has no integer in it, if one is expected, or that ended at a limit."""
    usage: dict[str, int]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "accuracy": self.accuracy.to_dict(),
            "tasks": len(self.by_task),
            "attempts": sum(map(len, self.by_task.values())),
            "solved": self.solved,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "usage": self.usage,
            "seconds": round(self.seconds, 3),
        }


def summarize(attempts: Iterable[TaskAttempt], *, seed: int = 0) -> RunSummary:
    """Return the figures of attempts; their intervals come from drawing tasks again, not attempts."""
    by_task: dict[str, list[TaskAttempt]] = {}
    usage: Counter[str] = Counter()
    for attempt in attempts:
        by_task.setdefault(attempt.task, []).append(attempt)
        usage.update(attempt.usage)
    every = [attempt for group in by_task.values() for attempt in group]
    return RunSummary(
        accuracy=share_interval([_share(group) for group in by_task.values()], seed=seed),
        by_task=by_task,
        solved=sum(any(attempt.correct for attempt in group) for group in by_task.values()),
        failed=sum(bool(attempt.error) for attempt in every),
        unanswered=sum(not attempt.error and not _has_answer(attempt) for attempt in every),
        usage=dict(usage),
        seconds=sum(attempt.seconds for attempt in every),
    )


def _has_answer(attempt: TaskAttempt) -> bool:
    return not attempt.ended if attempt.expected is None else attempt.answer is not None


def _share(group: Sequence[TaskAttempt]) -> float:
    return sum(attempt.correct for attempt in group) / len(group)


def render_report(title: str, summary: RunSummary, settings: Mapping[str, Any]) -> str:
    """Return the page of a run."""
    attempts = sum(map(len, summary.by_task.values()))
    rows = [
        ("correct, mean of tasks, with its 95 % interval", summary.accuracy.percent()),
        ("tasks, attempts", f"{len(summary.by_task)}, {attempts}"),
        ("tasks with a correct attempt", str(summary.solved)),
        ("attempts that failed; they count as wrong", str(summary.failed)),
        ("attempts without an answer", str(summary.unanswered)),
        *cost_rows(summary),
    ]
    lines = [f"# {title}", "", *table(("", "result"), rows), "", *settings_section(settings), "", "## Tasks", ""]
    checked = all(group[0].expected is None for group in summary.by_task.values())
    columns = ("task", "correct", "failed checks") if checked else ("task", "expected", "correct", "answers")
    lines += table(columns, [_task_row(task, group, checked) for task, group in summary.by_task.items()])
    every = [attempt for group in summary.by_task.values() for attempt in group]
    return "\n".join([*lines, *reasons_section(every)]) + "\n"


def cost_rows(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the rows of a page on tokens and seconds."""
    attempts = sum(map(len, summary.by_task.values()))
    counts = [*sorted(summary.usage.items()), ("seconds", summary.seconds)]
    return [(f"{name}, in all and per attempt", _per_attempt(count, attempts)) for name, count in counts]


def settings_section(settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of a page on the settings of the run."""
    rows = [(name, _plain(value)) for name, value in settings.items()]
    return ["## Settings", "", *table(("setting", "value"), rows)]


def reasons_section(attempts: Iterable[TaskAttempt]) -> list[str]:
    """Return the lines of a page on why attempts have no answer; none if all have one."""
    reasons = Counter(clip(reason) for attempt in attempts if (reason := attempt.error or attempt.ended))
    if not reasons:
        return []
    rows = [(reason, str(count)) for reason, count in reasons.most_common()]
    return ["", "## Attempts without an answer", "", *table(("reason", "attempts"), rows)]


def _task_row(task: str, group: Sequence[TaskAttempt], checked: bool) -> tuple[str, ...]:
    correct = f"{sum(attempt.correct for attempt in group)}/{len(group)}"
    if not checked:
        return task, str(group[0].expected), correct, _answers(group)
    counts = Counter(check for attempt in group for check in attempt.failed_checks)
    return task, correct, ", ".join(clip(check) + (f" × {n}" if n > 1 else "") for check, n in counts.most_common())


def _answers(group: Sequence[TaskAttempt]) -> str:
    """Return the answers with the most frequent first."""
    counts = Counter("error" if a.error else "none" if a.answer is None else str(a.answer) for a in group)
    return ", ".join(f"{clip(answer, 20)}" + (f" × {n}" if n > 1 else "") for answer, n in counts.most_common())


def _per_attempt(total: float, attempts: int) -> str:
    return f"{total:,.0f}, {total / attempts:,.1f}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
