"""The rules for the verdicts on tools and parameters, and all thresholds of the rules.

A tool is
- `confirmed` if it was called in at least `min_calls` replies to at least `min_prompts` prompts that neither define nor
  name it, and is not an alias;
- `alias` of a tool that is called more often (its primary) if the two tools are similar (see below), and if the alias
  vanished when the primary was defined. A tool vanished if its rate in the replies with definitions is at most
  `vanished` times its rate in the replies without definitions, while its primary is still called. If no replies with
  definitions were drawn, it is enough that the two tools are similar;
- `confabulated` if the model listed it when asked for its tools but never called it, and at least `min_baseline`
  replies to prompts that neither define nor name tools were drawn;
- `unconfirmed` in all other cases.

Two tools are similar if two overlaps are large enough. The first compares, for each parameter, the share of calls that
have it; this overlap must be at least `alike_schema`. The second compares, for each kind of prompt, its share of the
calls; this overlap must be at least `alike_kinds`. The overlap of two sets of shares is the sum of the smaller shares
divided by the sum of the larger shares.

A parameter is
- `alias` of another parameter of its tool if that parameter is in at least `alias_factor` times as many calls, both
  parameters have the same most frequent type, and no call has both. If several parameters meet these conditions, the
  one with the most similar name is chosen;
- `confirmed` if it is not an alias, and at least `parameter_rate` of the calls have it;
- `optional` if it is not an alias, and fewer calls have it;
- `confabulated` if it was described, but none of at least `min_calls` calls has it;
- `unconfirmed` if it was described, but the tool was called fewer than `min_calls` times and never with the parameter.

A confirmed parameter is also required if at least `required_rate` of the calls have it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from promptools.harness.discovery.samples import CallMade, Sample
from promptools.harness.evaluation.intervals import (
    Interval,
    rate_interval,
    ratio_interval,
    share_difference_interval,
    share_interval,
)

# Counts and rates of samples.
#
# The unit of an interval is what was drawn independently. Intents are a sample of what users ask. So if there are
# several replies to each intent, the unit is the intent, with the share of its replies. The questions for names, calls
# and descriptions are fixed. So there the unit is a reply or a call.


BASELINE = frozenset({"intent", "targeted"})
"""Stages whose prompts neither define nor name a tool."""
PARAMETER_STAGES = frozenset({*BASELINE, "forced"})


def prompt_shares(samples: Iterable[Sample], happened: Callable[[Sample], bool]) -> list[float]:
    """Return a list with one number per prompt: the share of its samples for which `happened` returns True."""
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        outcomes[sample.prompt].append(happened(sample))
    return [sum(own) / len(own) for own in outcomes.values()]


def call_rate(samples: Iterable[Sample], name: str, *, seed: int) -> Interval | None:
    """Return the share of replies that call the tool `name`, with its interval; None without samples.

    The share is the mean of the shares of all prompts, so that each prompt has the same weight.
    """
    shares = prompt_shares(samples, lambda sample: sample.calls_tool(name))
    return share_interval(shares, seed=seed) if shares else None


def compared_rates(
    samples: Sequence[Sample], baseline: Sequence[Sample], name: str, *, seed: int
) -> tuple[Interval, Interval | None]:
    """Return the call rate of a tool in `samples` minus its rate in `baseline`, and the ratio of the two rates.

    The ratio is None if the tool is never called in `baseline`, or never in `samples`. In the latter case, the ratio
    would be 0, which has no interval.
    """
    shares = [prompt_shares(own, lambda sample: sample.calls_tool(name)) for own in (samples, baseline)]
    ratio = ratio_interval(*shares, seed=seed) if any(shares[0]) else None
    return share_difference_interval(*shares, seed=seed), ratio


def share(outcomes: Sequence[bool], *, seed: int) -> Interval | None:
    """Return the share of true outcomes with its interval; None without outcomes."""
    return rate_interval(sum(outcomes), len(outcomes), seed=seed) if outcomes else None


def tool_counts(samples: Iterable[Sample]) -> Counter[str]:
    """Return, for each tool, the number of samples that call it. The tools with the highest numbers come first."""
    counts = Counter(name for sample in samples for name in {call.name for call in sample.calls})
    return Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))


def calls_of(samples: Iterable[Sample], name: str, stages: frozenset[str] = PARAMETER_STAGES) -> list[CallMade]:
    """Return the calls of a tool in the samples of the given stages.

    By default, these are the stages that prompt the model to make calls without defining tools for it.
    """
    return [call for sample in samples if sample.stage in stages for call in sample.calls if call.name == name]


def kind_shares(samples: Iterable[Sample], name: str) -> dict[str, float]:
    """Return how the samples that call a tool are distributed over the kinds of prompts: the share of each kind."""
    kinds = Counter(sample.kind for sample in samples if sample.calls_tool(name))
    return {kind: count / kinds.total() for kind, count in kinds.items()}


def schema_shares(calls: Sequence[CallMade]) -> dict[str, float]:
    """Return, for each parameter, the share of calls that have it.

    Names that consist of the same words, such as `maxResults` and `max_results`, count as one parameter.
    """
    present = Counter(fold for call in calls for fold in {fold_parameter(name) for name in call.arguments})
    return {fold: count / len(calls) for fold, count in present.items()}


def fold_parameter(name: str) -> str:
    """Return the words of a name, in lower case and alphabetical order: the same for `maxResults` and `results_max`."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return " ".join(sorted(word.lower() for word in words)) or name


def overlap(one: dict[str, float], other: dict[str, float]) -> float:
    """Return the overlap of two sets of shares: the sum of the smaller shares divided by the sum of the larger ones.

    The result is from 0 to 1. It is 1 if both sets are empty.
    """
    names = one.keys() | other.keys()
    most = sum(max(one.get(name, 0), other.get(name, 0)) for name in names)
    return sum(min(one.get(name, 0), other.get(name, 0)) for name in names) / most if most else 1.0


def json_type(value: Any) -> str:
    """Return the JSON Schema type of a value. An array whose items all have the same type is an `array of TYPE`."""
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


# The rules.


ToolVerdict = Literal["confirmed", "alias", "confabulated", "unconfirmed"]
ParameterVerdict = Literal["confirmed", "alias", "optional", "confabulated", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of the rules for verdicts. The docstring of this module explains each of them."""

    min_calls: int = 3
    min_prompts: int = 2
    min_baseline: int = 30
    alike_schema: float = 0.5
    alike_kinds: float = 0.5
    vanished: float = 0.25
    parameter_rate: float = 0.25
    required_rate: float = 0.9
    alias_factor: float = 2.0


THRESHOLDS = Thresholds()


def suspected_aliases(baseline: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, str]:
    """Return the tools that are similar to a tool called more often, each mapped to the name of that other tool."""
    primaries: list[str] = []
    aliases: dict[str, str] = {}
    for name in tool_counts(baseline):
        like = next((primary for primary in primaries if _alike(name, primary, baseline, samples)), None)
        if like is None:
            primaries.append(name)
        else:
            aliases[name] = like
    return aliases


def _alike(name: str, primary: str, baseline: Sequence[Sample], samples: Sequence[Sample]) -> bool:
    schemas = [schema_shares(calls_of(samples, own)) for own in (name, primary)]
    kinds = [kind_shares(baseline, own) for own in (name, primary)]
    return overlap(*schemas) >= THRESHOLDS.alike_schema and overlap(*kinds) >= THRESHOLDS.alike_kinds


def is_called_enough(name: str, baseline: Sequence[Sample]) -> bool:
    """Return whether a tool is called often enough to be confirmed."""
    calling = [sample for sample in baseline if sample.calls_tool(name)]
    prompts = {sample.prompt for sample in calling}
    return len(calling) >= THRESHOLDS.min_calls and len(prompts) >= THRESHOLDS.min_prompts


def judge_tool(
    name: str, alias_of: str | None, baseline: Sequence[Sample], defined: Sequence[Sample]
) -> tuple[ToolVerdict, str | None]:
    """Return the verdict on a tool and, if the verdict is `alias`, the name of the tool that it is an alias of.

    `alias_of` names a similar tool that is called more often, if there is one. `baseline` holds replies to prompts
    without tool definitions, and `defined` holds replies to prompts with tool definitions.
    """
    calls = sum(sample.calls_tool(name) for sample in baseline)
    if alias_of is not None and _vanished(name, alias_of, baseline, defined):
        return "alias", alias_of
    if is_called_enough(name, baseline):
        return "confirmed", None
    if not calls and len(baseline) >= THRESHOLDS.min_baseline:
        return "confabulated", None
    return "unconfirmed", None


def _vanished(name: str, primary: str, baseline: Sequence[Sample], defined: Sequence[Sample]) -> bool:
    if not defined:
        return True
    intents = [sample for sample in baseline if sample.stage == "intent"] or baseline
    before = sum(sample.calls_tool(name) for sample in intents) / len(intents)
    after = sum(sample.calls_tool(name) for sample in defined) / len(defined)
    return after <= THRESHOLDS.vanished * before and any(sample.calls_tool(primary) for sample in defined)


def judge_parameters(
    calls: Sequence[CallMade], described: Mapping[str, int]
) -> dict[str, tuple[ParameterVerdict, str | None]]:
    """Return the verdict on each parameter and, if the verdict is `alias`, the parameter that it is an alias of.

    `calls` are the calls of the tool. `described` says in how many of the model's descriptions of the tool each
    parameter occurs. The parameters that occur in the most calls come first.
    """
    present = Counter(name for call in calls for name in call.arguments)
    verdicts: dict[str, tuple[ParameterVerdict, str | None]] = {}
    for name, count in sorted(present.items(), key=lambda item: (-item[1], item[0])):
        if target := _alias_target(name, present, calls):
            verdicts[name] = "alias", target
        elif count / len(calls) >= THRESHOLDS.parameter_rate:
            verdicts[name] = "confirmed", None
        else:
            verdicts[name] = "optional", None
    known: ParameterVerdict = "confabulated" if len(calls) >= THRESHOLDS.min_calls else "unconfirmed"
    for name in sorted(described.keys() - present.keys(), key=lambda name: (-described[name], name)):
        verdicts[name] = known, None
    return verdicts


def _alias_target(name: str, present: Counter[str], calls: Sequence[CallMade]) -> str | None:
    together = {other for call in calls if name in call.arguments for other in call.arguments}
    targets = [
        other
        for other, count in present.items()
        if other not in together
        and count >= THRESHOLDS.alias_factor * present[name]
        and main_type(other, calls) == main_type(name, calls)
    ]
    return max(
        targets, key=lambda other: (SequenceMatcher(None, name, other).ratio(), present[other], other), default=None
    )


def main_type(name: str, calls: Sequence[CallMade]) -> str:
    """Return the most frequent type of a parameter; `string` if no call has the parameter."""
    types = parameter_types(name, calls)
    return types.most_common(1)[0][0] if types else "string"


def parameter_types(name: str, calls: Sequence[CallMade]) -> Counter[str]:
    """Return how many calls have a value of each JSON type for a parameter, such as `{"string": 5, "null": 1}`."""
    return Counter(json_type(call.arguments[name]) for call in calls if name in call.arguments)
