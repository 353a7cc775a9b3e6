"""Names of tools as recipients: `get_weather` is `functions.get_weather`, `container.exec` keeps its namespace.

A name must be valid in a header and in TypeScript, so other characters become `_`. Two tools never share a recipient,
and each recipient maps back to its tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

FUNCTIONS = "functions"
"""The namespace of tools whose names have none."""
INVALID = "__invalid_tool__"
"""Replaces a name in the history of which nothing is left (vLLM writes the same)."""

_ODD = re.compile(r"[^A-Za-z0-9_$]+")
_TOKEN = re.compile(r"<\|[^|]*\|>")


class Place(NamedTuple):
    """The namespace of a tool, and its name there."""

    space: str
    name: str

    @property
    def recipient(self) -> str:
        """The recipient of the tool's calls."""
        return f"{self.space}.{self.name}"


class Names:
    """Maps tools to recipients and back. `offered`: the tools of the request; `heard`: names in its history."""

    def __init__(self, offered: Iterable[str], heard: Iterable[str] = ()) -> None:
        self._places: dict[str, Place] = {}
        self._tools: dict[str, str] = {}
        self._numbers: dict[Place, int] = {}
        tools = list(dict.fromkeys(offered))
        # names that are valid come first: they stay, even if another one would become the same
        for name in (*(each for each in tools if _place(each) == _whole(each)), *tools):
            self._take(name, _place(name))
        for name in heard:
            tidied = tidy(name)
            bare = tidied.removeprefix(f"{FUNCTIONS}.")
            tidied = bare if bare in self._places else tidied  # a client may have kept recipients as names
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
        """Return the place of an offered tool, or of one in the history. Raises KeyError for any other."""
        return self._places[name]

    def tool(self, recipient: str) -> str | None:
        """Return the tool of a recipient, None if there is none."""
        return self._tools.get(recipient)


def tidy(name: str) -> str:
    """Remove control tokens from a name that a past reply left in the history: the text before them is the name."""
    prefix = name.partition("<|")[0].strip()
    return prefix or _TOKEN.sub("", name).strip() or INVALID


def _whole(name: str) -> Place:
    """Return the place of a name, unchanged."""
    space, dot, rest = name.partition(".")
    return Place(space, rest) if dot else Place(FUNCTIONS, name)


@lru_cache(maxsize=1024)
def _place(name: str) -> Place:
    space, rest = _whole(name)
    cleaned = _clean(space)
    return Place(cleaned, _clean(rest) or "tool") if cleaned else Place(FUNCTIONS, _clean(name) or "tool")


def _clean(word: str) -> str:
    """Return the word as an identifier, empty if nothing is left."""
    cleaned = word if not _ODD.search(word) else _ODD.sub("_", word).strip("_")
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
