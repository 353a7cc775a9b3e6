"""Tool names that a server, or Harmony, does not take travel under others, and come back as they were."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.harmony.names import FUNCTIONS, Names
from promptools.schema import Tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.harmony.names import Place

LONGEST = 64
"""Characters that OpenAI-like validators allow in a name."""
TRIES = 3
"""Numbers that are tried on a name: where a server's pattern takes none of them, it takes no number."""
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


def mapped(names: Iterable[str], legal: str) -> dict[str, str]:
    """Map each name that `legal`, a regular expression, does not match whole to one that it does; the same each time.

    The others are left out, and so are those that the pattern takes in no spelling. Two names never become one.
    """
    every = list(dict.fromkeys(names))
    pattern = re.compile(legal)
    bad = [name for name in every if not pattern.fullmatch(name)]
    taken = set(every)
    numbers: dict[str, int] = {}
    sent: dict[str, str] = {}
    for name in bad:
        base = _ILLEGAL.sub("_", name).strip("_")[:LONGEST] or "tool"
        candidate = _free(base, taken, pattern, numbers)
        taken.add(candidate or name)
        if candidate is not None:
            sent[name] = candidate
    return sent


def _free(base: str, taken: set[str], legal: re.Pattern[str], numbers: dict[str, int]) -> str | None:
    """Return a legal name that nobody has, numbered if it must be; None where no number makes it legal."""
    if base not in taken and legal.fullmatch(base):
        return base
    stem = base[: LONGEST - 8]
    for _ in range(TRIES):
        numbers[stem] = numbers.get(stem, 1) + 1
        candidate = f"{stem}_{numbers[stem]}"
        while candidate in taken:
            numbers[stem] += 1
            candidate = f"{stem}_{numbers[stem]}"
        if legal.fullmatch(candidate):
            return candidate
    return None


def in_harmony(names: Iterable[str]) -> dict[str, str]:
    """Map each name that Harmony writes otherwise to what the model reads there. The others are left out."""
    every = list(names)
    places = Names(every)
    return {name: said for name in every if (said := short(places.place(name))) != name}


def short(place: Place) -> str:
    """Give what a tool is called: its recipient, without the namespace that all have who have no other."""
    return place.recipient.removeprefix(f"{FUNCTIONS}.")


def renamed(tools: Tools, sent: Mapping[str, str]) -> Tools:
    """Copy `tools` under the names that were sent, with the marks that they have."""
    if not sent:
        return tools
    marks = {
        sent.get(tool.name, tool.name): {
            "dangerous": tool.dangerous,
            "infer": tool.infer,
            "aliases": dict(tool.aliases),
        }
        for tool in tools
    }
    return Tools([rename_tool(each, sent) for each in tools.to_openai()], marks=marks)


def rename_tool(tool: dict[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
    """Copy an OpenAI tool dict under the name that is sent."""
    function = tool["function"]
    return {**tool, "function": {**function, "name": sent.get(function["name"], function["name"])}}
