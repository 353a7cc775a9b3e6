"""Run the cases on both sides (the server alone, and through promptools) within a given time; log the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from promptools.errors import clip
from promptools.harness.evaluation.resumable_log import ResumableLog
from promptools.harness.evaluation.worker_pool import run_workers
from promptools.harness.verification.asking import Asked, Asker, shown
from promptools.harness.verification.scenarios import Case
from promptools.json_values import is_object

Side: TypeAlias = Literal["alone", "through"]
"""How a case is run: on the server alone, or through promptools."""
SIDES: tuple[Side, ...] = get_args(Side)
_MAX_SHOWN = 2_000
_TRIES = 3
"""Number of times that the OpenAI SDK sends a request that times out. All these tries together must not outlast the
run."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """The result of a case on one side: with the server alone, or through promptools."""

    share: float
    failure: str
    reply: str
    """The text of the first wrong answer, or else of the last answer."""
    requests: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    attempts: tuple[str, ...] = ()
    """Mode and outcome of each request to the server that led to the answer in `reply`. Empty for the server alone."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a case on both sides: with the server alone, and through promptools."""

    case: str
    scenario: str
    repeat: int
    alone: SideResult
    through: SideResult


def run_case(case: Case, asker: Asker, timeout: Callable[[], float]) -> SideResult:
    """Run a case with one client. `timeout` is called before each request; it returns the timeout in seconds."""
    asked: list[Asked] = []
    steps = case.start()
    ask = next(steps)
    try:
        while True:
            asked.append(asker.ask(ask.body, timeout()))
            ask = steps.send(asked[-1].answer)
    except StopIteration as stop:
        outcome = stop.value
    worth = next((one for one in asked if one.answer is outcome.answer), asked[-1])
    return SideResult(
        outcome.share,
        asker.mask.text(outcome.failure),
        clip(asker.mask.text(shown(worth.answer)), _MAX_SHOWN),
        len(asked),
        round(sum(one.seconds for one in asked), 3),
        sum(one.prompt_tokens for one in asked),
        sum(one.completion_tokens for one in asked),
        worth.attempts,
    )


def measure(
    cases: Sequence[Case],
    askers: Mapping[Side, Asker],
    log: VerificationLog,
    *,
    repeats: int,
    workers: int,
    timeout: float,
    seconds: float,
    progress: Callable[[Row, int, int], object],
    now: Callable[[], float] = time.monotonic,
) -> list[Row]:
    """Run each case that has no result in the log, on both sides; return the results of all cases.

    A case that is still running after `seconds` has no result. The two sides take turns in going first, because the
    server may cache the beginning of a prompt, which makes the second side faster. After an interrupt, cases in
    progress are completed and recorded.
    """
    wanted = [(case, repeat) for repeat in range(repeats) for case in cases]
    missing = [(number, case, repeat) for number, (case, repeat) in enumerate(wanted)
               if (case.id, repeat) not in log.rows]  # fmt: skip
    deadline = now() + seconds

    def left() -> float:
        return deadline - now()

    def run(each: tuple[int, Case, int]) -> Row | None:
        number, case, repeat = each
        order = SIDES if number % 2 else SIDES[::-1]
        results = _run_sides(case, {side: askers[side] for side in order}, timeout, left)
        return None if results is None else Row(case.id, case.scenario, repeat, results["alone"], results["through"])

    def record(row: Row | None) -> None:
        if row is not None:
            log.record(row)

    def show(row: Row | None) -> None:
        if row is not None:
            progress(row, len(log.rows), len(wanted))

    run_workers(run, missing, record, workers=workers, show=show)
    return [log.rows[case.id, repeat] for case, repeat in wanted if (case.id, repeat) in log.rows]


def _run_sides(
    case: Case, askers: Mapping[Side, Asker], timeout: float, left: Callable[[], float]
) -> dict[Side, SideResult] | None:
    """Run a case on one side and then on the other; return both results.

    Return None if the time runs out, because the result of a request that was cut short would prove nothing.
    """
    results: dict[Side, SideResult] = {}
    for side, asker in askers.items():
        if left() <= 0:
            return None
        results[side] = run_case(case, asker, lambda: min(timeout, max(left() / _TRIES, 1.0)))
    return None if left() <= 0 else results


class VerificationLog(ResumableLog):
    """A log of the results of cases. If `path` is given, they are also written to this file, to resume a run later."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.rows: dict[tuple[str, int], Row] = {}
        super().__init__(path, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Add a row that was read from the file."""
        read = read_row(row)
        if read is not None:
            self.rows[read.case, read.repeat] = read

    def record(self, row: Row) -> None:
        """Add a row, and write it to the file immediately, if the log has a file."""
        self.rows[row.case, row.repeat] = row
        self.write(asdict(row))


def read_row(data: Any) -> Row | None:
    """Return a `Row` from its JSON form; None if `data` is not the JSON form of a row."""
    try:
        sides = {side: _read_side(data[side]) for side in SIDES}
        return Row(str(data["case"]), str(data["scenario"]), int(data["repeat"]), **sides)
    except (KeyError, TypeError, ValueError):
        return None


def _read_side(data: Any) -> SideResult:
    if not is_object(data):
        raise TypeError("a side is an object")
    values: dict[str, Any] = {each.name: data[each.name] for each in fields(SideResult)}
    values["attempts"] = tuple(values["attempts"])
    return SideResult(**values)
