"""Plots of a discovery, as PNG and SVG; drawn by matplotlib, which is imported on use."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from promptools.discovery.findings import Findings, ToolFinding
from promptools.errors import UsageError, clip
from promptools.harness.evaluation.intervals import Interval

MAX_ROWS = 20
COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2")


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise `UsageError` if matplotlib is not installed."""
    if not can_draw():
        raise UsageError("plots need matplotlib: pip install 'promptools-compat[discover]'")


def draw_plots(findings: Findings, folder: Path) -> list[str]:
    """Write the plots that have anything to show as PNG and SVG; return the names of the PNG files."""
    require_matplotlib()
    called = [tool for tool in findings.tools if tool.calls and tool.rate is not None][:MAX_ROWS]
    names: list[str] = []
    shown = called or [tool for tool in findings.tools if tool.mentions][:MAX_ROWS]
    if shown:
        names += _draw(folder, "call-rates", lambda axes: _call_rates(axes, shown), len(shown))
    kinds = list(dict.fromkeys(kind for tool in called for kind in tool.by_kind))
    if called and len(kinds) > 1:
        rows = len(called) * (len(kinds) + 1) * 0.5
        names += _draw(folder, "call-rates-by-kind", lambda axes: _by_kind(axes, called, kinds), rows)
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


def _call_rates(axes: Any, tools: Sequence[ToolFinding]) -> None:
    """Draw the share of replies that call each tool, and of those to the question for tools that mention it."""
    for offset, color, label, rates in (
        (-0.15, COLORS[0], "replies to intents that call it", [tool.rate for tool in tools]),
        (0.15, COLORS[1], "lists of tools that mention it", [tool.mentions for tool in tools]),
    ):
        _points(axes, rates, offset, color, label)
    _name_rows(axes, tools)
    axes.set_xlabel("percent, with 95 % interval; no tool is defined")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def _by_kind(axes: Any, tools: Sequence[ToolFinding], kinds: Sequence[str]) -> None:
    step = 0.8 / len(kinds)
    for at, kind in enumerate(kinds):
        rates = [tool.by_kind.get(kind) for tool in tools]
        _points(axes, rates, -0.4 + step * (at + 0.5), COLORS[at % len(COLORS)], clip(kind, 30))
    _name_rows(axes, tools)
    axes.set_xlabel("percent of replies that call it, with 95 % interval")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5)


def _points(axes: Any, rates: Sequence[Interval | None], offset: float, color: str, label: str) -> None:
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
