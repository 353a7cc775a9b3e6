"""Replies that come in pieces: the cost of a piece must not grow with what came before."""

from __future__ import annotations

import json

from benchmarks import samples
from benchmarks.table import Row, Table, Target
from benchmarks.timing import best_of, seconds
from promptools import StreamParser

PIECE = 4
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FLAT = Target("at most", 1.5, "<= 1.5x from 1 KB to 1 MB")


def pieces() -> Table:
    """The cost of a 4-character piece from 1 KB to 1 MB, events dropped as they come."""
    rows = []
    for case in ("words", "a string argument", "an array argument", "reasoning"):
        took = {}
        for size in SIZES:
            cut = [text[at : at + PIECE] for text in (_text(case, size),) for at in range(0, size, PIECE)]
            rounds = 3 if size == SIZES[-1] else 5
            took[_name(size)] = best_of({"ours": lambda cut=cut: stream(cut)}, rounds=rounds)["ours"] / len(cut)
        costs = list(took.values())
        ratio = max(costs[1:]) / costs[0]
        shown = {name: seconds(each) for name, each in took.items()}
        rows.append(Row(case, {**shown, "growth": f"{ratio:.2f}x"}, ratio, FLAT, took))
    return Table("pieces", "Streamed in 4-character pieces: the cost of one piece", rows)


def stream(cut: list[str]) -> None:
    parser = StreamParser(samples.TOOLS)
    for piece in cut:
        parser.feed(piece)
    parser.close()


def _text(case: str, size: int) -> str:
    if case == "words":
        return samples.prose(size)
    if case == "reasoning":
        return "<think>" + samples.prose(size - 7)
    if case == "a string argument":
        text = samples.fenced(samples.call("write_file", {"path": "a", "content": samples.code(size * 2)}))
        return text[:size]
    return ('{"tool": "add_rows", "arguments": {"rows": ' + json.dumps(samples.rows(size // 40)))[:size]


def _name(size: int) -> str:
    return f"{size // 1000} KB" if size < 1_000_000 else "1 MB"
