"""A call whose arguments come one by one as bare text: typed by the schema, emitted as they come, then decided."""

from __future__ import annotations

import re
from typing import Any

from promptools.dialects.envelope import NoCall, Node, Said
from promptools.dialects.live import LiveArguments
from promptools.dialects.settle import Place, Rules, broken, checked, dump, settle
from promptools.dialects.values import read, value_of
from promptools.parsing.parts import Fragment, Started
from promptools.types import Call, Fix, Malformed, Tool

KINDS = {
    **{each: each for each in ("string", "integer", "number", "boolean", "object", "array", "null")},
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array",
}  # fmt: skip
"""JSON types by the names that models give them."""

_ONE_WORD = re.compile(r"[^\W\d][\w.:/-]{0,127}\Z")
"""The name of a tool that nobody listed: text with spaces between two tags is not a name."""


class Gathered:
    """What is known of one call so far."""

    def __init__(self, rules: Rules, place: Place, *, firm: bool) -> None:
        self.rules = rules
        self.fixes: list[Fix] = []
        """Fixes of the markup."""
        self.wrong = ""
        """Why it cannot be read; empty if it can."""
        self.tool: Tool | None = None
        self.name = ""
        self.arguments: dict[str, Any] = {}
        self.place = place
        self._firm = firm
        self._members: list[str] = []
        self.coerced: list[Fix] = []
        self._live: LiveArguments | None = None

    @property
    def meant(self) -> bool:
        """Whether a call is intended here, whatever tool it names."""
        return self.place.meant

    def take_name(self, said: str) -> list[Started | Fragment] | None:
        """Set the name, the longest declared one first.

        Return what may be emitted at once, or None if this is not a call.
        """
        tools = self.rules.tools
        resolved = tools.find(said) if tools is not None and "<" not in said else None
        if resolved is None:
            self.name = said
            likely = tools is None or self.meant or self.place.alone
            return [] if likely and _ONE_WORD.match(said) else None
        self.tool, fix = resolved
        self.name = self.tool.name
        self.fixes += [fix] if fix is not None else []
        if not (self.meant and self._firm):
            return []
        self._live = LiveArguments(self.rules, self.name)
        return self._live.feed("{")

    def may_become(self, said: str) -> bool:
        """Return whether a name that was cut off may become that of a tool."""
        if self.rules.tools is None:
            return _ONE_WORD.match(said) is not None
        return any(name.startswith(said) or said.startswith(name) for name in self.rules.tools.names)

    def glued(self, said: str) -> tuple[str, str] | None:
        """Split a name from a key glued to it: the longest offered name whose rest is one of its keys, or None."""
        tools = self.rules.tools
        for name in sorted(tools.names if tools is not None else (), key=len, reverse=True):
            if said.startswith(name) and tools is not None and said[len(name) :].strip() in tools.keys(name):
                return name, said[len(name) :].strip()
        return None

    def is_new(self, key: str) -> bool:
        """Return whether the tool declares this parameter and the call has not given it yet."""
        tools = self.rules.tools
        declared = tools is None or self.tool is None or key in tools.keys(self.tool.name)
        return declared and key not in self.arguments

    def add(self, key: str, text: str, kind: str = "") -> list[Started | Fragment]:
        """Add an argument, of type `kind` if the model gave one, and return what may be emitted of it."""
        if kind in KINDS:
            value, fixes = read(text, frozenset((KINDS[kind],)))
        else:
            value, fixes = value_of(self.rules, self.name, key, text)
        return self.put(key, value, fixes)

    def put(self, key: str, value: Any, fixes: tuple[Fix, ...] = ()) -> list[Started | Fragment]:
        """Add an argument whose value has been read, and return what may be emitted of it."""
        if key in self.arguments:
            self.fixes.append(Fix("duplicate", f"{key!r} stood twice"))
        self.arguments[key] = value
        self.coerced += fixes
        member = f"{dump(key)}: {dump(value)}"
        self._members.append(member)
        if self._live is None:
            return []
        return self._live.feed(f"{' ' if len(self._members) > 1 else ''}{member},")

    def outcome(self) -> Call | Malformed:
        """Build the call or its failure. Raise `NoCall` if it is not a call."""
        place = self.place
        if self.rules.strictness == "strict" and not self.meant and self._liberties():
            raise NoCall("strict takes no liberties with the markup")
        if self.wrong:
            return self.broken(self.wrong)
        fixes = [*self.fixes, *self.coerced]
        if self.tool is None and not (self.meant or self.arguments) and self.rules.tools is not None:
            raise NoCall("a word alone is no call")
        if self.tool is None:
            node = Node(self.arguments, "", 0, 0, exact=False)
            return settle(Said(node, self.name, node, {}, tuple(fixes)), self.rules, place)
        outcome = checked(self.tool, self.arguments, None, fixes, self.rules, place)
        return self._live.settle(outcome) if self._live is not None else outcome

    def truncated(self) -> Malformed:
        """Return a failure: the text ended inside the call."""
        return broken("truncated", "the text ended inside it", self.place.dialect, self.name or None)

    def broken(self, why: str) -> Malformed:
        """Return a failure: the call cannot be read."""
        return broken("invalid_json", why, self.place.dialect, self.name or None)

    def _liberties(self) -> bool:
        return bool(self.wrong) or any(fix.kind != "name" for fix in self.fixes)
