"""The results of the questions so far: `results.jsonl`, one row per line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from benchmarks.models.ask import Row

RESULTS = Path(__file__).with_name("results.jsonl")

Key = tuple[str, str, str, str]


def key(row: Row) -> Key:
    """Return the key of a row: its model, way and question, and the question's text."""
    return row.model, row.way, row.question, row.digest


def read() -> list[Row]:
    """Return all rows; for each key, only the last."""
    if not RESULTS.exists():
        return []
    rows = (Row(**json.loads(line)) for line in RESULTS.read_text(encoding="utf-8").splitlines())
    return [*{key(row): row for row in rows}.values()]


def add(row: Row) -> None:
    """Append a row at once, so that it is kept whatever happens next."""
    with RESULTS.open("a", encoding="utf-8") as out:
        out.write(_line(row))


def without(model: str, ways: Collection[str]) -> None:
    """Delete the rows of a model in these ways."""
    _write(row for row in read() if row.model != model or row.way not in ways)


def _write(rows: Iterable[Row]) -> None:
    RESULTS.write_text("".join(map(_line, [*rows])), encoding="utf-8")


def _line(row: Row) -> str:
    return json.dumps(row.to_dict(), ensure_ascii=False) + "\n"
