"""Counts and rates of samples.

The unit of an interval is what was drawn independently. Intents stand for all that users ask: of several replies to one
intent, the rate is the mean of the intents' shares. The questions for names, forced calls and descriptions are fixed:
there each reply, or each call, is a unit of its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from promptools.discovery.samples import CallMade, Sample
from promptools.harness.evaluation.intervals import (
    Interval,
    rate_interval,
    ratio_interval,
    share_difference_interval,
    share_interval,
)

BASELINE = frozenset({"intent", "targeted"})
"""Stages whose prompts neither define nor name a tool."""
PARAMETER_STAGES = frozenset({*BASELINE, "forced"})


def prompt_shares(samples: Iterable[Sample], happened: Callable[[Sample], bool]) -> list[float]:
    """Return for each prompt the share of its samples in which something happened."""
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        outcomes[sample.prompt].append(happened(sample))
    return [sum(own) / len(own) for own in outcomes.values()]


def call_rate(samples: Iterable[Sample], name: str, *, seed: int) -> Interval | None:
    """Return the share of replies that call the tool, as the mean of prompts; None without samples."""
    shares = prompt_shares(samples, lambda sample: sample.calls_tool(name))
    return share_interval(shares, seed=seed) if shares else None


def compared_rates(
    samples: Sequence[Sample], baseline: Sequence[Sample], name: str, *, seed: int
) -> tuple[Interval, Interval | None]:
    """Return by how much, and how many times, the tool is called more often than in the baseline.

    There is no ratio if either never calls it: a ratio of 0 would have no interval.
    """
    shares = [prompt_shares(own, lambda sample: sample.calls_tool(name)) for own in (samples, baseline)]
    ratio = ratio_interval(*shares, seed=seed) if any(shares[0]) else None
    return share_difference_interval(*shares, seed=seed), ratio


def share(outcomes: Sequence[bool], *, seed: int) -> Interval | None:
    """Return the share of true outcomes; None if there are none at all."""
    return rate_interval(sum(outcomes), len(outcomes), seed=seed) if outcomes else None


def tool_counts(samples: Iterable[Sample]) -> Counter[str]:
    """Return by tool in how many samples it is called, the most frequent first."""
    counts = Counter(name for sample in samples for name in {call.name for call in sample.calls})
    return Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))


def calls_of(samples: Iterable[Sample], name: str, stages: frozenset[str] = PARAMETER_STAGES) -> list[CallMade]:
    """Return the calls of a tool in stages that do not define it."""
    return [call for sample in samples if sample.stage in stages for call in sample.calls if call.name == name]


def kind_shares(samples: Iterable[Sample], name: str) -> dict[str, float]:
    """Return for each kind of prompt its share of the samples that call the tool."""
    kinds = Counter(sample.kind for sample in samples if sample.calls_tool(name))
    return {kind: count / kinds.total() for kind, count in kinds.items()}


def schema_shares(calls: Sequence[CallMade]) -> dict[str, float]:
    """Return the share of calls with each parameter, by the words of its name: `line_start` is `start_line`."""
    present = Counter(fold for call in calls for fold in {fold_parameter(name) for name in call.arguments})
    return {fold: count / len(calls) for fold, count in present.items()}


def fold_parameter(name: str) -> str:
    """Return the words of a name in alphabetical order."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return " ".join(sorted(word.lower() for word in words)) or name


def overlap(one: dict[str, float], other: dict[str, float]) -> float:
    """Return how much two sets of shares have in common, from 0 to 1; 1 if both are empty."""
    names = one.keys() | other.keys()
    most = sum(max(one.get(name, 0), other.get(name, 0)) for name in names)
    return sum(min(one.get(name, 0), other.get(name, 0)) for name in names) / most if most else 1.0


def json_type(value: Any) -> str:
    """Return the JSON Schema type of a value; `array of TYPE` if all items have one type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            types = {json_type(item) for item in value}  # pyright: ignore[reportUnknownVariableType]
            return f"array of {types.pop()}" if len(types) == 1 else "array"
        case _:
            return "object"
