"""From a seed to an input: a reply of a dialect, its damage, its cuts and the options it is read with."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fuzz.grammar import Sample, sample
from fuzz.inputs import ReplyInput
from fuzz.mutations import mutate
from promptools import dialects

DIALECTS = tuple(dialects.BUILT_IN)


def make(seed: str, dialect: str, *, tables: bool = True) -> ReplyInput:
    """Return the input of a seed; without the tables of cases it stays the same when they grow."""
    random = Random(f"{seed} {dialect}")
    made = sample(random, dialect, tables=tables)
    options, finish_reason = _options(random, dialect), _finish_reason(random)
    damaged = (made.text, "none", ()) if random.random() < 0.2 else mutate(random, made.text)
    text, damage, mutations = damaged
    tools = random.choice((None, [])) if random.random() < 0.03 else made.tools
    if damage == "none" and made.plain and tools == made.tools and _ordinary(made, dialect):
        mutations = ("whole",)
    places = sorted(random.randrange(len(text) + 1) for _ in range(random.choice((1, 2, 3, 6))))
    return ReplyInput(
        text,
        dialect,
        tools,
        options,
        finish_reason,
        tuple(places),
        made.calls,
        damage,
        mutations,  # type: ignore[arg-type]
    )


def _ordinary(made: Sample, dialect: str) -> bool:
    """Return whether the dialect can say these calls at all: without types of its own not each value can be told."""
    return bool(made.calls) and dialects.get(dialect).typed and "envelope" not in json.dumps(made.calls)


def _options(random: Random, dialect: str) -> dict[str, Any]:
    kind = random.random()
    if kind < 0.5:
        return {"expect": dialect}
    if kind < 0.7:
        return {}
    if kind < 0.75:
        return {"dialect": dialect, "expect": dialect}
    chances: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("expect", (dialect, *DIALECTS)),
        ("strictness", ("strict", "lenient", "lenient")),
        ("in_reasoning", (True,)),
        ("json_answer", (True,)),
        ("rescue", (True, False)),
    )
    return {key: random.choice(choices) for key, choices in chances if random.random() < 0.35}


def _finish_reason(random: Random) -> str | None:
    return random.choice((None, None, "stop", "stop", "length", "tool_calls"))
