"""Read values of dialects that write them as bare text: the schema decides whether `2` is a number or a string.

That is the format, not a repair: the models are trained on values without quotes, so a conversion is no fix. Types are
tried in the order null, integer, number, boolean, object, array, string, and the first that fits is taken, as vLLM
0.32, SGLang 0.5 and Ollama do. Where the schema allows only strings the text is the value, also `007` and `null`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.jsontext.read import Unreadable, read_whole_value
from promptools.schema.coerce import TYPE_ORDER, UNREADABLE, parse_text
from promptools.types import Fix

ANY_TYPE = frozenset(TYPE_ORDER)
STRING_ONLY = frozenset(("string",))


def read_parameter(rules: ParseOptions, tool: str, key: str, text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Read the bare text of a tool's parameter: its value, and the fixes made to read it. O(n) in characters.

    A parameter that an offered tool does not declare is a string: nothing shows that it is more. If the tool declares
    none at all, any type is tried.
    """
    tools = rules.tools
    keys = tools.keys(tool) if tools is not None else frozenset[str]()
    if not keys or tools is None:
        return read_typed(text, frozenset())
    return read_typed(text, tools.types(tool, key) if key in keys else STRING_ONLY)


def read_typed(text: str, types: frozenset[str]) -> tuple[Any, tuple[Fix, ...]]:
    """Read a value of one of the JSON types `types` (any, if empty); a text that fits none is a string."""
    if types == STRING_ONLY:
        return text, ()
    bare = text.strip()
    for kind in TYPE_ORDER:
        if kind == "string" or kind not in (types or ANY_TYPE):
            continue
        value = parse_text(kind, bare)
        if value is not UNREADABLE:
            return value, ()
        opener = {"object": "{", "array": "["}.get(kind)
        if opener is not None and types and bare.startswith(opener):
            with suppress(Unreadable):
                repaired = read_whole_value(bare)
                return repaired.value, repaired.fixes
    return text, ()
