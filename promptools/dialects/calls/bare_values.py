"""Read arguments that are written as text without quotes, such as `<days>2</days>`, and build a call from them.

The type of a value is given by the tool's schema or by a tag. `CallBuilder` collects the values and builds the call.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from promptools.dialects.calls.envelope import JsonNode, UnresolvedCall
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import resolve_call
from promptools.json_values import parse_finite_float, reject_constant
from promptools.jsontext.read import Unreadable, read_whole_value
from promptools.patterns import lazy_pattern
from promptools.schema.coerce import TYPE_ORDER, UNREADABLE, parse_text
from promptools.types import Call, Fix, Malformed, Tool

# Read values of dialects that write them as bare text: the schema decides whether `2` is a number or a string.
#
# That is the format, not a repair: the models are trained on values without quotes, so a conversion is not a fix. Types
# are tried in the order null, integer, number, boolean, object, array, string. The first that fits is taken, as in
# vLLM 0.32, SGLang 0.5 and Ollama. Where the schema allows only strings, the text is the value, even `007` or `null`;
# where it allows a string too, `007` and `+49` are strings: as numbers they would lose their zeros and their sign.


ANY_TYPE = frozenset(TYPE_ORDER)
STRING_ONLY = frozenset(("string",))
_NO_JSON_NUMBER = lazy_pattern(r"\+|-?0\d")
"""Matches a number that is not valid JSON, such as `007` or `+49`.

Such a number is read as a string if the parameter may be a string.
"""


def read_parameter(options: ParseOptions, tool: str, key: str, text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Read the text of a tool's parameter; return the value and the fixes. O(n) in characters.

    A parameter that the tool does not declare is a string, since no schema gives its type. If the tool declares no
    parameters at all, any type is tried.
    """
    tools = options.tools
    keys = tools.keys(tool) if tools is not None else frozenset[str]()
    if not keys or tools is None:
        return read_typed(text, frozenset())
    return read_typed(text, tools.types(tool, key) if key in keys else STRING_ONLY)


def read_typed(text: str, types: frozenset[str]) -> tuple[Any, tuple[Fix, ...]]:
    """Read a text as one of the JSON types in `types` (if empty, any type). If no type fits, the value is a string."""
    if types == STRING_ONLY:
        return text, ()
    bare = text.strip()
    may_be_text = not types or "string" in types
    for kind in TYPE_ORDER:
        if kind == "string" or kind not in (types or ANY_TYPE):
            continue
        value = parse_text(kind, bare)
        if value is not UNREADABLE and not (may_be_text and _NO_JSON_NUMBER.match(bare)):
            return value, ()
        opener = {"object": "{", "array": "["}.get(kind)
        if opener is not None and types and bare.startswith(opener):
            with suppress(Unreadable):
                repaired = read_whole_value(bare)
                return repaired.value, repaired.fixes
    return text, ()


# A call whose arguments are read one by one, as bare text.


MAX_FIXES: Final = 8
"""Maximum number of fixes that are recorded for the markup of one call."""
ANY_JSON: Final = "json"
"""The type name for a value that may be any JSON."""
TYPE_NAMES: Final = {
    **{name: name for name in ("string", "integer", "number", "boolean", "object", "array", "null")},
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array",
}  # fmt: skip
"""Maps each type name that models write to the JSON type."""


class CallBuilder:
    """Collects the name, the arguments and the fixes of one call, and builds the call from them."""

    def __init__(self, options: ParseOptions) -> None:
        self.options = options
        self.name = ""
        """The tool's name as the model wrote it."""
        self.tool: Tool | None = None
        self.arguments: dict[str, Any] = {}
        self.fixes: list[Fix] = []
        """Repairs of the tags and markers around the arguments."""
        self.value_fixes: list[Fix] = []
        self.error = ""
        """Why the call cannot be read; empty if it can be read."""

    @property
    def tool_name(self) -> str:
        """The name of the offered tool, or the name as the model wrote it if no such tool is offered."""
        return self.tool.name if self.tool is not None else self.name

    def declares(self, key: str) -> bool:
        """Return whether the tool has a parameter with this name; True if the tool's schema is unknown."""
        tools = self.options.tools
        return tools is None or self.tool is None or key in tools.keys(self.tool.name)

    def may_lack_only_its_closer(self, finish_reason: str | None) -> bool:
        """Return whether a call whose text has ended may be complete except for its closing tag.

        If there is a finish reason, it must say that the reply is complete. If there is none, the call must have all
        parameters that the tool declares. Call this only if the text ends after a whole argument.
        """
        if finish_reason is not None or self.tool is None or self.options.tools is None:
            return finish_reason in COMPLETE_FINISH_REASONS
        keys = self.options.tools.keys(self.tool.name)
        return bool(keys) and keys <= self.arguments.keys()

    def lacks(self, key: str) -> bool:
        """Return whether the tool declares this parameter but the call does not have it so far."""
        return key not in self.arguments and self.declares(key)

    def record_fix(self, fix: Fix) -> None:
        """Record a repair of the markup, unless it is already recorded or the limit of `MAX_FIXES` is reached."""
        if fix not in self.fixes and len(self.fixes) < MAX_FIXES:
            self.fixes.append(fix)

    def read(self, key: str, text: str, type_name: str = "") -> tuple[Any, tuple[Fix, ...]]:
        """Read the text of an argument; return the value and the fixes.

        `type_name` is the type that the argument's markup gives; empty if it gives none.
        """
        if type_name == ANY_JSON:
            return _read_json(text)
        # K2 Horizon writes a type beside each argument.
        if type_name in TYPE_NAMES:
            return read_typed(text, frozenset((TYPE_NAMES[type_name],)))
        return read_parameter(self.options, self.tool_name, key, text)

    def put(self, key: str, value: Any, fixes: tuple[Fix, ...] = ()) -> None:
        """Add an argument that has been read."""
        self.value_fixes += [fix for fix in fixes if fix not in self.value_fixes]
        if key in self.arguments:
            same = self.arguments[key] == value and type(self.arguments[key]) is type(value)
            self.record_fix(Fix("duplicate", f"{key!r} came twice{'' if same else ': the last one counts'}"))
        self.arguments[key] = value

    def resolve_in(self, evidence: Evidence) -> Call | Malformed:
        """Return the collected call, or a malformed call if the call cannot be run.

        Raises `NotACall` if no call was meant.
        """
        node = JsonNode(self.arguments, "", 0, 0, exact=False)
        fixes = (*self.fixes, *self.value_fixes)
        return resolve_call(UnresolvedCall(node, self.name, node, {}, fixes), self.options, evidence)


def _read_json(text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Read JSON, repaired if necessary. Any other text stays a string, which the schema may reject later."""
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=reject_constant, parse_float=parse_finite_float), ()
    value = read_typed(text, frozenset())[0]
    if value is not text:
        return value, ()
    with suppress(Unreadable):
        repaired = read_whole_value(text.strip())
        return repaired.value, repaired.fixes
    return text, ()
