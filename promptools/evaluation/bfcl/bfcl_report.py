"""The result of a run as figures, and as a page in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptools.errors import clip
from promptools.evaluation.bfcl.bfcl_results import BfclAnswer
from promptools.evaluation.intervals import Interval, share_interval
from promptools.evaluation.tasks.report import settings_section, table


@dataclass(frozen=True, slots=True)
class BfclSummary:
    """The figures of a run; what failed counts as wrong."""

    accuracy: Interval
    """The share of correct answers to all questions, each of which counts the same."""
    by_category: dict[str, Interval]
    answers: Sequence[BfclAnswer]
    usage: dict[str, int]
    seconds: float
    """Of all requests, added up."""

    @property
    def failed(self) -> int:
        """Questions whose requests failed."""
        return sum(bool(answer.error) for answer in self.answers)

    def of(self, category: str) -> list[BfclAnswer]:
        """Return the answers of a category."""
        return [answer for answer in self.answers if answer.category == category]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "accuracy": self.accuracy.to_dict(),
            "categories": {
                name: {**interval.to_dict(), **_counts(self.of(name))} for name, interval in self.by_category.items()
            },
            **_counts(self.answers),
            "mistakes": _mistakes(self.answers),
            "usage": self.usage,
            "seconds": round(self.seconds, 3),
        }


def summarize_answers(answers: Iterable[BfclAnswer], *, seed: int = 0) -> BfclSummary:
    """Return the figures of answers, of which there is at least one; intervals come from drawing questions again."""
    every = list(answers)
    by_category: dict[str, list[float]] = {}
    for answer in every:
        by_category.setdefault(answer.category, []).append(float(answer.correct))
    return BfclSummary(
        accuracy=share_interval([float(answer.correct) for answer in every], seed=seed),
        by_category={name: share_interval(sample, seed=seed) for name, sample in by_category.items()},
        answers=every,
        usage={
            "prompt_tokens": sum(answer.prompt_tokens for answer in every),
            "completion_tokens": sum(answer.completion_tokens for answer in every),
        },
        seconds=sum(answer.seconds for answer in every),
    )


def render_bfcl_report(
    title: str, summary: BfclSummary, settings: Mapping[str, Any], replies: Mapping[str, int]
) -> str:
    """Return the page of a run."""
    count = len(summary.answers)
    rows = [
        ("correct, of all questions, with its 95 % interval", summary.accuracy.percent()),
        ("questions", str(count)),
        ("questions that failed; they count as wrong", str(summary.failed)),
        *((f"{name}, in all and per question", _per_question(n, count)) for name, n in summary.usage.items()),
        ("seconds of requests, in all and per question", _per_question(summary.seconds, count)),
        *((f"replies {name}", str(number)) for name, number in sorted(replies.items())),
    ]
    categories = [
        (name, interval.percent(), f"{sum(answer.correct for answer in group)}/{len(group)}", str(_failed(group)))
        for name, interval in summary.by_category.items()
        for group in [summary.of(name)]
    ]
    lines = [f"# {title}", "", *table(("", "result"), rows), "", "## Categories", ""]
    lines += table(("category", "correct", "questions", "failed"), categories)
    lines += ["", *settings_section(settings)]
    lines += _counted("Wrong answers", "mistake", _mistakes(summary.answers))
    lines += _counted("Failures", "reason", Counter(clip(answer.error) for answer in summary.answers if answer.error))
    return "\n".join(lines) + "\n"


def _counted(title: str, column: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    rows = sorted(counts.items(), key=lambda pair: -pair[1])
    return ["", f"## {title}", "", *table((column, "questions"), [(name, str(n)) for name, n in rows])]


def _per_question(total: float, questions: int) -> str:
    return f"{total:,.0f}, {total / questions:,.1f}"


def _counts(answers: Sequence[BfclAnswer]) -> dict[str, int]:
    correct = sum(answer.correct for answer in answers)
    return {"questions": len(answers), "correct": correct, "failed": _failed(answers)}


def _failed(answers: Sequence[BfclAnswer]) -> int:
    return sum(bool(answer.error) for answer in answers)


def _mistakes(answers: Sequence[BfclAnswer]) -> dict[str, int]:
    return dict(Counter(f"{answer.category}: {answer.mistake}" for answer in answers if answer.mistake))
