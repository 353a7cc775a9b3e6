"""Compute the findings of a discovery from its samples (replies): the figures and the verdict for each tool."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic_core import to_json

from promptools.dialects.reply_markers import reply_markers
from promptools.harmony.tokens import TOKEN_IDS
from promptools.harness.discovery.samples import Sample
from promptools.harness.discovery.verdicts import (
    BASELINE,
    THRESHOLDS,
    ParameterVerdict,
    ToolVerdict,
    call_rate,
    calls_of,
    compared_rates,
    is_called_enough,
    judge_parameters,
    judge_tool,
    main_type,
    parameter_types,
    share,
    suspected_aliases,
    tool_counts,
)
from promptools.harness.evaluation.intervals import Interval
from promptools.parsing.special_tokens import SPECIAL_TOKEN

# Names of tools and of parameters that a reply mentions in words.


_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_LISTED = re.compile(rf"^[ \t]*(?:[-*•+]|[0-9]+[.)])[ \t]+[`*]*({_NAME})[`*]*(?=[ \t]*(?:$|[:(–—,-]))", re.MULTILINE)
"""Matches the first word of a list item if nothing or an explanation follows it: `search` in `- search: finds text`."""
_ALONE = re.compile(rf"(?:^[ \t]*[`*]*{_NAME}[`*]*[ \t]*(?:\n|\Z)){{2,}}", re.MULTILINE)
"""Matches at least two lines of one word each. A single such line, as in the reply `ok`, names no tool."""
_QUOTED = re.compile(rf"`({_NAME})(?:\([^`]*\))?`")
_DOTTED = re.compile(rf"(?<![\w./])({_NAME})(?![\w/])")
_KEY = re.compile(rf'"({_NAME})"\s*:')
_EXTENSIONS = frozenset({"py", "md", "txt", "json", "toml", "yaml", "yml", "js", "ts", "sh", "cfg", "html", "css"})

_WORDS = """
type description properties required items enum default title name parameters object string number
integer boolean array null function additionalproperties arguments example examples optional returns
return schema minimum maximum format none true false int str bool float list dict note
"""
SCHEMA_WORDS = frozenset(_WORDS.split())
"""Words of JSON Schema and of explanations. They are not read as names of tools or parameters."""


def mentioned_tools(text: str, called: Collection[str] = ()) -> set[str]:
    """Return the words that look like names of tools: list items, code, and words with an underscore or a dot.

    Names of special tokens, such as `im_end`, are left out unless they are among the tools `called`.
    """
    alone = (name for lines in _ALONE.findall(text) for name in re.findall(_NAME, lines))
    names = {*_LISTED.findall(text), *alone, *_QUOTED.findall(text)}
    names |= {name for name in _DOTTED.findall(text) if "_" in name.strip("_") or "." in name}
    tokens = reply_markers().special_token_names.union(TOKEN_IDS, SPECIAL_TOKEN.findall(text)).difference(called)
    return {name for name in names if not _is_file(name) and name.lower() not in SCHEMA_WORDS and name not in tokens}


def mentioned_parameters(text: str, tool: str) -> set[str]:
    """Return the words that look like names of parameters in a description of the tool `tool`."""
    names = {*_LISTED.findall(text), *_QUOTED.findall(text), *_KEY.findall(text)}
    own = {tool, *tool.split(".")}
    return {name for name in names if "." not in name and name not in own and name.lower() not in SCHEMA_WORDS}


def _is_file(name: str) -> bool:
    return name.rpartition(".")[2].lower() in _EXTENSIONS


MAX_MENTIONED = 40
"""Maximum number of tools in the findings that were mentioned but never called. A model may mention hundreds of such
tools."""


@dataclass(frozen=True, slots=True)
class ParameterFinding:
    """What was found about a parameter of a tool: how often it is used, and the verdict on it."""

    name: str
    verdict: ParameterVerdict
    alias_of: str | None
    rate: Interval | None
    """The share of the tool's calls that have the parameter."""
    required: bool
    type: str
    types: dict[str, int]
    described: int
    """Number of the model's descriptions of the tool in which the parameter occurs."""


@dataclass(frozen=True, slots=True)
class Lift:
    """Compares how often a tool is called if the request defines it (`defined`) and if not (`baseline`).

    `placement` is the part of the request that defines the tool, such as `system`. The figures are for one kind of
    prompt, or for all prompts if `kind` is empty.
    """

    placement: str
    kind: str
    baseline: Interval
    defined: Interval
    difference: Interval
    ratio: Interval | None
    """`defined` divided by `baseline`; None if the tool was never called in one of the two cases."""


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """What was found about a tool: how often it is called, its parameters, and the verdict on it."""

    name: str
    verdict: ToolVerdict
    alias_of: str | None
    calls: int
    """Number of replies that call the tool, among replies to prompts that neither define nor name the tool."""
    rate: Interval | None
    """Share of replies that call the tool, when intents (tasks for an agent) are sent without tool definitions."""
    by_kind: dict[str, Interval]
    mentions: Interval | None
    """Share of replies that mention the tool when the model is asked to list its tools."""
    forced: Interval | None
    """Share of replies that call the tool when the model is asked to call it."""
    valid_json: Interval | None
    parameters: tuple[ParameterFinding, ...] = ()
    lifts: tuple[Lift, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a discovery, and what was left out of it."""

    settings: dict[str, Any]
    tools: tuple[ToolFinding, ...]
    samples: dict[str, int]
    """The number of replies in each stage."""
    any_call: Interval | None
    """Share of replies that call any tool, when intents (tasks for an agent) are sent without tool definitions."""
    mentioned_only: int
    """Number of names that were mentioned but never called. The most frequent of these are among `tools`."""
    unsampled: dict[str, int] = field(default_factory=dict[str, int])
    """For each stage, the number of questions that were not asked because the budget was spent."""
    skipped: tuple[str, ...] = ()
    """Messages that say which stages or tools were left out of the discovery, and why."""
    failed: dict[str, int] = field(default_factory=dict[str, int])
    requests: int = 0
    tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as a JSON object. Infinite bounds of intervals become null."""
        finite: dict[str, Any] = json.loads(to_json(asdict(self), inf_nan_mode="null"))
        return {**finite, "thresholds": asdict(THRESHOLDS)}

    def of_verdict(self, *verdicts: ToolVerdict) -> list[ToolFinding]:
        """Return the tools whose verdict is one of `verdicts`."""
        return [tool for tool in self.tools if tool.verdict in verdicts]


def tools_to_define(samples: Sequence[Sample]) -> list[str]:
    """Return the names of the tools to define in the last stage: called often enough, and not likely to be aliases."""
    baseline = [sample for sample in samples if sample.stage in BASELINE]
    aliases = suspected_aliases(baseline, samples)
    return [name for name in tool_counts(baseline) if name not in aliases and is_called_enough(name, baseline)]


def find_tools(samples: Sequence[Sample], *, seed: int = 0) -> tuple[list[ToolFinding], int]:
    """Return the tools that the samples call or mention, and how many names were mentioned but never called."""
    baseline = [sample for sample in samples if sample.stage in BASELINE]
    aliases = suspected_aliases(baseline, samples)
    called = list(tool_counts(baseline))
    lists = [mentioned_tools(sample.content, called) for sample in samples if sample.stage == "list"]
    mentions = Counter(name for names in lists for name in names)
    only = [name for name, _ in sorted(mentions.items(), key=lambda item: (-item[1], item[0])) if name not in called]
    names = [*called, *only[:MAX_MENTIONED]]
    tools = [_find_tool(name, aliases.get(name), samples, [name in own for own in lists], seed) for name in names]
    return tools, len(only)


def _find_tool(
    name: str, alias_of: str | None, samples: Sequence[Sample], mentioned: Sequence[bool], seed: int
) -> ToolFinding:
    baseline = [sample for sample in samples if sample.stage in BASELINE]
    intents = [sample for sample in samples if sample.stage == "intent"]
    defined = [sample for sample in samples if sample.stage == "defined"]
    verdict, alias = judge_tool(name, alias_of, baseline, defined)
    calls = calls_of(samples, name)
    kinds = list(dict.fromkeys(sample.kind for sample in intents))
    by_kind = {kind: call_rate([own for own in intents if own.kind == kind], name, seed=seed) for kind in kinds}
    forced = [own.calls_tool(name) for own in samples if own.stage == "forced" and own.subject == name]
    return ToolFinding(
        name,
        verdict,
        alias,
        calls=sum(sample.calls_tool(name) for sample in baseline),
        rate=call_rate(intents, name, seed=seed),
        by_kind={kind: rate for kind, rate in by_kind.items() if rate is not None},
        mentions=share(mentioned, seed=seed),
        forced=share(forced, seed=seed),
        valid_json=share([call.valid_json for call in calls], seed=seed),
        parameters=_parameters(name, samples, seed),
        lifts=_lifts(name, intents, defined, seed),
        description=describe(name, samples),
    )


def _parameters(tool: str, samples: Sequence[Sample], seed: int) -> tuple[ParameterFinding, ...]:
    calls = [call for call in calls_of(samples, tool) if call.valid_json or call.arguments]
    described = Counter(
        name
        for sample in samples
        if sample.stage == "describe" and sample.subject == tool
        for name in mentioned_parameters(sample.content, tool)
    )
    return tuple(
        ParameterFinding(
            name,
            verdict,
            alias,
            rate=(rate := share([name in call.arguments for call in calls], seed=seed)),
            required=verdict == "confirmed" and rate is not None and rate.estimate >= THRESHOLDS.required_rate,
            type=main_type(name, calls),
            types=dict(parameter_types(name, calls)),
            described=described[name],
        )
        for name, (verdict, alias) in judge_parameters(calls, described).items()
    )


def _lifts(name: str, intents: Sequence[Sample], defined: Sequence[Sample], seed: int) -> tuple[Lift, ...]:
    lifts: list[Lift] = []
    for placement in dict.fromkeys(sample.subject for sample in defined):
        placed = [sample for sample in defined if sample.subject == placement]
        for kind in ("", *dict.fromkeys(sample.kind for sample in placed)):
            with_tools = [sample for sample in placed if not kind or sample.kind == kind]
            without = [sample for sample in intents if not kind or sample.kind == kind]
            before, after = call_rate(without, name, seed=seed), call_rate(with_tools, name, seed=seed)
            if before is not None and after is not None:
                compared = compared_rates(with_tools, without, name, seed=seed)
                lifts.append(Lift(placement, kind, before, after, *compared))
    return tuple(lifts)


def describe(name: str, samples: Sequence[Sample]) -> str:
    """Return one line that describes a tool, in the words of the model; empty if there is none.

    It is the first line of the first description that begins with prose, cut off after 200 characters.
    """
    for sample in samples:
        if sample.stage == "describe" and sample.subject == name:
            line = next((own.strip() for own in sample.content.splitlines() if own.strip()), "")
            if len(line) > 20 and line[0].isalpha():
                return line[:200]
    return ""
