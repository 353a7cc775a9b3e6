"""Prose around the calls of every dialect: how many that nobody makes are read as calls, and how many meant are found.

No rule of the parser knows these sentences: they are other ones than those of `promptools.engine.mention`, and none of
them may be added there. What cannot be told apart without understanding the sentence stays wrong, and is counted here.
The figures are in `figures_of_prose.toml`, with the dialects that they are of; `python
tests/contract/figures_of_prose.py` writes them anew.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from promptools import dialects, parse
from promptools.dialects.sample import TOOL, sample_text

FIGURES: Final = Path(__file__).with_suffix(".toml")
Place = Callable[[str, str], str]
"""Makes a reply of a sentence, without its full stop, and a call."""

EXPLAINS: Final = (
    "A call of the tool looks like this",
    "The syntax that the documentation gives",
    "What a model has to write in order to use it",
    "So sieht ein Aufruf aus",
)
REFUSES: Final = (
    "I could call the tool, but that needs your permission",
    "It makes no sense to send this without a date",
    "If you had asked me yesterday I would have answered",
    "J'aurais pu appeler l'outil, mais ce n'est pas utile",
)
ASKS: Final = ("Should I run this", "Is this what you want me to send", "Soll ich das ausführen")
MEANS: Final = (
    "I look it up",
    "Let me check the weather first",
    "One moment, I ask the service",
    "Ich sehe nach",
    "This needs the tool, so I call it",
)


def in_line(call: str) -> str:
    """Write a call as inline code."""
    run = "``" if "`" in call else "`"
    gap = " " if "`" in call else ""
    return f"{run}{gap}{' '.join(call.split())}{gap}{run}"


def prefixed(mark: str, call: str) -> str:
    return "\n".join(mark + line for line in call.split("\n"))


MADE_UP: Final[Mapping[str, Place]] = {
    "in a block quote": lambda words, call: f"{words}:\n\n{prefixed('> ', call)}",
    "in a block quote, in a sentence": lambda words, call: f"{words}.\n\n> They wrote {prefixed('> ', call)[2:]}",
    "in a block quote, words after": lambda words, call: f"{words}:\n{prefixed('> ', call)}\n\nThat is all.",
    "in inline code": lambda words, call: f"{words}: {in_line(call)}",
    "in inline code, words after": lambda words, call: f"{words}: {in_line(call)} and nothing else.",
    "in a fence, words after": lambda words, call: f"{words}:\n\n```\n{call}\n```\n\nThat is all.",
    "in the last fence": lambda words, call: f"{words}:\n\n```\n{call}\n```",
    "in the last fence, with a label": lambda words, call: f"{words}:\n\n```xml\n{call}\n```",
    "in both of two fences": lambda words, call: f"{words}:\n\n```\n{call}\n```\n\nor\n\n```\n{call}\n```",
    "in a list": lambda words, call: f"{words}:\n\n1. the name\n2. the arguments\n3. {call}",
    "in a list with bullets, words after": lambda words, call: f"{words}:\n\n- {call}\n- an answer",
    "at the end of a sentence": lambda words, call: f"{words} {call}",
    "after a colon": lambda words, call: f"{words}: {call}",
    "amid a sentence": lambda words, call: f"{words} {call} and so on.",
    "on the last line": lambda words, call: f"{words}:\n{call}",
    "on a line, words after": lambda words, call: f"{words}:\n{call}\nThat is all.",
    "first, words after": lambda words, call: f"{call}\n\n{words}.",
    "in an indented block": lambda words, call: f"{words}:\n\n{prefixed('    ', call)}\n\nThat is all.",
    "in a table": lambda words, call: f"{words}:\n\n| what | how |\n| --- | --- |\n| call | {' '.join(call.split())} |",
    "in a heading": lambda words, call: f"{words}\n\n## {call}\n\nThat is all.",
    "in bold": lambda words, call: f"{words}: **{call}**",
    "in quotes": lambda words, call: f"{words}: “{call}”",
    "in HTML": lambda words, call: f"{words}:\n\n<pre>\n{call}\n</pre>",
    "in a program": lambda words, call: f'{words}:\n\n```python\ntext = """\n{call}\n"""\n```',
    "before the end of a thought": lambda words, call: f"<think>{words}:\n{call}\n</think>No.",
    "before the end of a thought that the template began": lambda words, call: f"{words}:\n{call}\n</think>No.",
    "in a thought that the template began, in a fence": lambda words, call: (
        f"{words}:\n```\n{call}\n```\nHm.\n</think>No."
    ),
    "before the end of a thought, nobody knows that it began": lambda words, call: f"{words}:\n{call}\n</think>No.",
}
"""Where a call is that nobody makes."""
MEANT: Final[Mapping[str, Place]] = {
    "alone": lambda words, call: f"{words[:0]}{call}",
    "on the last line": lambda words, call: f"{words}.\n{call}",
    "after an empty line": lambda words, call: f"{words}:\n\n{call}",
    "in the last fence": lambda words, call: f"{words}:\n\n```\n{call}\n```",
    "after a thought": lambda words, call: f"<think>{words}.</think>\n{call}",
    "after a thought that the template began": lambda words, call: f"{words}.\n</think>\n\n{call}",
    "after a block quote": lambda words, call: f"> How is Oslo?\n\n{words}.\n\n{call}",
    "after a list": lambda words, call: f"- Oslo\n- two days\n\n{words}:\n\n{call}",
    "after a fence of code": lambda words, call: f"```python\nx = 1\n```\n\n{words}:\n{call}",
    "after inline code": lambda words, call: f"It is `x`. {words}.\n{call}",
}
"""Where a call is meant."""
BY_TEMPLATE: Final = "that the template began"


def options_of(place: str) -> dict[str, Any]:
    """Return the options of `parse`."""
    return {"in_reasoning": True} if BY_TEMPLATE in place else {}


def count_made_up(place: str, names: Iterable[str]) -> int:
    """Count the calls of these dialects that are read at a place where nobody makes one."""
    return _count(MADE_UP[place], (*EXPLAINS, *REFUSES, *ASKS), options_of(place), names)


def count_meant(place: str, names: Iterable[str]) -> int:
    """Count the calls of these dialects that are found at a place where each one is meant."""
    return _count(MEANT[place], MEANS, options_of(place), names)


def _count(place: Place, sentences: tuple[str, ...], options: dict[str, Any], names: Iterable[str]) -> int:
    calls = [sample_text(dialects.get(name)) for name in names]
    replies = (parse(place(words, call), [TOOL], **options) for words in sentences for call in calls)
    return sum(bool(reply.calls or reply.malformed) for reply in replies)


def recorded() -> dict[str, Any]:
    """Return the figures that are written down."""
    return tomllib.loads(FIGURES.read_text("utf-8"))


def write() -> None:
    """Write the figures down."""
    names = sorted(dialects.BUILT_IN)
    lines = [
        f"dialects = {json.dumps(names)}",
        "",
        "# Replies, of all sentences and dialects, that are read as calls where nobody makes one: they may only fall.",
        f"# {len((*EXPLAINS, *REFUSES, *ASKS))} sentences in each place.",
        "[made_up]",
        *(f'"{place}" = {count_made_up(place, names)}' for place in MADE_UP),
        "",
        "# Replies in which the call that is meant is found: they may only rise.",
        f"# {len(MEANS)} sentences in each place.",
        "[meant]",
        *(f'"{place}" = {count_meant(place, names)}' for place in MEANT),
        "",
    ]
    FIGURES.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    write()
    sys.stdout.write(FIGURES.read_text("utf-8"))
