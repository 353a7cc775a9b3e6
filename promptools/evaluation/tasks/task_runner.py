"""Running tasks: several at once, each several times, with what is done kept in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from promptools.errors import UsageError, without_credentials
from promptools.evaluation.tasks.run_log import RunLog, TaskAttempt


class GradedTask(Protocol):
    """A task that knows what a correct attempt is."""

    @property
    def id(self) -> str:
        """What the log calls it."""
        ...

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return an attempt at this task with its grade."""
        ...


TaskT = TypeVar("TaskT", bound=GradedTask)


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of one attempt at a task."""

    text: str
    usage: Mapping[str, object] | None = None
    """The tokens that it took."""
    failed_checks: dict[str, str] = field(default_factory=dict[str, str])
    """Why, for each check that the solver made and that failed."""


Solver: TypeAlias = "Callable[[TaskT, int], Solution]"
"""Gets a task and the number of the repeat, from 0.

It is called in several threads. `Unanswered` is a result; anything else that it raises is the attempt's error.
"""
Progress: TypeAlias = "Callable[[TaskAttempt, int, int], object]"
"""Gets each new attempt, the number of those that are done, and how many there will be."""


class Unanswered(Exception):
    """A solver worked as it should, and there is no answer: the attempt is wrong, and is not made again."""

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
    """Make all attempts that the log does not have, and return all of them, in the order of the tasks.

    An interrupt waits for attempts that are under way, which are recorded, and starts no others.
    """
    if repeats < 1 or workers < 1:
        raise UsageError(f"repeats is {repeats} and workers is {workers}; both must be at least 1")
    wanted = [(task, repeat) for repeat in range(repeats) for task in tasks]
    missing = [(task, repeat) for task, repeat in wanted if not log.is_done(task.id, repeat)]
    done = len(wanted) - len(missing)
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="promptools-task")
    futures = [pool.submit(_attempt, task, repeat, solve) for task, repeat in missing]
    try:
        for future in as_completed(futures):
            done += 1
            attempt = future.result()
            log.record(attempt)
            if progress:
                progress(attempt, done, len(wanted))
    except BaseException:
        _record_rest(pool, futures, log)
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return [log.attempts[task.id, repeat] for task in tasks for repeat in range(repeats)]


def _record_rest(pool: ThreadPoolExecutor, futures: Iterable[Future[TaskAttempt]], log: RunLog) -> None:
    pool.shutdown(cancel_futures=True)
    for future in futures:
        if future.done() and not future.cancelled():
            attempt = future.result()
            if (attempt.task, attempt.repeat) not in log.attempts:
                log.record(attempt)


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
