"""Random replies as a model of a given dialect would write them: reasoning, prose, calls, prose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from casebook import ROWS_FOLDERS, Row, rows, tools_of
from shared_cases import built_in_cases

from fuzz.arguments import CANARIES, TOOL_SETS, arguments, tool_set
from promptools import dialects
from promptools.harmony.recipients import FUNCTIONS, RecipientNames
from promptools.types import Call

PROSE = (
    "I look it up.", "Sure.", "Here it comes:", "One moment, please.", "Das dauert nicht lange.", "好的。", "Done!",
    "The value is 3 < 4 & 5 > 2.", "He said \"no\", didn't he?", "- first\n- second", "# Title\n\nText.", "a, b; c: d",
)  # fmt: skip
THOUGHTS = ("Hm.", "I need the weather. Then I call it.", "Let me think\n\nabout it.", "{", "ok", "`x` or [y]?")
TAGS = (("<think>", "</think>"), ("<think>\n", "\n</think>\n\n"), ("[THINK]", "[/THINK]"), ("", "</think>\n"))
ENDS = ("<|im_end|>", "<|eot_id|>", "</s>", "<|end|>", "<|call|>")


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply, and what was written into it."""

    text: str
    dialect: str
    tools: list[dict[str, Any]] | None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    plain: bool = False
    """Nothing but calls and prose, with ordinary names: what was rendered must be read."""


def sample(random: Random, dialect: str, *, tables: bool) -> Sample:
    """Return a reply: rendered, or one of the rows of the dialect's tables."""
    written = _rows(dialect) if tables else ()
    if written and random.random() < 0.2:
        row = random.choice(written)
        return Sample(row.text, dialect, tools_of(row.tools))
    return rendered(random, dialect)


@cache
def _rows(dialect: str) -> tuple[Row, ...]:
    folder = f"cases/{dialect}"
    return (*(rows(folder) if folder in ROWS_FOLDERS else ()), *built_in_cases(dialect))


def rendered(random: Random, dialect: str) -> Sample:
    """Return a reply that the dialect's own renderer wrote, with words around its calls."""
    number = random.randrange(TOOL_SETS)
    tools = list(tool_set(number))
    made: list[tuple[str, dict[str, Any]]] = []
    for at in range(random.choice((1, 1, 1, 2, 2, 3))):
        tool = random.choice(tools)
        made.append((tool["name"], arguments(random, tool, CANARIES[at])))
    block = dialects.get(dialect).render_calls(_calls(made))
    before, after = _before(random, dialect), _after(random)
    written = tuple((written_name(dialect, name), given) for name, given in made)
    return Sample(before + block + after, dialect, tools, written, number % 2 == 0 and not after.strip())


def written_name(dialect: str, name: str) -> str:
    """Return the name that stands in the text: `Größe` cannot be a recipient in Harmony, and is written `Gr_e`."""
    if dialect != "harmony":
        return name
    return RecipientNames([name]).address_of(name).recipient.removeprefix(f"{FUNCTIONS}.")


def _calls(made: list[tuple[str, dict[str, Any]]]) -> list[Call]:
    return [Call(f"c{at}", name, given, json.dumps(given, ensure_ascii=False)) for at, (name, given) in enumerate(made)]


def _before(random: Random, dialect: str) -> str:
    kind = random.random()
    if kind < 0.4:
        return ""
    words = random.choice(PROSE) + random.choice(("\n", "\n\n", "\n"))
    if kind < 0.65:
        return words
    thought = random.choice(THOUGHTS)
    if dialect == "harmony":
        return f"<|channel|>analysis<|message|>{thought}<|end|>"
    opener, closer = random.choice(TAGS)
    return opener + thought + closer + (words if kind < 0.8 else "")


def _after(random: Random) -> str:
    kind = random.random()
    if kind < 0.6:
        return ""
    if kind < 0.75:
        return random.choice(("\n", " ", "\n\n", "\n\n\n"))
    if kind < 0.85:
        return random.choice(ENDS)
    return "\n" + random.choice(PROSE)
