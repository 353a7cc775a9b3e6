"""The result of a run on SWE-bench as figures, and as a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from promptools.evaluation.intervals import Interval
from promptools.evaluation.swe.swebench_grading import GradedRun
from promptools.evaluation.tasks import TaskAttempt, summarize
from promptools.evaluation.tasks.report import RunSummary, cost_rows, reasons_section, settings_section, table


@dataclass(frozen=True, slots=True)
class SweSummary:
    """The figures of a run: those of all benchmarks, and what `swebench` says of the patches."""

    run: RunSummary
    attempts: list[TaskAttempt]
    """One for each instance; a correct one resolves it."""
    graded: GradedRun | None

    @property
    def resolved(self) -> Interval | None:
        """The share of all instances that are resolved; those without a patch are not. None before grading."""
        return self.run.accuracy if self.graded else None

    def with_result(self, result: str) -> list[str]:
        """Return the instances with a result."""
        return [attempt.task for attempt in self.attempts if self.result(attempt) == result]

    def result(self, attempt: TaskAttempt) -> str:
        """Return what came of an instance, in one or two words."""
        if attempt.error:
            return "failed"
        if attempt.ended:
            return "no answer"
        if not attempt.text:
            return "no change"
        if self.graded is None:
            return "not graded"
        return "resolved" if attempt.correct else "error" if attempt.task in self.graded.errors else "not resolved"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "resolved": None if self.resolved is None else self.resolved.to_dict(),
            "instances": len(self.attempts),
            "resolved_ids": self.with_result("resolved"),
            "error_ids": self.with_result("error"),
            "patches": sum(bool(attempt.text) for attempt in self.attempts),
            "no_change": len(self.with_result("no change")),
            "unanswered": self.run.unanswered,
            "failed": self.run.failed,
            "usage": self.run.usage,
            "seconds": round(self.run.seconds, 3),
        }


def summarize_swe(attempts: Iterable[TaskAttempt], graded: GradedRun | None) -> SweSummary:
    """Return the figures of attempts; the interval comes from drawing instances again."""
    resolved = graded.resolved if graded else frozenset[str]()
    marked = [replace(attempt, correct=attempt.task in resolved) for attempt in attempts]
    return SweSummary(summarize(marked), marked, graded)


def render_swe_report(title: str, summary: SweSummary, settings: Mapping[str, Any], how_to_grade: str) -> str:
    """Return the page of a run; `how_to_grade` is what to do about patches that are not graded."""
    figures = summary.to_dict()
    resolved = "not graded" if summary.resolved is None else summary.resolved.percent()
    rows = [
        ("resolved, of all instances, with its 95 % interval", resolved),
        ("instances", str(figures["instances"])),
        ("patches", str(figures["patches"])),
        ("answers without a change", str(figures["no_change"])),
        ("runs that ended without an answer", str(figures["unanswered"])),
        ("attempts that failed; they count as not resolved", str(figures["failed"])),
    ]
    if summary.graded is not None:
        rows.append(("patches that could not be applied or tested", str(len(figures["error_ids"]))))
    lines = [f"# {title}", "", *table(("", "result"), rows + cost_rows(summary.run))]
    if summary.graded is None and figures["patches"]:
        lines += ["", how_to_grade]
    lines += ["", *settings_section(settings), "", "## Instances", ""]
    entries = [(attempt.task, summary.result(attempt), _size(attempt.text)) for attempt in summary.attempts]
    lines += table(("instance", "result", "lines of the patch"), entries)
    return "\n".join([*lines, *reasons_section(summary.attempts)]) + "\n"


def _size(patch: str) -> str:
    return f"{patch.count(chr(10))}" if patch else ""
