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
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


def mapped(names: Iterable[str], legal: str) -> dict[str, str]:
    """Map each name that `legal`, a regular expression, does not match whole to one that it does; the same each time.

    The others are left out. Two names never become one.
    """
    every = list(dict.fromkeys(names))
    pattern = re.compile(legal)
    bad = [name for name in every if not pattern.fullmatch(name)]
    taken = set(every)
    sent: dict[str, str] = {}
    for name in bad:
        base = _ILLEGAL.sub("_", name).strip("_")[:LONGEST] or "tool"
        candidate, number = base, 1
        while candidate in taken or not pattern.fullmatch(candidate):
            number += 1
            candidate = f"{base[: LONGEST - 8]}_{number}"
            if number > len(every) + 2:  # the pattern wants what we cannot guess: the name stays
                candidate = name
                break
        taken.add(candidate)
        if candidate != name:
            sent[name] = candidate
    return sent


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
