"""Streamed replies: the cost of a piece must not grow with the text before it."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import samples
from benchmarks.table import Row, Table, Target
from benchmarks.timing import best_of, seconds
from promptools import StreamParser

PIECE = 4
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FLAT = Target("at most", 1.5, "<= 1.5x from 1 KB to 1 MB")


def pieces() -> Table:
    """Measure the cost of a 4-character piece from 1 KB to 1 MB; events are dropped."""
    rows = []
    for case, (text, expect) in _texts().items():
        costs_by_size = {}
        for size in SIZES:
            cut = [text[at : at + PIECE] for at in range(0, size, PIECE)]
            rounds = 3 if size == SIZES[-1] else 5
            job = {"ours": lambda cut=cut, expect=expect: stream(cut, expect)}
            costs_by_size[_name(size)] = best_of(job, rounds=rounds)["ours"] / len(cut)
        costs = list(costs_by_size.values())
        ratio = max(costs[1:]) / costs[0]
        shown = {name: seconds(cost) for name, cost in costs_by_size.items()}
        rows.append(Row(case, {**shown, "growth": f"{ratio:.2f}x"}, ratio, FLAT, costs_by_size))
    return Table("pieces", "Streamed in 4-character pieces: the cost of one piece", rows)


def stream(cut: list[str], expect: str | None = None, accept: Sequence[str] | None = None) -> None:
    parser = StreamParser(samples.TOOLS, expect=expect, accept=accept)
    for piece in cut:
        parser.feed(piece)
    parser.close()


def _texts() -> dict[str, tuple[str, str | None]]:
    """Return replies of more than 1 MB, and the expected dialect."""
    size = SIZES[-1]
    content = {"path": "a", "content": samples.code(size)}
    fenced = samples.fenced(samples.call("write_file", content))
    array = samples.call("add_rows", {"rows": samples.rows(size // 40)})
    return {
        "words": (samples.prose(size), None),
        "reasoning": ("<think>" + samples.prose(size), None),
        "a string argument": (fenced, None),
        "a string argument, asked for": (fenced, "json"),
        "the same in tags, asked for": ("<tool_call>\n" + fenced[8:].replace('"tool"', '"name"', 1), "hermes"),
        "an array argument": (array, None),
    }


def _name(size: int) -> str:
    return f"{size // 1000} KB" if size < 1_000_000 else "1 MB"
