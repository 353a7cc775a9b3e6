"""How long a run will take, and which cases fit into the given time, estimated from one case that was tried."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass

from promptools.harness.verification.measuring import SIDES, SideResult
from promptools.harness.verification.scenarios import Ask, Case

_PROMPT_WEIGHT = 0.1
"""What a token of a prompt takes, as a share of what a generated one takes: servers read many at once."""
_USED = 0.9
"""The share of the time that is planned: an estimate may be too low."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The expected course of a run."""

    cases: tuple[Case, ...]
    left_out: int
    """Cases for which there is no time."""
    requests: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a server is."""

    tokens_per_character: float
    completion_tokens: float
    """Of an answer."""
    seconds: float
    """For each token that is generated."""


def speed_of(trial: Case, results: Sequence[SideResult]) -> Speed:
    """Return the speed shown by a case on both sides. Where a server reports no tokens, they are estimated."""
    characters = sum(map(_characters, trial.asks())) * len(results)
    prompt = sum(result.prompt_tokens for result in results) or characters / 4
    completion = sum(result.completion_tokens for result in results) or 40 * len(results)
    weight = prompt * _PROMPT_WEIGHT + completion
    seconds = sum(result.seconds for result in results)
    requests = sum(result.requests for result in results)
    return Speed(prompt / characters, completion / requests, seconds / weight)


def plan(
    cases: Sequence[Case], speed: Speed, known: Container[str], *, repeats: int, workers: int, seconds: float
) -> Plan:
    """Return a plan with the first cases that fit into the time, but at least one.

    `known` cases have results already and take no time.
    """
    chosen: list[Case] = []
    requests, characters, needed, times = 0, 0, 0.0, repeats * len(SIDES)
    for case in cases:
        asks = () if case.id in known else case.asks()
        size = sum(map(_characters, asks))
        weight = size * speed.tokens_per_character * _PROMPT_WEIGHT + len(asks) * speed.completion_tokens
        takes = weight * speed.seconds * times / workers
        if needed and asks and needed + takes > seconds * _USED:
            continue  # a shorter one may fit
        chosen.append(case)
        requests, characters, needed = requests + len(asks), characters + size, needed + takes
    return Plan(
        tuple(chosen),
        len(cases) - len(chosen),
        requests * times,
        round(characters * speed.tokens_per_character * times),
        round(requests * speed.completion_tokens * times),
        needed,
    )


def _characters(ask: Ask) -> int:
    return len(json.dumps(ask.body, ensure_ascii=False))
