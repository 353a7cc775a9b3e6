"""The summary of a verification: figures for the server alone and for promptools.

Verdicts say which of the two is significantly better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from promptools.harness.evaluation.intervals import CONFIDENCE, Interval, paired_difference_interval, share_interval
from promptools.harness.verification.measuring import Row, Side, SideResult

Verdict: TypeAlias = Literal["promptools", "server alone", "same", "too few cases"]
"""Which side is better beyond chance; `same` if neither is, and `too few cases` if there are fewer than `MIN_CASES`."""
_VERDICTS: dict[int, Verdict] = {1: "promptools", -1: "server alone", 0: "same"}
MARGIN = 0.05
"""The server alone counts as good enough if, with 95 % confidence, promptools is not better by more than this share."""
MAX_FAILURES = 3
MIN_CASES = 6
"""Minimum number of cases for a verdict. Fewer cases cannot rule out chance: even with six coins, all land on the same
side in 3 % of throws."""


@dataclass(frozen=True, slots=True)
class SideSummary:
    """The results of one side (the server alone, or promptools) in a scenario, or in all scenarios together."""

    right: int
    """Number of cases that were entirely right in all repeats."""
    rate: Interval
    """The mean, over all cases, of each case's share of right answers in its repeats."""
    requests: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class ScenarioSummary:
    """The results of both sides in a scenario, or in all scenarios together."""

    name: str
    cases: int
    alone: SideSummary
    through: SideSummary
    difference: Interval
    """The rate through promptools minus the rate of the server alone, with a 95 % interval for this scenario alone."""
    verdict: Verdict
    """Which side is better, judged by an interval that may be wider than the one in `difference`.

    The more scenarios there are, the wider this interval is, so that the verdicts on all scenarios together are right
    with a probability of 95 %."""
    failures: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of a verification: for each scenario, for all scenarios together, and a conclusion in words."""

    scenarios: tuple[ScenarioSummary, ...]
    overall: ScenarioSummary
    conclusion: str


def summarize(rows: Sequence[Row]) -> Summary:
    """Return the summary of a verification from `rows`, the results of its cases; there must be at least one result."""
    by_scenario: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_scenario[row.scenario].append(row)
    scenarios = tuple(_scenario(name, group, len(by_scenario)) for name, group in by_scenario.items())
    overall = _scenario("all", rows, 1)
    return Summary(scenarios, overall, _conclude(scenarios, overall))


def _scenario(name: str, rows: Sequence[Row], family: int) -> ScenarioSummary:
    alone, through = (shares_by_case(rows, side) for side in ("alone", "through"))
    return ScenarioSummary(
        name,
        len(alone),
        _side(alone, [row.alone for row in rows]),
        _side(through, [row.through for row in rows]),
        paired_difference_interval(list(through.values()), list(alone.values())),
        _verdict(list(through.values()), list(alone.values()), family),
        worth_seeing(rows),
    )


def _verdict(through: Sequence[float], alone: Sequence[float], family: int) -> Verdict:
    return "too few cases" if len(through) < MIN_CASES else _VERDICTS[beyond_chance(through, alone, family)]


def shares_by_case(rows: Iterable[Row], side: Side) -> dict[str, float]:
    """Map each case to its mean share of right answers on one side, over all repeats."""
    shares: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        shares[row.case].append((row.alone if side == "alone" else row.through).share)
    return {case: sum(each) / len(each) for case, each in shares.items()}


def _side(shares: Mapping[str, float], results: Sequence[SideResult]) -> SideSummary:
    return SideSummary(
        sum(share == 1 for share in shares.values()),
        share_interval(list(shares.values())),
        sum(result.requests for result in results),
        round(sum(result.seconds for result in results), 3),
        sum(result.prompt_tokens for result in results),
        sum(result.completion_tokens for result in results),
    )


def beyond_chance(shares: Sequence[float], baseline: Sequence[float], family: int) -> int:
    """Return 1 or -1 if the mean of `shares` is significantly higher or lower than the mean of `baseline`, else 0.

    `family` is the number of comparisons that are made together. The probability that any of them is wrong is at most
    5 %. With fewer than `MIN_CASES` cases, the result is 0.
    """
    if len(shares) < MIN_CASES:
        return 0
    wide = paired_difference_interval(shares, baseline, confidence=1 - (1 - CONFIDENCE) / family)
    return (wide.low > 0) - (wide.high < 0)


def worth_seeing(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return up to `MAX_FAILURES` rows with failures, chosen to show different kinds of failures.

    There are three kinds: promptools is worse, promptools is better, and all others. First comes one row of each kind,
    in this order. If there is room, further rows follow, again in the order of the kinds.
    """

    def order(row: Row) -> float:
        difference = row.through.share - row.alone.share
        return 0 if difference < 0 else 1 if difference > 0 else 2

    failed = [row for row in rows if row.alone.failure or row.through.failure]
    kinds: dict[float, list[Row]] = defaultdict(list)
    for row in failed:
        kinds[order(row)].append(row)
    firsts = [group[0] for _, group in sorted(kinds.items())]
    others = [row for row in sorted(failed, key=order) if row not in firsts]
    return tuple((firsts + others)[:MAX_FAILURES])


def _conclude(scenarios: Sequence[ScenarioSummary], overall: ScenarioSummary) -> str:
    """Return the conclusion of a run in words: whether promptools improves the results with this server."""
    better = [each.name for each in scenarios if each.verdict == "promptools"]
    worse = [each.name for each in scenarios if each.verdict == "server alone"]
    measured = f"{describe_points(overall.difference)} over {overall.cases} cases"
    warning = f" The server alone is better at: {', '.join(worse)}." if worse else ""
    if overall.verdict == "server alone":
        except_at = f" promptools is better at: {', '.join(better)}." if better else ""
        return f"The server alone is better: use it ({measured}).{except_at}{warning}"
    if better or overall.verdict == "promptools":
        where = f" It is better at: {', '.join(better)}." if better else ""
        return f"promptools makes a difference here: {measured}.{where}{warning}"
    if overall.verdict == "same" and overall.difference.high <= MARGIN:
        return f"The server alone is as good: use it ({measured}).{warning}"
    return f"No difference was shown ({measured}); more minutes or repeats may show one.{warning}"


def describe_points(difference: Interval) -> str:
    """Describe the difference between two rates in percentage points, with its interval."""
    return f"{100 * difference.estimate:+.1f} points [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


# The JSON form.


def to_dict(summary: Summary, rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verification as a JSON object. `about` holds facts about it, such as the model and the base URL."""
    return {
        **about,
        "conclusion": summary.conclusion,
        "overall": _scenario_dict(summary.overall),
        "scenarios": [_scenario_dict(each) for each in summary.scenarios],
        "rows": [asdict(row) for row in rows],
    }


def _scenario_dict(scenario: ScenarioSummary) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "cases": scenario.cases,
        "alone": _side_dict(scenario.alone),
        "through": _side_dict(scenario.through),
        "difference": scenario.difference.to_dict(),
        "verdict": scenario.verdict,
        "failures": [row.case for row in scenario.failures],
    }


def _side_dict(side: SideSummary) -> dict[str, Any]:
    return {**asdict(side), "rate": side.rate.to_dict()}
