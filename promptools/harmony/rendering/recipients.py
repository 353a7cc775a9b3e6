"""Names of tools as recipients: `get_weather` is `functions.get_weather`, `container.exec` keeps its namespace.

A name must be valid in a header and in TypeScript, so other characters become `_`. Two tools never share a recipient.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

FUNCTIONS = "functions"
"""The namespace of tools whose names have none."""
INVALID_NAME = "__invalid_tool__"
"""Replaces a name in the history of which nothing is left (vLLM writes the same)."""

_ODD = re.compile(r"[^A-Za-z0-9_$]+")
_TOKEN = re.compile(r"<\|[^|]*\|>")


class ToolAddress(NamedTuple):
    """The namespace of a tool, and its name there."""

    namespace: str
    name: str

    @property
    def recipient(self) -> str:
        """The recipient of the tool's calls."""
        return f"{self.namespace}.{self.name}"


class RecipientNames:
    """Maps tools to recipients. `offered`: the tools of the request; `in_history`: names in its history."""

    def __init__(self, offered: Iterable[str], in_history: Iterable[str] = ()) -> None:
        self._addresses: dict[str, ToolAddress] = {}
        self._recipients: set[str] = set()
        self._numbers: dict[ToolAddress, int] = {}
        tools = list(dict.fromkeys(offered))
        # names that are valid come first: they stay, even if another one would become the same
        for name in (*(tool for tool in tools if _valid_address(tool) == _split_name(tool)), *tools):
            self._add(name, _valid_address(name))
        for name in in_history:
            tidied = clean_name(name)
            bare = tidied.removeprefix(f"{FUNCTIONS}.")
            tidied = bare if bare in self._addresses else tidied  # a client may have kept recipients as names
            self._add(tidied, _valid_address(tidied))
            self._addresses.setdefault(name, self._addresses[tidied])

    def _add(self, name: str, wanted: ToolAddress) -> None:
        if name in self._addresses:
            return
        address, number = wanted, self._numbers.get(wanted, 1)
        while address.recipient in self._recipients:
            number += 1
            address = ToolAddress(wanted.namespace, f"{wanted.name}_{number}")
        self._numbers[wanted] = number
        self._addresses[name] = address
        self._recipients.add(address.recipient)

    def address_of(self, name: str) -> ToolAddress:
        """Return the address of an offered tool, or of one in the history. Raises KeyError for any other."""
        return self._addresses[name]


def clean_name(name: str) -> str:
    """Remove control tokens from a name that a past reply left in the history: the text before them is the name."""
    prefix = name.partition("<|")[0].strip()
    return prefix or _TOKEN.sub("", name).strip() or INVALID_NAME


def _split_name(name: str) -> ToolAddress:
    """Return the address of a name, unchanged."""
    space, dot, rest = name.partition(".")
    return ToolAddress(space, rest) if dot else ToolAddress(FUNCTIONS, name)


@lru_cache(maxsize=1024)
def _valid_address(name: str) -> ToolAddress:
    space, rest = _split_name(name)
    cleaned = _identifier(space)
    return (
        ToolAddress(cleaned, _identifier(rest) or "tool")
        if cleaned
        else ToolAddress(FUNCTIONS, _identifier(name) or "tool")
    )


def _identifier(word: str) -> str:
    """Return the word as an identifier, empty if nothing is left."""
    cleaned = word if not _ODD.search(word) else _ODD.sub("_", word).strip("_")
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
