"""The cost of searching for all dialects, and how the cost of a call in each dialect grows with its size."""

from __future__ import annotations

import json

from benchmarks import samples
from benchmarks.streams import FLAT, PIECE, stream
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Job, best_of, seconds
from promptools import dialects as registry
from promptools import parse
from promptools.types import Call

TWO = ("hermes", "json")
"""The first two dialects that existed, as the baseline."""
WIDER = Target("at most", 1.5, "<= 1.5x of two dialects")
SIZES = (1_000, 100_000, 1_000_000)


def dialects() -> tuple[Table, Table]:
    """Measure all dialects against two, and the cost of a piece of each dialect's own calls from 1 KB to 1 MB."""
    return _against_two(), _growth()


def _against_two() -> Table:
    rows = []
    for case, text in _texts():
        cut = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        jobs: dict[str, Job] = {
            "all": lambda text=text: parse(text, samples.TOOLS),
            "two": lambda text=text: _with_two(text),
            "all, in pieces": lambda cut=cut: stream(cut),
            "two, in pieces": lambda cut=cut: _stream_with_two(cut),
        }
        times = best_of(jobs)
        for suffix in ("", ", in pieces"):
            ratio = times[f"all{suffix}"] / times[f"two{suffix}"]
            shown = {
                "all": seconds(times[f"all{suffix}"]),
                "two": seconds(times[f"two{suffix}"]),
                "ratio": f"{ratio:.2f}x",
            }
            rows.append(Row(f"{case}{suffix}", shown, ratio, WIDER, times))
    return Table("dialects", f"All {len(registry.names())} dialects against {' and '.join(TWO)} alone", rows)


def _growth() -> Table:
    rows = []
    for name in registry.names():
        costs_by_size: dict[str, float] = {}
        for size in SIZES:
            text = _written(name, size)
            cut = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
            job = {"ours": lambda cut=cut, name=name: stream(cut, name)}
            costs_by_size[f"{size // 1000} KB"] = best_of(job, rounds=2 if size == SIZES[-1] else 4)["ours"] / len(cut)
        costs = list(costs_by_size.values())
        ratio = max(costs[1:]) / costs[0]
        shown = {size: seconds(cost) for size, cost in costs_by_size.items()}
        rows.append(Row(name, {**shown, "growth": f"{ratio:.2f}x"}, ratio, FLAT, costs_by_size))
    return Table(
        "dialects_growth", "A string argument in each dialect, in 4-character pieces: the cost of one piece", rows
    )


def _written(name: str, size: int) -> str:
    """Return a call in this dialect, after checking that it is parsed if the dialect is expected.

    Some dialects are parsed only then.
    """
    arguments = {"path": "a.py", "content": samples.code(size)}
    text = registry.get(name).render_calls([Call("c", "write_file", arguments, json.dumps(arguments))])
    assert [call.arguments for call in parse(text, samples.TOOLS, expect=name).calls] == [arguments], name
    return text


def _texts() -> list[tuple[str, str]]:
    call = samples.weather(14)
    tagged = call.replace('"tool"', '"name"', 1)
    return [
        ("words, 20 KB", samples.prose(20_000)),
        ("code, 20 KB", samples.code(20_000)),
        ("fenced call, 490 B", samples.fenced(call)),
        ("tagged call, 490 B", f"<tool_call>\n{tagged}\n</tool_call>"),
        ("bare call after words", f"{samples.prose(180)}\n\n{call}"),
        (
            "string argument, 20 KB",
            samples.fenced(samples.call("write_file", {"path": "a", "content": samples.code(20_000)})),
        ),
    ]


def _with_two(text: str) -> None:
    parse(text, samples.TOOLS, accept=TWO)


def _stream_with_two(cut: list[str]) -> None:
    stream(cut, accept=TWO)
