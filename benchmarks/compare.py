"""Compare the benchmarks of two checkouts in one table: `python -m benchmarks.compare BEFORE.json AFTER.json`.

The files are what `make bench ARGS=--json` printed in each checkout. A row is compared with the row of the same case.
Rows that only one file has are counted below the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import seconds

OURS = ("ours", "all", "ours, text", "ours, ids", "ms", "MB")
"""The names that the figure of promptools may have in a row. The first that the row has is compared; if it has none,
its last figure, which is for the largest size."""
PLAIN_UNITS = ("ms", "MB")

Rows = dict[tuple[str, str], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    print("\n".join(compare(_rows(options.before), _rows(options.after))))


def compare(before: Rows, after: Rows) -> Iterator[str]:
    """Yield the lines of the table, in Markdown."""
    yield "| benchmark | case | before | after | time | ratio before | ratio after | target |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, case in after:
        if (name, case) in before:
            yield f"| {name} | {case.replace('|', '&#124;')} | {_cells(before[name, case], after[name, case])} |"
    yield ""
    yield f"Only before: {len(before.keys() - after.keys())} rows; only after: {len(after.keys() - before.keys())}."


def _cells(before: dict[str, Any], after: dict[str, Any]) -> str:
    figures = [_figure(row) for row in (before, after)]
    target = f"{after['target']['text']}: {after['verdict']}" if after["target"] else ""
    change = f"{figures[1][1] / figures[0][1]:.2f}x" if all(value for _, value in figures) else ""
    ratios = [f"{row['ratio']:.2f}" if row["ratio"] is not None else "" for row in (before, after)]
    return " | ".join([*(_shown(*figure) for figure in figures), change, *ratios, target])


def _figure(row: dict[str, Any]) -> tuple[str, float]:
    """Return the name and the value of the figure in a row that measures promptools."""
    measured: dict[str, float] = row["measured"]
    name = next((name for name in OURS if name in measured), next(reversed(measured), ""))
    return name, measured.get(name, 0.0)


def _shown(name: str, value: float) -> str:
    if not value:
        return ""
    return f"{value:.3g} {name}" if name in PLAIN_UNITS else seconds(value)


def _rows(path: Path) -> Rows:
    document = json.loads(path.read_text(encoding="utf-8"))
    return {(table["name"], row["case"]): row for table in document["tables"] for row in table["rows"]}


if __name__ == "__main__":
    main()
