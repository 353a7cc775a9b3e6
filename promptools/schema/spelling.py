"""What models call a tool, and what it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

MOST_LISTED = 200
"""Names that a message lists."""
LONGEST_NAME = 300
"""Characters: longer than any tool's name with all its residue."""

_NAMESPACE = re.compile(r"(?:functions|function|tools|tool|multi_tool_use)\.|default_api[.:]")
_TAIL = re.compile(r"(?:\(\s*\)|\.call|:\d*)$")
_WORD = re.compile(r"(?:\s+|(?<=[^\s_.:-]))(?:commentary|analysis|final|json)$")
_QUOTES = " \t\r\n\f\v\"'`“”‘’"
_SEPARATORS = re.compile(r"[-_.\s]+")


def listed(names: Sequence[str]) -> str:
    """Write names for a model: of very many the first."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def fold(name: str) -> str:
    """Reduce a name to what is left when case, `-`, `_`, `.` and spaces do not count."""
    return _SEPARATORS.sub("", name).casefold()


def unique(names: Iterable[str], spelled: Callable[[str], str]) -> dict[str, str]:
    """Map each spelling that just one name has to that name."""
    found: dict[str, str] = {}
    twice: set[str] = {""}
    for name in names:
        key = spelled(name)
        twice.update({key} & found.keys())
        found[key] = name
    return {key: name for key, name in found.items() if key not in twice}


def candidates(said: str) -> Iterable[str]:
    """Yield what a spoken name may stand for, the most literal first, each with less around it than the one before."""
    name = said.strip(_QUOTES)
    yield name
    cut = name.partition("<")[0].strip(_QUOTES)
    if cut != name:
        name = cut
        yield name
    if len(name) > LONGEST_NAME:
        return
    while name:
        shorter = _peel(name)
        if shorter == name:
            return
        name = shorter
        yield name


def _peel(name: str) -> str:
    """Take one layer off: a namespace, an index, a call's parentheses, or a channel word of Harmony's header."""
    for pattern in (_NAMESPACE, _TAIL, _WORD):
        found = pattern.match(name) if pattern is _NAMESPACE else pattern.search(name)
        if found:
            return (name[found.end() :] if pattern is _NAMESPACE else name[: found.start()]).strip(_QUOTES)
    return name
