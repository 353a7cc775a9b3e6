"""What models call a tool and its parameters, and what the schema calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from promptools.schema.graph import pointer
from promptools.types import Fix

GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "filepath file_path filePath file",
        "path directory dir_path dirPath dir folder",
        "path filepath",
        "command cmd shell_command",
        "query query_text search_query",
        "unified_diff diff patch",
        "url link webpage uri",
        "location city place",
        "container container_id container_name",
        "pod pod_name pod_id",
        "text content body",
        "search find old_text original",
        "replace replacement new_text",
    )
)
"""Names for one thing: whichever one the schema declares is meant, if it declares just one of them."""

TOWARDS: Mapping[str, frozenset[str]] = {
    "num_results": frozenset(("top_n", "count", "limit", "max_results")),
    "query": frozenset(("pattern",)),
    "line_start": frozenset(("start_line",)),
    "line_end": frozenset(("end_line",)),
}
"""Names that stand for one declared name, but not for each other."""

MOST_LISTED = 200
"""Names that a message lists."""
LONGEST_NAME = 300
"""Characters: longer than any tool's name with all its residue."""

_NAMESPACE = re.compile(r"(?:functions|function|tools|tool|multi_tool_use)\.|default_api[.:]")
_TAIL = re.compile(r"(?:\(\s*\)|\.call|:\d*)$")
_WORD = re.compile(r"(?:\s+|(?<=[^\s_.:-]))(?:commentary|analysis|final|json)$")
_QUOTES = " \t\r\n\f\v\"'`“”‘’"
_SEPARATORS = re.compile(r"[-_.\s]+")


def alias_table(declared: Collection[str], own: Mapping[str, str]) -> dict[str, str]:
    """Map each known alias of a schema's parameters to the one parameter that it can mean.

    A declared name is never an alias. `own` are the tool's own aliases; they outrank the built-in groups.
    """
    meant: dict[str, set[str]] = {}
    for group in GROUPS:
        members = group.intersection(declared)
        if len(members) == 1:
            for alias in group:
                meant.setdefault(alias, set()).update(members)
    for name, aliases in TOWARDS.items():
        if name in declared:
            for alias in aliases:
                meant.setdefault(alias, set()).add(name)
    table = {alias: next(iter(names)) for alias, names in meant.items() if len(names) == 1}
    table.update(own)
    return {alias: name for alias, name in table.items() if alias not in declared}


def rename(
    arguments: dict[str, object], table: Mapping[str, str], allowed: Collection[str] | None
) -> tuple[dict[str, object], tuple[Fix, ...]]:
    """Give arguments their declared names, in the same order, and say which were renamed.

    Nothing is renamed onto a parameter that is given, nor two onto one. `allowed` limits the targets (None: any).
    """
    wanted = {key: table[key] for key in arguments if key in table and table[key] not in arguments}
    targets = list(wanted.values())
    renames = {
        key: name for key, name in wanted.items() if targets.count(name) == 1 and (allowed is None or name in allowed)
    }
    if not renames:
        return arguments, ()
    fixes = tuple(Fix("alias", f"{key!r} to {name!r}", pointer([name])) for key, name in renames.items())
    return {renames.get(key, key): value for key, value in arguments.items()}, fixes


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
