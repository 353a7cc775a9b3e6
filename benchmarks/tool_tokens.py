"""The cost of tools in tokens: declared once in the prompt, or again in every turn of a conversation.

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
from promptools.harmony.bpe_vocabulary import load_encode
from promptools.harmony.conversation import Options, ToolPlacement, convert
from promptools.harmony.renderer import TokenCounter, count_messages, exact_counter, render_messages

SHOWN = (1, 10, 25, 50, 100)
TURNS = SHOWN[-1]


class Turn(NamedTuple):
    """Token counts after a turn."""

    conversation: int
    """The messages, without tools."""
    once: int
    """The messages, with the tools declared once: the Harmony conversation, as the model reads it."""
    repeated: int
    """The messages, with the tools in Harmony's form once for each request so far."""
    every: int
    """The messages, with the tools as JSON once for each request so far: an estimate for Chat Completions."""
    read: int
    """All tokens that the model read in the requests so far. Each request has its whole prompt, with the tools once."""


def tool_tokens() -> tuple[Table, ...]:
    """Count the tokens of the tools, and of a conversation with them."""
    if why_not := vocabulary.why_not():
        print(f"!!! no figures: {why_not}", file=sys.stderr, flush=True)
        return (Table("tool_tokens", "Tokens of tools", [Row(f"not counted: {why_not}", {})]),)
    counted = turns()
    growth = [
        Row(
            f"{at} turns" if at > 1 else "1 turn",
            {
                "without tools": f"{counted[at].conversation:,}",
                "tools once": f"{counted[at].once:,}",
                "in every turn": f"{counted[at].repeated:,}",
                "in every turn, as JSON": f"{counted[at].every:,}",
                "ratio": f"{counted[at].every / counted[at].once:.2f}x",
                "read in all turns": f"{counted[at].read:,}",
                "of that, tools": f"{at * (counted[at].once - counted[at].conversation):,}",
            },
            measured={key: float(value) for key, value in counted[at]._asdict().items()},
        )
        for at in SHOWN
    ]
    costs = [Row(label, {"tokens": f"{tokens:,}"}, measured={"tokens": tokens}) for label, tokens in declared().items()]
    return (
        Table("declared", "Six tools, declared once: what they add to a prompt", costs),
        Table("tool_tokens", "A conversation with these tools", growth),
    )


@cache
def measure() -> TokenCounter:
    return exact_counter(load_encode())


def declared() -> dict[str, int]:
    """Return the tokens that the tools add, by the way in which they are declared."""
    tools = Tools(trajectory.TOOLS)
    bare = _whole("developer", tools=False)
    return {
        "Harmony, developer message": _whole("developer") - bare,
        "Harmony, system message": _whole("system") - bare,
        "JSON, as a Chat Completions request holds them": measure()(json.dumps(trajectory.TOOLS)),
        **{f"prompt mode, {name}": measure()(dialects.get(name).render_tools(tools)) for name in ("json", "hermes")},
    }


def _whole(tools_in: ToolPlacement, *, tools: bool = True) -> int:
    offered = Tools(trajectory.TOOLS if tools else [])
    converted = convert(trajectory.messages(0), offered, options=Options(tools_in=tools_in))
    return sum(part.tokens for part in count_messages(render_messages(converted.messages), measure()))


def turns() -> list[Turn]:
    """Count the tokens of the conversation after 0, 1, ... turns; a turn is reasoning, a call and its result."""
    converted = convert(trajectory.messages(TURNS), options=Options(thoughts="keep"))
    *parts, reply = (part.tokens for part in count_messages(render_messages(converted.messages), measure()))
    head, rest = sum(parts[: -3 * TURNS]), parts[-3 * TURNS :]
    sizes = list(accumulate((sum(rest[at : at + 3]) for at in range(0, len(rest), 3)), initial=head))
    once, every = declared()["Harmony, system message"], declared()["JSON, as a Chat Completions request holds them"]
    read_so_far = accumulate((size + once + reply for size in sizes[:-1]), initial=0)
    return [
        Turn(size, size + once, size + at * once, size + at * every, read)
        for at, (size, read) in enumerate(zip(sizes, read_so_far, strict=True))
    ]


def figure() -> str:
    """Return the figure as SVG."""
    numbered = list(enumerate(turns()))
    lines = {
        "in every turn, as JSON": [(at, turn.every) for at, turn in numbered],
        "in every turn, as in Harmony": [(at, turn.repeated) for at, turn in numbered],
        "once": [(at, turn.once) for at, turn in numbered],
    }
    return chart("Tokens of a conversation with six tools that are told ...", "turns with a call", "tokens", lines)


if __name__ == "__main__":
    if missing := vocabulary.why_not():
        sys.exit(missing)
    Path(sys.argv[1]).write_text(figure(), encoding="utf-8")
