"""Rename tools whose names the server or Harmony does not accept, and map the names back in the reply."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.harmony.recipients import FUNCTIONS, RecipientNames
from promptools.patterns import lazy_pattern
from promptools.schema import Tools
from promptools.schema.tool_definition import marks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.harmony.recipients import ToolAddress


MAX_NAME_LENGTH = 64
"""Maximum number of characters that OpenAI-like validators allow in a name."""
MAX_NUMBERED = 3
"""How many names with a number at the end to try.

If the server's pattern matches none of them, it is assumed to allow no number at the end.
"""
_ILLEGAL = lazy_pattern(r"[^a-zA-Z0-9_-]+")


def legal_names(names: Iterable[str], pattern_text: str) -> dict[str, str]:
    """Map each name that does not fully match the regular expression `pattern_text` to a name that does.

    Equal input gives equal results, and no two names get the same replacement. Names that match the pattern are left
    out, and so are names for which no matching replacement is found.
    """
    every = list(dict.fromkeys(names))
    pattern = re.compile(pattern_text)
    if all(map(pattern.fullmatch, every)):
        return {}
    illegal = [name for name in every if not pattern.fullmatch(name)]
    taken = set(every)
    numbers: dict[str, int] = {}
    sent: dict[str, str] = {}
    for name in illegal:
        # MCP servers name tools with dots and slashes (copilot-cli#1879), apps in Chinese (Qwen3#1092).
        base = _ILLEGAL.sub("_", name).strip("_")[:MAX_NAME_LENGTH] or "tool"
        candidate = _unused_name(base, taken, pattern, numbers)
        taken.add(candidate or name)
        if candidate is not None:
            sent[name] = candidate
    return sent


def _unused_name(base: str, taken: set[str], legal: re.Pattern[str], numbers: dict[str, int]) -> str | None:
    """Return a legal name that is not taken, made from `base`, with a number at its end if necessary.

    Return None if no number makes the name legal.
    """
    if base not in taken and legal.fullmatch(base):
        return base
    stem = base[: MAX_NAME_LENGTH - 8]
    for _ in range(MAX_NUMBERED):
        numbers[stem] = numbers.get(stem, 1) + 1
        candidate = f"{stem}_{numbers[stem]}"
        while candidate in taken:
            numbers[stem] += 1
            candidate = f"{stem}_{numbers[stem]}"
        if legal.fullmatch(candidate):
            return candidate
    return None


def harmony_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name that Harmony writes differently, such as `get weather`, to the name that the model sees.

    Names that Harmony does not change are left out.
    """
    every = list(names)
    places = RecipientNames(every)
    return {name: recipient for name in every if (recipient := short_recipient(places.address_of(name))) != name}


def short_recipient(place: ToolAddress) -> str:
    """Return the recipient of a tool's calls; for `functions.get_weather`, only `get_weather`."""
    return place.recipient.removeprefix(f"{FUNCTIONS}.")


def rename_tools(tools: Tools, sent: Mapping[str, str]) -> Tools:
    """Copy tools; `sent` maps names to new names. Marks on the tools, such as `dangerous`, are kept."""
    if not sent:
        return tools
    renamed = Tools([rename_tool(tool, sent) for tool in tools.to_openai()])
    return renamed.with_marks({sent.get(tool.name, tool.name): marks_of(tool) for tool in tools})


def rename_tool(tool: dict[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
    """Copy a tool in OpenAI's format; if `sent` maps its name to a new name, the copy has the new name."""
    function = tool["function"]
    return {**tool, "function": {**function, "name": sent.get(function["name"], function["name"])}}
