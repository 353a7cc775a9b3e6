"""The page of a discovery, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from promptools.discovery.findings import Findings, ToolFinding
from promptools.errors import clip
from promptools.harness.evaluation.intervals import Interval

NOTHING = "–"


def render_page(findings: Findings, *, title: str, images: Sequence[str] = ()) -> str:
    """Return the page. `images` are the names of plots beside it."""
    lines = [f"# {title}", "", *_summary(findings), ""]
    for image in images:
        lines += [f"![{image}]({image})", ""]
    lines += ["## Tools", "", *_tools(findings), "", "## Calls by kind of prompt", "", *_by_kind(findings)]
    for tool in findings.of_verdict("confirmed", "alias"):
        lines += ["", f"## Parameters of `{clip(tool.name, 80)}`", "", *_parameters(tool)]
    lines += ["", "## With the tools defined", "", *_lifts(findings)]
    lines += ["", "## What was not sampled", "", *_not_sampled(findings), "", "## Settings", ""]
    lines += _table(("setting", "value"), [(name, str(value)) for name, value in findings.settings.items()])
    return "\n".join(lines) + "\n"


def _summary(findings: Findings) -> list[str]:
    counts = ", ".join(f"{count} {stage}" for stage, count in findings.samples.items())
    drawn = f"{sum(findings.samples.values())} replies ({counts}), {findings.tokens:,} tokens."
    called = f"Without any tool defined, {_percent(findings.any_call)} of the replies to intents call a tool."
    intervals = "Intervals are 95 % bootstrap intervals; rates of 0 and 100 % have the exact one-sided 95 % bound."
    return [f"{drawn} {called} {intervals}"]


def _tools(findings: Findings) -> Iterable[str]:
    rows = [
        (
            f"`{clip(tool.name, 80)}`",
            tool.verdict + (f" of `{clip(tool.alias_of, 80)}`" if tool.alias_of else ""),
            str(tool.calls),
            _percent(tool.rate),
            _percent(tool.mentions),
            _percent(tool.forced),
            _percent(tool.valid_json),
        )
        for tool in findings.tools
    ]
    heads = ("tool", "verdict", "calls", "of replies to intents", "mentioned", "called when asked", "valid JSON")
    if not rows:
        return ["None was called or mentioned."]
    more = findings.mentioned_only - sum(not tool.calls for tool in findings.tools)
    return [*_table(heads, rows), *(["", f"{more} other names were mentioned, and never called."] if more > 0 else [])]


def _by_kind(findings: Findings) -> Iterable[str]:
    called = [tool for tool in findings.tools if tool.calls]
    kinds = list(dict.fromkeys(kind for tool in called for kind in tool.by_kind))
    rows = [(f"`{clip(tool.name, 80)}`", *(_percent(tool.by_kind.get(kind)) for kind in kinds)) for tool in called]
    return _table(("tool", *kinds), rows) if rows else ["No tool was called."]


def _parameters(tool: ToolFinding) -> Iterable[str]:
    rows = [
        (
            f"`{clip(own.name, 80)}`",
            ("required" if own.required else own.verdict) + (f" of `{clip(own.alias_of, 80)}`" if own.alias_of else ""),
            _percent(own.rate),
            ", ".join(f"{kind} × {count}" for kind, count in own.types.items()) or NOTHING,
            str(own.described),
        )
        for own in tool.parameters
    ]
    return _table(("parameter", "verdict", "of calls", "types", "descriptions"), rows) if rows else ["None was seen."]


def _lifts(findings: Findings) -> Iterable[str]:
    rows = [
        (
            f"`{clip(tool.name, 80)}`",
            lift.placement,
            lift.kind or "all",
            _percent(lift.baseline),
            _percent(lift.defined),
            _points(lift.difference),
            f"{lift.ratio.estimate:.1f} [{lift.ratio.low:.1f}, {lift.ratio.high:.1f}]" if lift.ratio else NOTHING,
        )
        for tool in findings.tools
        for lift in tool.lifts
        if tool.calls and (lift.baseline.estimate or lift.defined.estimate)
    ]
    heads = ("tool", "defined in", "prompts", "without", "with", "difference in points", "times")
    return _table(heads, rows) if rows else ["No tool was called with definitions, or none was defined."]


def _not_sampled(findings: Findings) -> Iterable[str]:
    lines = [f"- {count} questions of stage `{stage}`: the budget was spent" for stage, count in _n(findings.unsampled)]
    lines += [f"- {count} requests of stage `{stage}` failed" for stage, count in _n(findings.failed)]
    lines += [f"- {' '.join(why.split())}" for why in findings.skipped]
    return lines or ["Everything that was planned was sampled."]


def _n(counts: dict[str, int]) -> Iterable[tuple[str, int]]:
    return ((name, count) for name, count in counts.items() if count)


def _percent(interval: Interval | None) -> str:
    return NOTHING if interval is None else interval.percent()


def _points(difference: Interval) -> str:
    return f"{100 * difference.estimate:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
