"""Render the result of a verification as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from promptools.harness.verification.measuring import Row, SideResult
from promptools.harness.verification.summary import ScenarioSummary, SideSummary, Summary, describe_points

COLUMNS = ("scenario", "cases", "server alone", "through promptools", "difference", "seconds", "tokens", "better")
_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .6rem; vertical-align: top }
tr { border-bottom: 1px solid #8886 } pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 }
.conclusion { font-size: 1.2rem; border-left: 4px solid #4a8; padding-left: 1rem }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
.pair > div { border: 1px solid #8886; padding: .6rem }
"""


def summary_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Return the rows of the table of results: one for each scenario, and a last one for all scenarios together."""
    return [_row(each) for each in (*summary.scenarios, summary.overall)]


def _row(scenario: ScenarioSummary) -> tuple[str, ...]:
    sides = (scenario.alone, scenario.through)
    return (
        scenario.name,
        str(scenario.cases),
        *(f"{side.right}: {side.rate.percent()}" for side in sides),
        describe_points(scenario.difference),
        " / ".join(f"{_per_request(side, side.seconds):.1f}" for side in sides),
        " / ".join(f"{_per_request(side, side.prompt_tokens + side.completion_tokens):,.0f}" for side in sides),
        scenario.verdict,
    )


def _per_request(side: SideSummary, total: float) -> float:
    return total / side.requests


def render_html(summary: Summary, about: Mapping[str, Any]) -> str:
    """Return the HTML page on a verification. `about` holds facts about it, such as the model and the base URL."""
    title = f"{about['model']} at {about['base_url']}"
    facts = ((key, value) for key, value in about.items() if key not in {"model", "base_url"})
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p class=conclusion>{escape(summary.conclusion)}</p>",
        _table(COLUMNS, summary_rows(summary)),
        "<p>Right cases, and the share that was right with its 95 % interval; seconds and tokens are for each request,",
        "server alone / through promptools. What is better is so beyond chance, for all scenarios together.</p>",
        "<h2>Failures</h2>",
        *(_failure(row) for scenario in summary.scenarios for row in scenario.failures),
        "<h2>The run</h2>",
        _table(("", ""), [(key, str(value)) for key, value in facts]),
    ]
    return "\n".join(parts) + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}" for column in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}\n{body}\n</table>"


def _failure(row: Row) -> str:
    return (
        f"<h3>{escape(row.case)}</h3><div class=pair>"
        f"<div>server alone: {_side(row.alone)}</div><div>through promptools: {_side(row.through)}</div></div>"
    )


def _side(result: SideResult) -> str:
    attempts = f"<p>{escape(', '.join(result.attempts))}</p>" if result.attempts else ""
    return f"{escape(result.failure or 'right')}<pre>{escape(result.reply)}</pre>{attempts}"
