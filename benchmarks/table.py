"""Rows with a target, and their layout as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a row's ratio; `text` describes it."""

    kind: Literal["at least", "at most"]
    bound: float
    text: str

    def met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.kind == "at least" else ratio <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One case: the measurements as shown, and the ratio that a target may bound."""

    case: str
    shown: dict[str, str]
    ratio: float | None = None
    target: Target | None = None
    measured: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Literal["met", "MISSED", ""]:
        if self.target is None or self.ratio is None:
            return ""
        return "met" if self.target.met(self.ratio) else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Table:
    """The result of one benchmark: rows with the same columns."""

    name: str
    title: str
    rows: Sequence[Row]
    chart: str = ""
    """A chart of the figures as an SVG file; empty if there is none."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "rows": [row.to_dict() for row in self.rows]}

    def text(self) -> str:
        """Return the table in aligned columns."""
        columns = list(dict.fromkeys(column for row in self.rows for column in row.shown))
        judged = any(row.target for row in self.rows)
        head = ["", *columns, *(["target", ""] if judged else [])]
        lines = [head]
        for row in self.rows:
            line = [row.case, *(row.shown.get(column, "") for column in columns)]
            lines.append([*line, *([row.target.text if row.target else "", row.verdict] if judged else [])])
        widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
        written = ("  ".join(_cell(at, cell, widths[at]) for at, cell in enumerate(line)).rstrip() for line in lines)
        return f"{self.title}\n" + "".join(f"  {line}\n" for line in written)


def _cell(at: int, cell: str, width: int) -> str:
    return cell.ljust(width) if at == 0 else cell.rjust(width)
