"""A call whose arguments come one by one as bare text: typed by the schema, emitted as they come, then decided."""

from __future__ import annotations

import re
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter, read_typed
from promptools.dialects.calls.envelope import JsonNode, NotACall, UnresolvedCall
from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump, malformed_call, resolve_call, validate_call
from promptools.dialects.calls.streaming import ArgumentStreamer
from promptools.parsing.parts import EarlyArguments, EarlyCallStart
from promptools.types import Call, Fix, Malformed, Tool

TYPE_NAMES = {
    **{each: each for each in ("string", "integer", "number", "boolean", "object", "array", "null")},
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array",
}  # fmt: skip
"""JSON types by the names that models give them."""

_NAME = re.compile(r"[^\W\d][\w.:/-]{0,127}\Z")
"""The name of a tool that nobody listed: text with spaces between two tags is not a name."""


class FieldCall:
    """What is known of one call so far."""

    def __init__(self, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        self.rules = rules
        self.fixes: list[Fix] = []
        """Fixes of the markup."""
        self.error = ""
        """Why it cannot be read; empty if it can."""
        self.tool: Tool | None = None
        self.name = ""
        self.arguments: dict[str, Any] = {}
        self.place = place
        self._firm = definite
        self._members: list[str] = []
        self.value_fixes: list[Fix] = []
        self._streamer: ArgumentStreamer | None = None

    @property
    def meant(self) -> bool:
        """Whether a call is intended here, whatever tool it names."""
        return self.place.implies_call

    def set_name(self, name: str) -> list[EarlyCallStart | EarlyArguments] | None:
        """Set the name, the longest declared one first.

        Return what may be emitted at once, or None if this is not a call.
        """
        tools = self.rules.tools
        resolved = tools.find(name) if tools is not None and "<" not in name else None
        if resolved is None:
            self.name = name
            likely = tools is None or self.meant or self.place.wrapper_first
            return [] if likely and _NAME.match(name) else None
        self.tool, fix = resolved
        self.name = self.tool.name
        self.fixes += [fix] if fix is not None else []
        if not (self.meant and self._firm):
            return []
        self._streamer = ArgumentStreamer(self.rules, self.name)
        return self._streamer.feed("{")

    def may_be_tool_name(self, prefix: str) -> bool:
        """Return whether a name that was cut off may become that of a tool."""
        if self.rules.tools is None:
            return _NAME.match(prefix) is not None
        return any(name.startswith(prefix) or prefix.startswith(name) for name in self.rules.tools.names)

    def split_glued_key(self, text: str) -> tuple[str, str] | None:
        """Split a name from a key glued to it: the longest offered name whose rest is one of its keys, or None."""
        tools = self.rules.tools
        for name in sorted(tools.names if tools is not None else (), key=len, reverse=True):
            if text.startswith(name) and tools is not None and text[len(name) :].strip() in tools.keys(name):
                return name, text[len(name) :].strip()
        return None

    def lacks(self, key: str) -> bool:
        """Return whether the tool declares this parameter and the call has not given it yet."""
        tools = self.rules.tools
        declared = tools is None or self.tool is None or key in tools.keys(self.tool.name)
        return declared and key not in self.arguments

    def add_text(self, key: str, text: str, type_name: str = "") -> list[EarlyCallStart | EarlyArguments]:
        """Add an argument, of type `type_name` if the model gave one, and return what may be emitted of it."""
        if type_name in TYPE_NAMES:
            value, fixes = read_typed(text, frozenset((TYPE_NAMES[type_name],)))
        else:
            value, fixes = read_parameter(self.rules, self.name, key, text)
        return self.add_value(key, value, fixes)

    def add_value(self, key: str, value: Any, fixes: tuple[Fix, ...] = ()) -> list[EarlyCallStart | EarlyArguments]:
        """Add an argument whose value has been read, and return what may be emitted of it."""
        if key in self.arguments:
            self.fixes.append(Fix("duplicate", f"{key!r} came twice"))
        self.arguments[key] = value
        self.value_fixes += fixes
        member = f"{dump(key)}: {dump(value)}"
        self._members.append(member)
        if self._streamer is None:
            return []
        return self._streamer.feed(f"{' ' if len(self._members) > 1 else ''}{member},")

    def resolve(self) -> Call | Malformed:
        """Build the call or its failure. Raise `NotACall` if it is not a call."""
        place = self.place
        if self.rules.strictness == "strict" and not self.meant and self._was_repaired():
            raise NotACall("strict allows no repair of the markup")
        if self.error:
            return self.as_malformed(self.error)
        fixes = [*self.fixes, *self.value_fixes]
        if self.tool is None and not (self.meant or self.arguments) and self.rules.tools is not None:
            raise NotACall("a word alone is no call")
        if self.tool is None:
            node = JsonNode(self.arguments, "", 0, 0, exact=False)
            return resolve_call(UnresolvedCall(node, self.name, node, {}, tuple(fixes)), self.rules, place)
        outcome = validate_call(self.tool, self.arguments, None, fixes, self.rules, place)
        return self._streamer.reconcile(outcome) if self._streamer is not None else outcome

    def as_truncated(self) -> Malformed:
        """Return a failure: the text ended inside the call."""
        return malformed_call("truncated", "the text ended inside it", self.place.dialect, self.name or None)

    def as_malformed(self, why: str) -> Malformed:
        """Return a failure: the call cannot be read."""
        return malformed_call("invalid_json", why, self.place.dialect, self.name or None)

    def _was_repaired(self) -> bool:
        return bool(self.error) or any(fix.kind != "name" for fix in self.fixes)
