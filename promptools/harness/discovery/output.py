"""The output of a discovery: a report in Markdown, plots, and definitions of the tools."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from promptools.errors import UsageError, clip, install_command
from promptools.harness.discovery.findings import Findings, ParameterFinding, ToolFinding
from promptools.harness.discovery.samples import well_formed
from promptools.harness.evaluation.intervals import Interval
from promptools.harness.evaluation.tasks import table
from promptools.json_values import toml_value

# The page of a discovery, in Markdown.


NOTHING = "–"


def render_page(findings: Findings, *, title: str, images: Sequence[str] = ()) -> str:
    """Return the Markdown report of a discovery. It shows `images`, the names of image files in the report's folder."""
    lines = [f"# {title}", "", *_summary(findings), ""]
    for image in images:
        lines += [f"![{image}]({image})", ""]
    lines += ["## Tools", "", *_tools(findings), "", "## Calls by kind of prompt", "", *_by_kind(findings)]
    for tool in findings.of_verdict("confirmed", "alias"):
        lines += ["", f"## Parameters of `{clip(tool.name, 80)}`", "", *_parameters(tool)]
    lines += ["", "## With the tools defined", "", *_lifts(findings)]
    lines += ["", "## What was not sampled", "", *_not_sampled(findings), "", "## Settings", ""]
    lines += table(("setting", "value"), [(name, str(value)) for name, value in findings.settings.items()])
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
    return [*table(heads, rows), *(["", f"{more} other names were mentioned, and never called."] if more > 0 else [])]


def _by_kind(findings: Findings) -> Iterable[str]:
    called = [tool for tool in findings.tools if tool.calls]
    kinds = list(dict.fromkeys(kind for tool in called for kind in tool.by_kind))
    rows = [(f"`{clip(tool.name, 80)}`", *(_percent(tool.by_kind.get(kind)) for kind in kinds)) for tool in called]
    return table(("tool", *kinds), rows) if rows else ["No tool was called."]


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
    return table(("parameter", "verdict", "of calls", "types", "descriptions"), rows) if rows else ["None was seen."]


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
    return table(heads, rows) if rows else ["No tool was called with definitions, or none was defined."]


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


# Plots of a discovery, as PNG and SVG. They are drawn by matplotlib, which is imported only when it is used.


MAX_ROWS = 20
COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2")


def can_draw() -> bool:
    """Return whether plots can be drawn, which needs matplotlib."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise `UsageError` if matplotlib is not installed."""
    if not can_draw():
        raise UsageError(f"plots need matplotlib: {install_command('discover')}")


def draw_plots(findings: Findings, folder: Path) -> list[str]:
    """Draw each plot for which there is data, and write it as PNG and SVG; return the names of the PNG files."""
    require_matplotlib()
    called = [tool for tool in findings.tools if tool.calls and tool.rate is not None][:MAX_ROWS]
    names: list[str] = []
    shown = called or [tool for tool in findings.tools if tool.mentions][:MAX_ROWS]
    if shown:
        names += _draw(folder, "call-rates", lambda axes: _draw_call_rates(axes, shown), len(shown))
    kinds = list(dict.fromkeys(kind for tool in called for kind in tool.by_kind))
    if called and len(kinds) > 1:
        rows = len(called) * (len(kinds) + 1) * 0.5
        names += _draw(folder, "call-rates-by-kind", lambda axes: _draw_by_kind(axes, called, kinds), rows)
    return names


def _draw(folder: Path, name: str, draw: Callable[[Any], None], rows: float) -> list[str]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    library: Any = mpl
    with library.rc_context({"svg.hashsalt": "promptools", "svg.fonttype": "none"}):
        figure: Any = Figure(figsize=(8, 1.2 + 0.4 * rows), layout="constrained")
        axes: Any = figure.add_subplot()
        draw(axes)
        axes.set_xlim(0, 100)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            figure.savefig(folder / f"{name}.{suffix}", dpi=120, metadata=metadata)
    return [f"{name}.png"]


def _draw_call_rates(axes: Any, tools: Sequence[ToolFinding]) -> None:
    """Draw two shares for each tool: how often the model calls it, and how often the model lists it.

    The first is a share of the replies to intents, which are tasks that a user might give an agent. The second is a
    share of the lists that the model writes when asked for its tools.
    """
    for offset, color, label, rates in (
        (-0.15, COLORS[0], "replies to intents that call it", [tool.rate for tool in tools]),
        (0.15, COLORS[1], "lists of tools that mention it", [tool.mentions for tool in tools]),
    ):
        _draw_points(axes, rates, offset, color, label)
    _name_rows(axes, tools)
    axes.set_xlabel("percent, with 95 % interval; no tool is defined")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def _draw_by_kind(axes: Any, tools: Sequence[ToolFinding], kinds: Sequence[str]) -> None:
    step = 0.8 / len(kinds)
    for at, kind in enumerate(kinds):
        rates = [tool.by_kind.get(kind) for tool in tools]
        _draw_points(axes, rates, -0.4 + step * (at + 0.5), COLORS[at % len(COLORS)], clip(kind, 30))
    _name_rows(axes, tools)
    axes.set_xlabel("percent of replies that call it, with 95 % interval")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5)


def _draw_points(axes: Any, rates: Sequence[Interval | None], offset: float, color: str, label: str) -> None:
    rows = [(at + offset, rate) for at, rate in enumerate(rates) if rate is not None]
    if not rows:
        return
    below = [100 * (rate.estimate - rate.low) for _, rate in rows]
    above = [100 * (rate.high - rate.estimate) for _, rate in rows]
    places = [100 * rate.estimate for _, rate in rows]
    axes.errorbar(places, [at for at, _ in rows], xerr=[below, above], fmt="o", color=color, label=label, clip_on=False)


def _name_rows(axes: Any, tools: Sequence[ToolFinding]) -> None:
    names = [clip(tool.name, 40).replace("$", r"\$") for tool in tools]
    axes.set_yticks(range(len(names)), names)


# The confirmed tools, as definitions for requests and as marks for a config.


def definitions(tools: Sequence[ToolFinding]) -> list[dict[str, Any]]:
    """Return the confirmed tools as the `tools` field of a request, with their aliases under `x-promptools`."""
    return [
        {"type": "function", "function": {**definition(tool), "x-promptools": marks(tool, tools)}}
        for tool in tools
        if tool.verdict == "confirmed"
    ]


def definition(tool: ToolFinding) -> dict[str, Any]:
    """Return the definition of a tool: its name, its description and its parameters."""
    used = [own for own in tool.parameters if own.verdict in {"confirmed", "optional"}]
    schema: dict[str, Any] = {"type": "object", "properties": {own.name: _schema(own) for own in used}}
    if required := [own.name for own in used if own.required]:
        schema["required"] = required
    return {"name": tool.name, "description": tool.description, "parameters": schema}


def marks(tool: ToolFinding, tools: Sequence[ToolFinding]) -> dict[str, Any]:
    """Return the marks of a tool: settings that tell promptools which other names the model uses.

    The key `names` lists other names of the tool. The key `aliases` maps other names of the tool's parameters to the
    parameters' real names.
    """
    names = [other.name for other in tools if other.verdict == "alias" and other.alias_of == tool.name]
    aliases = {own.name: own.alias_of for own in tool.parameters if own.verdict == "alias"}
    return {**({"names": names} if names else {}), **({"aliases": aliases} if aliases else {})}


def marks_toml(tools: Sequence[ToolFinding]) -> str:
    """Return the marks of the confirmed tools as tables for a `promptools.toml`."""
    lines: list[str] = []
    for tool in tools:
        if tool.verdict != "confirmed":
            continue
        given = marks(tool, tools)
        lines += [f"[tools.{_quoted(tool.name)}]"]
        if "names" in given:
            lines.append(f"names = [{', '.join(map(_quoted, given['names']))}]")
        if "aliases" in given:
            pairs = (f"{_quoted(name)} = {_quoted(target)}" for name, target in given["aliases"].items())
            lines.append(f"aliases = {{ {', '.join(pairs)} }}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a text as a TOML string; lone surrogates are replaced."""
    return toml_value(well_formed(text))


def _schema(parameter: ParameterFinding) -> dict[str, Any]:
    kinds = parameter.types.keys() - {"null"}
    if kinds <= {"integer", "number"} and kinds:
        return {"type": "number" if "number" in kinds else "integer"}
    array, _, items = parameter.type.partition(" of ")
    if not items:
        return {} if array == "null" else {"type": array}
    return {"type": array, "items": {"type": items.partition(" of ")[0]}}
