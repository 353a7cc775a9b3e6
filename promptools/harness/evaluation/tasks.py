"""Read tasks from files, let a `Solver` solve each task several times, grade the attempts, and report the results."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from promptools.errors import UsageError, clip, without_credentials
from promptools.harness.evaluation.intervals import Interval, share_interval
from promptools.harness.evaluation.resumable_log import ResumableLog
from promptools.harness.evaluation.worker_pool import run_workers
from promptools.json_values import is_array, is_object

# The integer that an answer gives: the last number in its last `\boxed{}`, or else the last number in its text.


BOX = re.compile(r"(?:boxed|framebox)\s*\{")
NUMBER = re.compile(r"((?:(?<![0-9A-Za-z)}\]])[-−])?[0-9](?:[0-9]|,(?=[0-9]{3}(?![0-9])))*)(?:\.([0-9]+))?")
GROUPING = re.compile(r"(?<=[0-9])(?:\{,\}|\\,|\\!|~)+(?=[0-9]{3}(?![0-9]))")
r"""Matches the separators of groups of digits in LaTeX, as in `1{,}024` and `1\,024`."""
MAX_DIGITS = 1000


def boxed_integer(text: str) -> int | None:
    r"""Return the last number in the last `\boxed{}` or `\framebox{}`, or else the last number in the text.

    Return None if the text has no number, or if the number found is not an integer. A box that is not closed was cut
    off, and is ignored.
    """
    content = _last_box(text)
    number = _last_number(content) if content else None
    number = number or _last_number(text)
    if number is None or (number[2] or "").strip("0") or len(number[1]) > MAX_DIGITS:
        return None
    return int(number[1].replace(",", "").replace("−", "-"))


def _last_number(text: str) -> re.Match[str] | None:
    last = None
    for last in NUMBER.finditer(GROUPING.sub("", text)):  # noqa: B007 only the last one counts
        pass
    return last


def _last_box(text: str) -> str | None:
    """Return the content of the last box that is closed; None if there is none."""
    starts = {match.end() for match in BOX.finditer(text)}
    open_braces: list[int] = []
    last = None
    for match in re.finditer(r"\\[{}]|[{}]", text):
        if match[0] == "{":
            open_braces.append(match.end())
        elif match[0] == "}" and open_braces:
            start = open_braces.pop()
            if start in starts and (last is None or start > last[0]):
                last = start, match.start()
    return None if last is None else text[last[0] : last[1]]


# The log of a run: the attempts at its tasks.
#
# When a run that ended early is resumed, only the attempts that failed or are missing in the log are made.


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """A graded attempt at a task."""

    task: str
    repeat: int
    text: str = ""
    answer: int | None = None
    expected: int | None = None
    """The right answer if the task is a question with an integer answer, and None for any other task."""
    correct: bool = False
    usage: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    error: str = ""
    """Why the attempt failed; empty if it did not. A failed attempt is repeated when the run is resumed."""
    ended: str = ""
    """Why there is no answer although no error occurred: for example, the agent reached a limit."""
    failed_checks: dict[str, str] = field(default_factory=dict[str, str])
    """Maps the label of each failed check of the task to the reason why it failed."""


class RunLog(ResumableLog):
    """A log of attempts in a file. If the file exists, the settings recorded in it must equal `settings`."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.attempts: dict[tuple[str, int], TaskAttempt] = {}
        super().__init__(path, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Add an attempt that was read from the file."""
        known = {name.name for name in fields(TaskAttempt)}
        try:
            attempt = TaskAttempt(**{name: value for name, value in row.items() if name in known})
        except TypeError:
            return
        self.attempts[attempt.task, attempt.repeat] = attempt

    def record(self, attempt: TaskAttempt) -> None:
        """Add an attempt, and write it to the file immediately."""
        self.attempts[attempt.task, attempt.repeat] = attempt
        self.write(asdict(attempt))

    def is_done(self, task: str, repeat: int) -> bool:
        """Return whether attempt number `repeat` at a task, counted from 0, was made and ended without an error."""
        attempt = self.attempts.get((task, repeat))
        return attempt is not None and not attempt.error


# Running tasks: several at once, and each task several times. All attempts are kept in a log.


class GradedTask(Protocol):
    """A task that can grade an attempt."""

    @property
    def id(self) -> str:
        """The task's id in the log."""
        ...

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return the attempt with its grade filled in."""
        ...


TaskT = TypeVar("TaskT", bound=GradedTask)


@dataclass(frozen=True, slots=True)
class Solution:
    """The solution of a task, which a solver returns."""

    text: str
    usage: Mapping[str, object] | None = None
    """Number of tokens that the work took, by kind, such as `prompt_tokens`."""
    failed_checks: dict[str, str] = field(default_factory=dict[str, str])
    """Maps the label of each failed check to the reason why it failed. Only some solvers run checks."""


Solver: TypeAlias = "Callable[[TaskT, int], Solution]"
"""A function that solves a task. It gets the task and the number of the repeat, counted from 0.

The function is called in several threads. If it raises `Unanswered`, the attempt is complete, but has no answer. If it
raises any other exception, the attempt has failed, and is repeated when the run is resumed.
"""
Progress: TypeAlias = "Callable[[TaskAttempt, int, int], object]"
"""A function that is called after each attempt, with the attempt, the number of finished attempts, and the total."""


class Unanswered(Exception):
    """Raised by a solver that did its work but has no answer. The attempt counts as wrong, and is not repeated."""

    def __init__(self, message: str, usage: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.usage = usage


def run_tasks(
    tasks: Sequence[TaskT],
    solve: Solver[TaskT],
    log: RunLog,
    *,
    repeats: int = 1,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[TaskAttempt]:
    """Make the attempts that the log lacks or lists as failed; return all attempts, in the order of the tasks.

    Each task is attempted `repeats` times, by `workers` threads. After an interrupt, no further attempts are started;
    attempts in progress are completed and recorded.
    """
    if repeats < 1 or workers < 1:
        raise UsageError(f"repeats is {repeats} and workers is {workers}; both must be at least 1")
    wanted = [(task, repeat) for repeat in range(repeats) for task in tasks]
    missing = [(task, repeat) for task, repeat in wanted if not log.is_done(task.id, repeat)]
    done = count(len(wanted) - len(missing) + 1)

    def show(attempt: TaskAttempt) -> None:
        if progress:
            progress(attempt, next(done), len(wanted))

    run_workers(lambda each: _attempt(*each, solve), missing, log.record, workers=workers, show=show)
    return [log.attempts[task.id, repeat] for task in tasks for repeat in range(repeats)]


def _attempt(task: TaskT, repeat: int, solve: Solver[TaskT]) -> TaskAttempt:
    started = time.monotonic()
    solution, error, ended = Solution(""), "", ""
    try:
        solution = solve(task, repeat)
    except Unanswered as reason:
        solution, ended = Solution("", reason.usage), without_credentials(str(reason))
    except Exception as reason:  # noqa: BLE001 whatever a solver raises, the other attempts go on
        error = without_credentials(f"{type(reason).__name__}: {reason}")
    attempt = TaskAttempt(
        task.id,
        repeat,
        text=solution.text,
        usage={name: count for name, count in (solution.usage or {}).items() if isinstance(count, int)},
        seconds=round(time.monotonic() - started, 3),
        error=error,
        ended=ended,
        failed_checks=solution.failed_checks,
    )
    return task.graded(attempt)


# Files of tasks. A task is a line with a JSON object, an object in the array of a `.json` file, or a table `[[task]]`
# in a `.toml` file.


@dataclass(frozen=True, slots=True)
class Task:
    """A question with its right answer. The `id` is given in the file, or derived from the question."""

    id: str
    question: str
    answer: int

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return an attempt with its grade. The attempt is correct if the integer in its text is the right answer."""
        answer = boxed_integer(attempt.text)
        return replace(attempt, answer=answer, expected=self.answer, correct=answer == self.answer)


def read_tasks(*paths: Path) -> list[Task]:
    """Read files of questions. An entry is `{"question": ..., "answer": ...}`, with or without an `id`.

    Raises `UsageError` for an entry that is not a valid task, and for two tasks with the same id.
    """
    return read_task_files(paths, lambda data, where, _: _read_task(data, where))


def read_task_files(paths: Iterable[Path], read: Callable[[dict[str, Any], str, Path], TaskT]) -> list[TaskT]:
    """Read files of tasks.

    `read` returns the task for an entry. It is called with the entry, with a description of the entry's place for error
    messages, and with the path of the file.

    Raises `UsageError` for two tasks with the same id, and if the files hold no task.
    """
    paths = list(paths)
    tasks: dict[str, TaskT] = {}
    for path in paths:
        for where, data in _read_entries(path):
            task = read(data, where, path)
            if task.id in tasks:
                raise UsageError(f"{where}: there is another task {task.id!r}")
            tasks[task.id] = task
    if not tasks:
        raise UsageError(f"there are no tasks in {', '.join(repr(str(path)) for path in paths)}")
    return list(tasks.values())


def task_id(data: dict[str, Any], text: str) -> str:
    """Return the `id` of an entry, or else an id derived from `text`.

    The derived id does not depend on the entry's position.
    """
    own = data.get("id")
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:12] if own is None else str(own)


def _read_entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error
    if path.suffix == ".toml":
        entries = _toml_entries(path, text)
    else:
        is_array_file = path.suffix == ".json" and text.lstrip().startswith("[")
        entries = _array_entries(path, text) if is_array_file else _json_entries(path, text)
    for where, data in entries:
        if not is_object(data):
            raise UsageError(f"{where}: not an object")
        yield where, data


def _json_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{str(path)!r}, line {number}"
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{where}: not valid JSON: {error}") from error


def _array_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        entries: list[Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r}: not a JSON array: {error}") from error
    for number, entry in enumerate(entries, 1):
        yield f"{str(path)!r}, entry {number}", entry


def _toml_entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    import tomllib

    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r}: not TOML: {error}") from error
    entries = data.pop("task", [])
    if data or not is_array(entries):
        raise UsageError(f"{str(path)!r} must consist of tables [[task]]")
    for number, entry in enumerate(entries, 1):
        yield f"{str(path)!r}, task {number}", entry


def _read_task(data: dict[str, Any], where: str) -> Task:
    question = data.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"{where}: 'question' must be a text")
    return Task(task_id(data, question), question, _read_answer(data.get("answer"), where))


def _read_answer(answer: object, where: str) -> int:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return answer
    if isinstance(answer, str) and len(answer) < 1000:
        digits = answer.strip()
        if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit():
            return int(digits)
    raise UsageError(f"{where}: 'answer' is {clip(repr(answer))}, which is not an integer")


# The result of a run as figures, and as a page in Markdown.


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The results of a run over all its tasks: accuracy, tokens and seconds."""

    accuracy: Interval
    """The mean, over all tasks, of the share of correct attempts. Failed attempts count as wrong."""
    by_task: dict[str, list[TaskAttempt]]
    solved: int
    """Number of tasks with at least one correct attempt."""
    failed: int
    """Number of attempts that failed."""
    unanswered: int
    """Number of attempts that did not fail, but have no answer.

    For example, they ended at a limit, or their text has no integer although the answer must be one."""
    usage: dict[str, int]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
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
    """Return the results of a run from its attempts. The interval is computed by resampling tasks, not attempts."""
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
    """Return the Markdown report on a run."""
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
    """Return the rows about tokens and seconds for a run's report."""
    attempts = sum(map(len, summary.by_task.values()))
    counts = [*sorted(summary.usage.items()), ("seconds", summary.seconds)]
    return [(f"{name}, in all and per attempt", _per_attempt(count, attempts)) for name, count in counts]


def settings_section(settings: Mapping[str, Any]) -> list[str]:
    """Return the lines about a run's settings for the run's report."""
    rows = [(name, _plain(value)) for name, value in settings.items()]
    return ["## Settings", "", *table(("setting", "value"), rows)]


def reasons_section(attempts: Iterable[TaskAttempt]) -> list[str]:
    """Return the report's section that counts the reasons for missing answers; empty if every attempt has an answer."""
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
    """Return the answers to a task in one line, the most frequent first, each with the number of times it was given."""
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
