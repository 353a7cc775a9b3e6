"""Run the benchmarks: `make bench`, or in the environment `bench`, `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Table

GROUPS = {
    "small": "parsing",
    "long_string": "parsing",
    "array": "parsing",
    "broken": "parsing",
    "pieces": "streams",
    "hostile": "hostile",
    "dialects": "dialects",
    "imports": "footprint",
    "start": "start",
    "memory": "footprint",
    "harmony_render": "harmony",
    "harmony_parse": "harmony",
    "tools": "tools",
    "tool_tokens": "tool_tokens",
    "exchanges": "exchanges",
    "real": "real",
    "raw_mode": "raw_mode",
    "proxy": "proxy",
    "slices": "slices",
    "batch": "batch",
    "scale": "scale.measuring",
}
"""Benchmarks and their modules, in the order in which they run."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(GROUPS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("--charts", type=Path, metavar="DIR", help="write the charts there are, as NAME.svg")
    parser.add_argument("--replies", nargs="+", type=int, metavar="N", default=[],
                        help="sizes of the files of `batch`, smallest first (default: 10000 100000)")  # fmt: skip
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in GROUPS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(GROUPS)}")
    if importlib.util.find_spec("baml_py") is None:
        parser.exit(2, "The other libraries are not in this environment: run `make bench`, which makes one for them.\n")
    tables: list[Table] = []
    for table in _tables(asked.names or list(GROUPS), {"batch": asked.replies}):
        tables.append(table)
        if not asked.json:
            print(table.text(), flush=True)
        if asked.charts and table.chart:
            asked.charts.mkdir(parents=True, exist_ok=True)
            (asked.charts / f"{table.name}.svg").write_text(table.chart, encoding="utf-8")
    missed = [f"{table.name}: {row.case}" for table in tables for row in table.rows if row.verdict == "MISSED"]
    judged = sum(1 for table in tables for row in table.rows if row.verdict)
    if asked.json:
        print(
            json.dumps(
                {"machine": _machine(), "tables": [table.to_dict() for table in tables], "missed": missed}, indent=1
            )
        )
        return
    print(f"{judged - len(missed)} of {judged} targets met, {_machine()}")
    for case in missed:
        print(f"  missed  {case}")


def _tables(names: list[str], sizes: dict[str, list[int]]) -> Iterator[Table]:
    for name in names:
        print(f"... {name}", end="\r", file=sys.stderr, flush=True)
        benchmark = getattr(importlib.import_module(f"benchmarks.{GROUPS[name]}"), name)
        made = benchmark(*([sizes[name]] if name in sizes else []))
        yield from (made,) if isinstance(made, Table) else made


def _machine() -> str:
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"


if __name__ == "__main__":
    main()
