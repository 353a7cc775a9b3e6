"""Run the stages of a discovery, one after the other.

1. The intents, which are tasks for an agent, are sent without definitions of tools.
2. The calls in the replies are counted by name.
3. The intents that were answered with calls are sent again, asking for precise arguments.
4. The model is asked to list its tools.
5. The model is asked to call each tool by name.
6. The model is asked to describe each tool in words.
7. The intents are sent with definitions of the tools that are confirmed so far.

The verdicts are based on the samples of all stages together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptools.harness.discovery.findings import Findings, find_tools, tools_to_define
from promptools.harness.discovery.output import definition
from promptools.harness.discovery.questions import (
    INTENTS,
    Intent,
    defined_questions,
    description_questions,
    forced_questions,
    intent_questions,
    list_questions,
    targeted_questions,
)
from promptools.harness.discovery.samples import Sample, Sampler
from promptools.harness.discovery.verdicts import prompt_shares, tool_counts
from promptools.harness.evaluation.intervals import require_numpy, share_interval


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a discovery: what the model is asked, and how many times."""

    intents: Sequence[Intent] = INTENTS
    repeats: int = 4
    """Number of times that each intent is sent without tool definitions. For each place where a request can define
    tools, the intent is then sent the same number of times with definitions."""
    targeted_intents: int = 20
    """Maximum number of intents that are sent again to get precise arguments. Those with the most calls are chosen."""
    question_repeats: int = 5
    """Number of times that each question that asks the model to list, call or describe tools is sent."""
    max_tools: int = 12
    """Maximum number of tools that the model is asked to call and to describe. Those that it called most are chosen."""
    validate: bool = True


@dataclass(slots=True)
class _Run:
    sampler: Sampler
    plan: Plan
    samples: list[Sample] = field(default_factory=list[Sample])
    skipped: list[str] = field(default_factory=list[str])


def discover(sampler: Sampler, plan: Plan, settings: Mapping[str, Any]) -> Findings:
    """Run all stages of a discovery, and return the findings."""
    require_numpy()
    run = _Run(sampler, plan)
    intents = sampler.sample(intent_questions(plan.intents, plan.repeats))
    run.samples += intents
    counts = tool_counts(intents)
    run.samples += sampler.sample(targeted_questions(_called_intents(plan, intents), 1))
    run.samples += sampler.sample(list_questions(plan.question_repeats))
    if len(counts) > plan.max_tools:
        rest = list(counts)[plan.max_tools :]
        run.skipped.append(f"no forced calls and descriptions of {len(rest)} rarer tools: {', '.join(rest[:20])}")
    for name in list(counts)[: plan.max_tools]:
        run.samples += sampler.sample(forced_questions(name, plan.question_repeats))
        run.samples += sampler.sample(description_questions(name, plan.question_repeats))
    _validate(run, intents)
    return _findings(run, settings)


def _called_intents(plan: Plan, samples: Sequence[Sample]) -> list[Intent]:
    """Return at most `targeted_intents` intents that were answered with calls, those with the most calls first."""
    calls = {own.text: sum(bool(s.calls) for s in samples if s.prompt == own.text) for own in plan.intents}
    called = sorted((own for own in plan.intents if calls[own.text]), key=lambda own: -calls[own.text])
    return called[: plan.targeted_intents]


def _validate(run: _Run, intents: Sequence[Sample]) -> None:
    names = tools_to_define(run.samples)
    if not run.plan.validate or not names:
        run.skipped.append("no replies with definitions: " + ("no tool was confirmed" if not names else "as asked"))
        return
    tools = {tool.name: tool for tool in find_tools(run.samples, seed=run.sampler.seed)[0]}
    defined = [{"type": "function", "function": definition(tools[name])} for name in names]
    for placement, options in _placements(intents).items():
        questions = defined_questions(run.plan.intents, run.plan.repeats, defined, placement, options)
        run.samples += run.sampler.sample(questions)


def _placements(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """Return the places where a request can define tools, each mapped to the promptools options that select it.

    In harmony mode, tools can be in the system message or in the developer message. In other modes, they are in the
    request's `tools`.
    """
    if not any(sample.mode == "harmony" for sample in samples):
        return {"request": {}}
    return {place: {"mode": "harmony", "tools_in": place} for place in ("system", "developer")}


def _findings(run: _Run, settings: Mapping[str, Any]) -> Findings:
    sampler = run.sampler
    tools, mentioned_only = find_tools(run.samples, seed=sampler.seed)
    stages = dict.fromkeys(sample.stage for sample in run.samples)
    any_call = prompt_shares([s for s in run.samples if s.stage == "intent"], lambda sample: bool(sample.calls))
    return Findings(
        settings=dict(settings),
        tools=tuple(tools),
        samples={stage: sum(sample.stage == stage for sample in run.samples) for stage in stages},
        any_call=share_interval(any_call, seed=sampler.seed) if any_call else None,
        mentioned_only=mentioned_only,
        unsampled=dict(sampler.unsampled),
        skipped=tuple(run.skipped),
        failed={stage: count for stage, count in sampler.failed.items() if count},
        requests=sampler.budget.requests,
        tokens=sum(sample.tokens for sample in run.samples),
    )
