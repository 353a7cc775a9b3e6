"""From a trial of one case, estimate how long a verification takes, and which cases fit into the given time."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass

from promptools.harness.verification.measuring import SIDES, SideResult
from promptools.harness.verification.scenarios import Ask, Case

_PROMPT_WEIGHT = 0.1
"""The time for a prompt token, divided by the time for a generated token. It is small because servers read many prompt
tokens at the same time."""
_USED = 0.9
"""The share of the given time that a plan uses. The rest is a reserve, since the estimate may be too low."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The cases that should fit into the given time, with the expected requests, tokens and seconds."""

    cases: tuple[Case, ...]
    left_out: int
    """The number of cases that do not fit into the time."""
    requests: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a server, and the sizes of prompts and answers in tokens, as measured."""

    tokens_per_character: float
    completion_tokens: float
    """Mean number of tokens in an answer."""
    seconds: float
    """Seconds for each token that is generated."""


def speed_of(trial: Case, results: Sequence[SideResult]) -> Speed:
    """Return the speed of a server, computed from the results of one case, `trial`.

    If the server reports no token counts, they are estimated.
    """
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
    """Return a plan with cases that should take at most `seconds` in total. They are in the order of `cases`.

    At least one case is planned, even if it takes longer. `known` holds the ids of cases that already have results, and
    therefore take no time.
    """
    chosen: list[Case] = []
    requests, characters, needed, times = 0, 0, 0.0, repeats * len(SIDES)
    for case in cases:
        asks = () if case.id in known else case.asks()
        size = sum(map(_characters, asks))
        weight = size * speed.tokens_per_character * _PROMPT_WEIGHT + len(asks) * speed.completion_tokens
        takes = weight * speed.seconds * times / workers
        if needed and asks and needed + takes > seconds * _USED:
            continue  # a shorter case may fit
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
