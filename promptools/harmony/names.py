"""Names of tools as recipients: `get_weather` is `functions.get_weather`, `container.exec` keeps its namespace.

A name must stand in a header and be one in TypeScript, so other characters become `_`; two tools never become one, and
each recipient leads back to its tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

FUNCTIONS = "functions"
"""The namespace of the app's tools: those whose names have none."""
INVALID = "__invalid_tool__"
"""Stands in a history for a name of which nothing is left (vLLM writes the same)."""

_ODD = re.compile(r"[^A-Za-z0-9_$]+")
_TOKEN = re.compile(r"<\|[^|]*\|>")


class Place(NamedTuple):
    """Where a tool is declared."""

    space: str
    name: str

    @property
    def recipient(self) -> str:
        """Give what a call is sent to."""
        return f"{self.space}.{self.name}"


class Names:
    """Which tool stands where. `offered` are the tools of the request, `heard` the names that its history holds."""

    def __init__(self, offered: Iterable[str], heard: Iterable[str] = ()) -> None:
        self._places: dict[str, Place] = {}
        self._tools: dict[str, str] = {}
        self._numbers: dict[Place, int] = {}
        tools = list(dict.fromkeys(offered))
        # a name that may stay as it is does stay, whoever else would become like it
        for name in (*(each for each in tools if _place(each) == _whole(each)), *tools):
            self._take(name, _place(name))
        for name in heard:
            tidied = tidy(name)
            bare = tidied.removeprefix(f"{FUNCTIONS}.")
            tidied = bare if bare in self._places else tidied  # a client that keeps recipients for names
            self._take(tidied, _place(tidied))
            self._places.setdefault(name, self._places[tidied])

    def _take(self, name: str, wanted: Place) -> None:
        if name in self._places:
            return
        place, number = wanted, self._numbers.get(wanted, 1)
        while place.recipient in self._tools:
            number += 1
            place = Place(wanted.space, f"{wanted.name}_{number}")
        self._numbers[wanted] = number
        self._places[name] = place
        self._tools[place.recipient] = name

    def place(self, name: str) -> Place:
        """Give the place of a tool that was offered or heard."""
        return self._places[name]

    def tool(self, recipient: str) -> str | None:
        """Give the tool that a recipient means; None: there is no such tool."""
        return self._tools.get(recipient)


def tidy(name: str) -> str:
    """Take control tokens out of a name that a past reply left in the history: what stands before them counts."""
    before = name.partition("<|")[0].strip()
    return before or _TOKEN.sub("", name).strip() or INVALID


def _whole(name: str) -> Place:
    """Give the place of a name that may stay as it is."""
    space, dot, rest = name.partition(".")
    return Place(space, rest) if dot else Place(FUNCTIONS, name)


@lru_cache(maxsize=1024)
def _place(name: str) -> Place:
    space, rest = _whole(name)
    cleaned = _clean(space)
    return Place(cleaned, _clean(rest) or "tool") if cleaned else Place(FUNCTIONS, _clean(name) or "tool")


def _clean(word: str) -> str:
    """Make a word an identifier; empty: nothing is left."""
    cleaned = word if not _ODD.search(word) else _ODD.sub("_", word).strip("_")
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
