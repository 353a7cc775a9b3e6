"""Match the names that models write to the names of tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from promptools.errors import clip
from promptools.patterns import lazy_pattern
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.schema import Tools

MOST_LISTED = 200
"""Names that a message lists."""
LONGEST_NAME = 300
"""Characters: longer than any tool's name with everything that models put around it."""

NAMESPACES: Final = (
    *(f"{word}." for word in ("functions", "function", "tools", "tool", "multi_tool_use", "default_api")),
    "default_api:",
)
"""What models put before a tool's name: OpenAI's prompts declare tools in a namespace, and so do Gemini's."""
_NAMESPACE = lazy_pattern("|".join(map(re.escape, NAMESPACES)))
_TAIL = lazy_pattern(r"(?:\(\s*\)|\.call|:\d*)$")
_WORD = lazy_pattern(r"(?:\s+|(?<=[^\s_.:-]))(?:commentary|analysis|final|json)$")
_OF_SERVER = lazy_pattern(r"\w[\w.-]*(?:/\w[\w.-]*)+")
"""A tool of an MCP server: `Files/read_file` (GLM 5.3 Flash), for a tool `read_file` or `files__read_file`."""
_CLEANED_ID = lazy_pattern(r"functions[._-](.+?)([._-]\d{1,4})?\Z", re.DOTALL)
"""Kimi's id of a call, `functions.Bash:2`, as clients whose ids may have no dots and colons write it in the history:
`functions_Bash_2`. The model copies it as a name."""
_QUOTES = " \t\r\n\f\v\"'`“”‘’"
_ESCAPED = lazy_pattern(r"\\([_.-])")
_SEPARATORS = lazy_pattern(r"[-_.\s]+")


def format_names(names: Sequence[str]) -> str:
    """Join names for a message to the model: the first `MOST_LISTED`, and the number of the others."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def fold_name(name: str) -> str:
    """Return a name without `-`, `_`, `.` and spaces, case-folded."""
    return _SEPARATORS.sub("", name).casefold()


def unique_by_spelling(names: Iterable[str], spelling: Callable[[str], str]) -> dict[str, str]:
    """Return a map of each spelling that exactly one name has to that name."""
    by_spelling: dict[str, str] = {}
    twice: set[str] = {""}
    for name in names:
        key = spelling(name)
        twice.update({key} & by_spelling.keys())
        by_spelling[key] = name
    return {key: name for key, name in by_spelling.items() if key not in twice}


def name_candidates(written: str) -> Iterable[str]:
    """Yield what a name in a reply may mean: first as it is, then each time with one more layer removed."""
    name = written.strip(_QUOTES)
    yield name
    cut = name.partition("<")[0].strip(_QUOTES)
    if cut != name:
        name = cut
        yield name
    if len(name) > LONGEST_NAME:
        return
    cleaned = _CLEANED_ID.match(name)
    while (shorter := _strip_layer(name)) != name:
        name = shorter
        yield name
    if _OF_SERVER.fullmatch(name):
        yield name.replace("/", "_")
        yield name.rpartition("/")[2]
    if cleaned is not None:
        yield cleaned[1] + (cleaned[2] or "")
        yield cleaned[1]


def _strip_layer(name: str) -> str:
    """Remove one layer: a namespace, an index, a call's parentheses, or a channel of a Harmony header."""
    for pattern in (_NAMESPACE, _TAIL, _WORD):
        match = pattern.match(name) if pattern is _NAMESPACE else pattern.search(name)
        if match:
            return (name[match.end() :] if pattern is _NAMESPACE else name[: match.start()]).strip(_QUOTES)
    return name


def unescape_name(name: str) -> str:
    """Return the name without the escapes of Markdown's special characters; no name holds a backslash."""
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name


def escape_fixes(name: str) -> tuple[Fix, ...]:
    """Return the fix for a name with Markdown's escapes; empty if it has none."""
    bare = unescape_name(name)
    return () if bare == name else (Fix("name", f"{clip(name)!r} to {clip(bare)!r}"),)


def is_offered_name(name: str, tools: Tools | None) -> bool:
    """Return whether this is an offered tool's name, spelled as declared, perhaps in a namespace."""
    if tools is None:
        return False
    bare = unescape_name(name)
    return tools.get(bare) is not None or ("." in bare and tools.find(bare) is not None)
