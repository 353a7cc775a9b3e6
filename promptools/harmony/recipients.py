"""Convert tools' names to recipients: `get_weather` becomes `functions.get_weather`, and `container.exec` is kept.

A tool that takes free text, such as `python`, is a namespace without functions: its recipient is `python`.

A recipient must be valid in a header and in TypeScript, so characters that are not valid become `_`. Two tools never
share a recipient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from promptools.harmony.messages import CONTENT_TYPES, ROLES
from promptools.harmony.tokens import CHANNELS
from promptools.patterns import lazy_pattern

FUNCTIONS = "functions"
"""The namespace of tools whose names have no namespace."""
INVALID_NAME = "__invalid_tool__"
"""Replaces a tool's name in the history if it consists only of control tokens; vLLM uses the same replacement."""

_NO_NAMESPACES = frozenset((FUNCTIONS, "all", *ROLES, *CHANNELS, *CONTENT_TYPES))
"""Words that have another meaning in a header, so none of them alone is the recipient of a tool.

A tool that takes free text, and has no `.` in its name, is its own namespace, with its name as the recipient
(`python`). If its name is one of these words, the tool is in the namespace `functions` instead.
"""
_ODD = lazy_pattern(r"[^A-Za-z0-9_$]+")
_TOKEN = lazy_pattern(r"<\|[^|]*\|>")


class ToolAddress(NamedTuple):
    """A tool's namespace, and the tool's name in the namespace.

    The name is empty if the namespace itself is the tool, such as `python`.
    """

    namespace: str
    name: str

    @property
    def recipient(self) -> str:
        """The recipient of the tool's calls, such as `functions.get_weather`."""
        return f"{self.namespace}.{self.name}" if self.name else self.namespace


class RecipientNames:
    """Maps tools to recipients.

    `offered`: the tools of the request; `in_history`: the names of tools in past messages; `free_text`: the tools that
    take free text.
    """

    def __init__(
        self, offered: Iterable[str], in_history: Iterable[str] = (), *, free_text: Collection[str] = ()
    ) -> None:
        self._free_text = free_text
        self._addresses: dict[str, ToolAddress] = {}
        self._recipients: set[str] = set()
        self._numbers: dict[ToolAddress, int] = {}
        tools = list(dict.fromkeys(offered))
        # valid names come first, so that they stay as they are even if another name would become the same
        for name in (*filter(self._is_valid, tools), *tools):
            self._add(name, self._address(name))
        for name in in_history:
            tidied = clean_name(name)
            bare = tidied.removeprefix(f"{FUNCTIONS}.")
            tidied = bare if bare in self._addresses else tidied  # a client may have kept recipients as names
            self._add(tidied, _valid_address(tidied))
            self._addresses.setdefault(name, self._addresses[tidied])

    def _address(self, name: str) -> ToolAddress:
        """Return the address that a tool should have. If another tool has the same one, `_add` adds a number."""
        space = _identifier(name) if name in self._free_text and "." not in name else ""
        return ToolAddress(space, "") if space and space not in _NO_NAMESPACES else _valid_address(name)

    def _is_valid(self, name: str) -> bool:
        return self._address(name) in {_split_name(name), ToolAddress(name, "")}

    def _add(self, name: str, wanted: ToolAddress) -> None:
        if name in self._addresses:
            return
        address, number = wanted, self._numbers.get(wanted, 1)
        while address.recipient in self._recipients:
            number += 1
            last = f"{wanted.name or wanted.namespace}_{number}"
            address = ToolAddress(wanted.namespace, last) if wanted.name else ToolAddress(last, "")
        self._numbers[wanted] = number
        self._addresses[name] = address
        self._recipients.add(address.recipient)

    def address_of(self, name: str) -> ToolAddress:
        """Return the address of an offered tool, or of a tool in the history. Raises KeyError for any other tool."""
        return self._addresses[name]


def clean_name(name: str) -> str:
    """Remove control tokens from a name in the history. If text precedes the first token, this text is the name."""
    prefix = name.partition("<|")[0].strip()
    return prefix or _TOKEN.sub("", name).strip() or INVALID_NAME


def _split_name(name: str) -> ToolAddress:
    """Split a name into namespace and name, without changing either."""
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
    """Return the word as a valid identifier; empty if no valid character is left."""
    cleaned = word if not _ODD.search(word) else _ODD.sub("_", word).strip("_")
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
