"""Write the last part of docs/reference/matrix.md from the results of the tests against real servers: `make results`.

    python tools/results.py [FILE...]

A file has one JSON object per line, each a `Row`. They are merged into tests/e2e/results.jsonl, from which the part is
generated: a server that is in none of the files keeps its rows, so that a machine without it can update the others.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.models.markdown import write_part

HEAD = """
## Scripted models on real servers

Server, sampling, templates, parsers and errors are real; only the model's words are given. There is a table for each
way in which a server is run here, with the cases that it gets wrong by itself: asked with the official client straight
at it, and through promptools. Where an answer in one piece ("whole") and a streamed one differ, both are there. "By"
has the mode of each request and what came of it ([kinds of failure](modes.md#what-fails-and-what-is-done)); "in raw
mode" has the same request in raw mode alone, where the server renders the prompt and reads nothing: `+` is what the
case wants, and `-` a case that is not for raw mode. The tests compare this part with what they see.

[LM Studio](../servers/lmstudio.md) and [SGLang](../servers/sglang.md) cannot run here and have no table. Their pages
describe documented shapes, which a scripted HTTP server plays in the tests.
"""
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "matrix.md"
TARGET = "results"
KEPT = ROOT / "tests" / "e2e" / "results.jsonl"
WANTED = "+"
MANY = 4
"""If at least this many cases fail in the same way, the page shows them in one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one case on one server."""

    rig: str
    title: str
    """The server, as the section's heading."""
    case: str
    about: str
    """Why the case exists and where it was seen; may be empty."""
    alone: str
    """What the app received from the server alone."""
    same: bool
    """Whether the app received from the server alone what was expected, or at least the same as through promptools."""
    seen: str
    """What the app received through promptools."""
    by: str
    """The attempts through promptools: the mode and the outcome of each."""
    raw: str = ""
    """What the app received in raw mode; `WANTED` if that was as expected, empty if raw mode is not tried with the
    server."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def read(file: Path) -> list[Row]:
    """Read the rows of a file."""
    return [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def merge(kept: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Replace all rows of the rigs that have new rows; return all rows sorted."""
    fresh = set(new)
    rigs = {row.rig for row in fresh}
    return sorted(
        {*(row for row in kept if row.rig not in rigs), *fresh}, key=lambda row: (row.title.lower(), row.case)
    )


def part(rows: Iterable[Row]) -> str:
    """Return the part of the page for sorted rows."""
    return "\n".join(
        [HEAD, *(_section(title, list(section)) for title, section in groupby(rows, key=lambda row: row.title))]
    )


def _section(title: str, rows: list[Row]) -> str:
    has_raw = any(row.raw for row in rows)
    equal = [row for row in rows if row.same and row.raw in {"", "-", WANTED}]
    other = [row for row in rows if row not in equal]
    ways = Counter(_way(row) for row in other)
    single = [_line(_first(row), row.alone, row.seen, *_way(row)[1:]) for row in other if ways[_way(row)] < MANY]
    several = [
        _line(_names(row for row in other if _way(row) == way), way[0], "what the case wants", *way[1:])
        for way, count in sorted(ways.items())
        if count >= MANY
    ]
    columns = ["case", "the server alone", "through promptools", "by", *(["in raw mode"] if has_raw else [])]
    same = _names(equal)
    return "\n".join(
        [
            *(f"### {title}", ""),
            *(_line(*columns), _line(*["---"] * len(columns))),
            *(*several, *single, ""),
            *(
                [f"The same by itself{', and in raw mode if it is for it' if has_raw else ''}: {same}.", ""]
                if same
                else []
            ),
        ]
    )


def _way(row: Row) -> tuple[str, ...]:
    return (row.alone, row.by, *((row.raw,) if row.raw else ()))


def _first(row: Row) -> str:
    return f"{row.case}: {row.about}" if row.about else row.case


def _names(rows: Iterable[Row]) -> str:
    return ", ".join(row.case for row in rows)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(files: Iterable[str]) -> None:
    new = [row for file in files for row in read(Path(file))]
    rows = merge(read(KEPT) if KEPT.exists() else [], new)
    KEPT.write_text("".join(f"{row.to_json()}\n" for row in rows), encoding="utf-8")
    write_part(PAGE, TARGET, part(rows))
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} rows, {len(set(new))} of them new", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
