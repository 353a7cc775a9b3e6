"""Compare two verifications, to see what an update of the server, the model or promptools has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from promptools.errors import UsageError
from promptools.harness.evaluation.intervals import Interval, paired_difference_interval
from promptools.harness.verification.measuring import SIDES, Row, Side, read_row
from promptools.harness.verification.summary import beyond_chance, shares_by_case
from promptools.json_values import is_object, try_json
from promptools.wire.json_body import as_list

ChangeKind: TypeAlias = Literal["gain", "loss", "same"]
ABOUT = ("date", "base_url", "model", "server", "promptools", "settings")
"""Names of facts about a verification run. A comparison shows each of these facts in which the two runs differ."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a verification, as `promptools verify --json` printed it."""

    about: Mapping[str, Any]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """How the results of a scenario changed on one side: with the server alone, or through promptools.

    Only cases that both runs have are compared. `before` and `after` are mean shares of right answers.
    """

    scenario: str
    side: Side
    cases: int
    before: float
    after: float
    difference: Interval
    outcome: ChangeKind
    """`gain` or `loss` if the difference is statistically significant, else `same`."""


def read_run(path: Path) -> Run:
    """Read a file that `promptools verify --json` wrote. Raises `UsageError` for any other file."""
    try:
        data = try_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error
    rows = [read_row(row) for row in as_list(data.get("rows"))] if is_object(data) else []
    if not rows or None in rows:
        raise UsageError(f"{str(path)!r} is not a result of promptools verify --json")
    return Run({key: value for key, value in data.items() if key != "rows"}, tuple(row for row in rows if row))


def compare(before: Run, after: Run) -> list[Change]:
    """Return the changes in each scenario and in all scenarios together, for the cases that both runs have.

    Raises `UsageError` if the scenarios of the runs are different, or if the runs have no case in common.
    """
    if before.about.get("suite") != after.about.get("suite"):
        raise UsageError("the two files have different scenarios: verify both with the same version of promptools")
    shared = {row.case for row in before.rows} & {row.case for row in after.rows}
    if not shared:
        raise UsageError("the two files have no case in common")
    olds, news = ([row for row in run.rows if row.case in shared] for run in (before, after))
    names = list(dict.fromkeys(row.scenario for row in olds))
    changes: list[Change] = []
    for name in names:
        of_name = ([row for row in rows if row.scenario == name] for rows in (olds, news))
        changes += _changes(name, *of_name, scenarios=len(names))
    return [*changes, *_changes("all", olds, news, scenarios=1)]


def _changes(name: str, before: Sequence[Row], after: Sequence[Row], *, scenarios: int) -> Iterator[Change]:
    for side in SIDES:
        olds, news = shares_by_case(before, side), shares_by_case(after, side)
        one, other = list(olds.values()), [news[case] for case in olds]
        yield Change(
            name,
            side,
            len(one),
            sum(one) / len(one),
            sum(other) / len(other),
            paired_difference_interval(other, one),
            _OUTCOMES[beyond_chance(other, one, scenarios * len(SIDES))],
        )


_OUTCOMES: dict[int, ChangeKind] = {1: "gain", -1: "loss", 0: "same"}


def differences(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Return the facts that differ between the runs, each with its name and its two values."""
    pairs = ((key, before.about.get(key), after.about.get(key)) for key in ABOUT)
    return [(key, str(old), str(new)) for key, old, new in pairs if old != new]
