"""Adversarial text: the cost per character must be near the cost in a plain loop, and must not grow with the length."""

from __future__ import annotations

from benchmarks import samples
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Job, best_of
from promptools import parse

SIZES = (10_000, 100_000, 1_000_000)
LOOP = Target("at most", 20, "<= 20x a for loop at 100 KB")
FLAT = Target("at most", 1.5, "<= 1.5x from 10 KB to 1 MB")

UNITS = {
    "braces": "{",
    "brackets": "[",
    "both": "[{",
    "closed braces": "{}",
    "braces on lines": "{\n",
    "keys that open": '{"',
    "less-than": "<",
    "backticks": "`",
    "backticks and braces": "`{",
    "tildes": "~~~",
    "quotes": '"',
    "quotes before brackets": '"[',
    "escaped quotes": '"{\\"',
    "single quotes": "'",
    "openers": "<tool_call>",
    "openers with a brace": "<tool_call>{",
    "openers of a body": '<tool_call>\n{"name": "write_file", "arguments": {"path": "',
    "envelopes": '{"tool":',
    "nested arrays": '{"tool": "add_rows", "arguments": {"rows": [',
    "fences": "```json\n",
    "thoughts": "<think>",
    "closers": "</tool_call>",
    "spaces": " ",
    "lines": "\n",
    "functions": "<function=",
    "functions of a body": "<tool_call>\n<function=write_file>\n<parameter=content>\n",
    "parameters that end": "</parameter>",
    "invocations": '<invoke name="write_file">',
    "keys of GLM": "<tool_call>write_file<arg_key>",
    "brackets of Mistral": "[TOOL_CALLS]",
    "names of Mistral": "[TOOL_CALLS]write_file[ARGS]{",
    "sentinels of Kimi": "<|tool_call_begin|>",
    "sentinels of DeepSeek": "<｜tool▁call▁begin｜>",
    "tags of DeepSeek": "<｜DSML｜",
    "names on lines": "write_file\n",
    "calls on lines": "write_file(",
    "braces of names on lines": "write_file{\n",
    "lists of calls": "[write_file(",
    "tags of tools": "<write_file>\n",
    "labels": "Action: write_file\n",
    "prompts": ">>>write_file\n",
    "functools": "functools[{",
}


def adversarial() -> tuple[Table, Table]:
    """Measure the cost of a character, compared with a plain loop and with the same text at other sizes."""
    against, growth = [], []
    for case, unit in UNITS.items():
        name = f"{case}: {unit[:14]!r}"
        times = {size: _best((unit * (size // len(unit) + 1))[:size]) for size in SIZES}
        costs = [best["ours"] / best["loop"] for best in times.values()]
        shown = {_size(size): f"{cost:.1f}x" for size, cost in zip(times, costs, strict=True)}
        ratio, grown = costs[1], max(costs[1:]) / costs[0]
        spent = {who: f"{time * 1e9:.3g} ns" for who, time in times[SIZES[1]].items()}
        against.append(Row(name, {**spent, "ratio": f"{ratio:.1f}x"}, ratio, LOOP, times[SIZES[1]]))
        growth.append(
            Row(name, {**shown, "growth": f"{grown:.2f}x"}, grown, FLAT, dict(zip(shown, costs, strict=True)))
        )
    return (
        Table("hostile", "Hostile text of 100 KB: the cost of a character, against a plain for loop", against),
        Table("hostile_growth", "Hostile text: the cost of a character, in plain loops, from 10 KB to 1 MB", growth),
    )


def _best(text: str) -> dict[str, float]:
    """Return the seconds per character of the parser and of a plain loop."""
    jobs: dict[str, Job] = {"ours": lambda: parse(text, samples.TOOLS), "loop": lambda: walk(text)}
    best = best_of(jobs, rounds=3 if len(text) == SIZES[-1] else 5)
    return {name: time / len(text) for name, time in best.items()}


def _size(size: int) -> str:
    return f"{size // 1000} KB" if size < 1_000_000 else "1 MB"


def walk(text: str) -> None:
    for _ in text:
        pass
