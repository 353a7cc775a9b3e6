"""What tools cost in tokens: defined once in the prompt, or added to every turn of a conversation.

python -m benchmarks.tool_tokens docs/img/tool-tokens.svg     draws the figure of docs/benchmarks.md
"""

from __future__ import annotations

import json
import sys
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from benchmarks import trajectory, vocabulary
from benchmarks.figure import chart
from benchmarks.table import Row, Table
from promptools import Tools, dialects
from promptools.harmony.convert import Options, ToolsIn, convert
from promptools.harmony.count import Measure, count, exact
from promptools.harmony.render import render
from promptools.harmony.vocabulary import load_encode

SHOWN = (1, 10, 25, 50, 100)
TURNS = SHOWN[-1]


class Turn(NamedTuple):
    """Tokens after a turn."""

    conversation: int
    """All that was said, without tools."""
    once: int
    """The same with the tools defined once: what Harmony holds, and what the model reads."""
    repeated: int
    """The same with the tools, as Harmony writes them, for each request so far."""
    every: int
    """The same with the tools' JSON for each request so far: an estimate of Chat Completions."""
    read: int
    """What the model read in all requests so far, each with its whole prompt, the tools once in each."""


def tool_tokens() -> tuple[Table, ...]:
    """Count the tools, and a conversation with them."""
    if why_not := vocabulary.why_not():
        print(f"!!! no figures: {why_not}", file=sys.stderr, flush=True)
        return (Table("tool_tokens", "Tokens of tools", [Row(f"not counted: {why_not}", {})]),)
    said = turns()
    growth = [
        Row(
            f"{at} turns" if at > 1 else "1 turn",
            {
                "without tools": f"{said[at].conversation:,}",
                "tools once": f"{said[at].once:,}",
                "in every turn": f"{said[at].repeated:,}",
                "in every turn, as JSON": f"{said[at].every:,}",
                "ratio": f"{said[at].every / said[at].once:.2f}x",
                "read in all turns": f"{said[at].read:,}",
                "of that, tools": f"{at * (said[at].once - said[at].conversation):,}",
            },
            measured={key: float(value) for key, value in said[at]._asdict().items()},
        )
        for at in SHOWN
    ]
    costs = [Row(what, {"tokens": f"{tokens:,}"}, measured={"tokens": tokens}) for what, tokens in declared().items()]
    return (
        Table("declared", "Six tools, declared once: what they add to a prompt", costs),
        Table("tool_tokens", "A conversation with these tools", growth),
    )


@cache
def measure() -> Measure:
    return exact(load_encode())


def declared() -> dict[str, int]:
    """Give the tokens that the tools add, by the way in which they are told."""
    tools = Tools(trajectory.TOOLS)
    bare = _whole("developer", tools=False)
    return {
        "Harmony, developer message": _whole("developer") - bare,
        "Harmony, system message": _whole("system") - bare,
        "JSON, as a Chat Completions request holds them": measure()(json.dumps(trajectory.TOOLS)),
        **{f"prompt mode, {name}": measure()(dialects.get(name).render_tools(tools)) for name in ("json", "hermes")},
    }


def _whole(tools_in: ToolsIn, *, tools: bool = True) -> int:
    offered = Tools(trajectory.TOOLS if tools else [])
    said = convert(trajectory.messages(0), offered, options=Options(tools_in=tools_in))
    return sum(part.tokens for part in count(render(said.messages), measure()))


def turns() -> list[Turn]:
    """Count the conversation after 0, 1, ... turns; a turn is a thought, a call and its result."""
    said = convert(trajectory.messages(TURNS), options=Options(thoughts="keep"))
    *parts, reply = (part.tokens for part in count(render(said.messages), measure()))
    head, rest = sum(parts[: -3 * TURNS]), parts[-3 * TURNS :]
    sizes = list(accumulate((sum(rest[at : at + 3]) for at in range(0, len(rest), 3)), initial=head))
    once, every = declared()["Harmony, system message"], declared()["JSON, as a Chat Completions request holds them"]
    asked = accumulate((size + once + reply for size in sizes[:-1]), initial=0)
    return [
        Turn(size, size + once, size + at * once, size + at * every, read)
        for at, (size, read) in enumerate(zip(sizes, asked, strict=True))
    ]


def figure() -> str:
    """Draw what grows."""
    said = list(enumerate(turns()))
    lines = {
        "in every turn, as JSON": [(at, turn.every) for at, turn in said],
        "in every turn, as in Harmony": [(at, turn.repeated) for at, turn in said],
        "once": [(at, turn.once) for at, turn in said],
    }
    return chart("Tokens of a conversation with six tools that are told ...", "turns with a call", "tokens", lines)


if __name__ == "__main__":
    if missing := vocabulary.why_not():
        sys.exit(missing)
    Path(sys.argv[1]).write_text(figure(), encoding="utf-8")
