"""One call of `call(name) / parameter(key) value` markup: its parameters so far, and the call made of them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from promptools.dialects.calls.bare_values import read_parameter, read_typed
from promptools.dialects.calls.envelope import JsonNode, UnresolvedCall
from promptools.dialects.calls.resolve import Evidence, ParseOptions, resolve_call
from promptools.dialects.readers.markup.tag_names import SHARED_NAMES, Tag, TagNames
from promptools.errors import clip
from promptools.jsontext.read import Unreadable, read_value
from promptools.types import Call, Fix, Malformed, Tool

Trim = Literal["line", "verbatim", "strip"]
"""Which white space around a value is layout: one line break on each side, none, or all of it."""

LAYOUT = " \t\r\n"
MAX_FIXES = 8
"""Odd tags of one call that are recorded."""
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_VALUE = re.compile(r"\s*<value>(.*)</value>\s*", re.DOTALL)


class MarkupGrammar(NamedTuple):
    """The tags that one family writes, and the variations that it allows."""

    canonical: re.Pattern[str]
    """Every tag as the family is trained to write it."""
    wrapper: tuple[str, str]
    """The tags around calls."""
    closers: tuple[str, str]
    """The closing tags of a call and of a parameter."""
    trim: Trim = "verbatim"
    unwrapped: bool = False
    """Calls come without a wrapper."""
    cdata: bool = False
    """Values may be in CDATA sections."""
    json_calls: bool = False
    """The wrapper may hold calls as JSON."""
    namespaced: bool = False
    """Names may have any namespace before them."""
    other_wrappers: tuple[tuple[str, str], ...] = ()
    """Further tags around calls that it writes."""
    unclosed_value: Literal["closer", "marker"] = "closer"
    """What a fix of a value without its closing tag counts as."""
    elements: bool = False
    """Parameters are elements of their keys."""
    names: TagNames = SHARED_NAMES
    """The names of its tags."""

    def spelling_fix(self, tag: Tag) -> Fix | None:
        """Return the fix for a tag that is not as the family is trained to write it."""
        if self.canonical.fullmatch(tag.raw):
            return None
        return Fix("marker", f"the tag was written {clip(tag.raw, 60)!r}")

    def missing_value_closer(self) -> Fix:
        """Return the fix for a value without its closing tag."""
        return Fix(self.unclosed_value, f"no {self.closers[1]!r}")

    def missing_call_closer(self) -> Fix | None:
        """Return the fix for a call without its closing tag."""
        return Fix("closer", f"no {self.closers[0]!r}") if self.closers[0] else None


class MarkupCall:
    """A call whose name is known, and the parameters that have come so far."""

    def __init__(self, name: str, grammar: MarkupGrammar, rules: ParseOptions) -> None:
        self.fixes: list[Fix] = []
        resolved = rules.tools.find(name) if rules.tools is not None else None
        last = name.rpartition(".")[2]
        if resolved is None and grammar.namespaced and rules.tools is not None and rules.tools.get(last) is not None:
            self.fixes.append(Fix("name", f"{clip(name)!r} to {last!r}"))
            name, resolved = last, rules.tools.find(last)
        self.written_name = name
        self.tool: Tool | None = resolved[0] if resolved is not None else None
        self._values: dict[str, Any] = {}
        self._last: tuple[str, list[str], str | None] | None = None
        """The last parameter, not read yet: text after the call may still be part of it."""
        self.unclosed = False
        """The text ended before its closing tag."""
        self.error = ""
        """Why its arguments are uncertain."""
        self.holds_opener = False
        """A value holds the opening tag of a parameter without its closing tag."""
        self._grammar = grammar
        self._rules = rules

    def declares(self, key: str) -> bool:
        """Return whether the tool has a parameter of this name; True if its schema is unknown."""
        tools = self._rules.tools
        return tools is None or self.tool is None or key in tools.keys(self.tool.name)

    def record_fix(self, fix: Fix) -> None:
        """Record a fix, at most `MAX_FIXES` and each once."""
        if fix not in self.fixes and len(self.fixes) < MAX_FIXES:
            self.fixes.append(fix)

    @property
    def values(self) -> dict[str, Any]:
        """The values of its parameters by name."""
        if self._last is not None:
            (key, pieces, string), self._last = self._last, None
            self.add(key, "".join(pieces), string=string)
        return self._values

    def add_revocable(self, key: str, pieces: list[str], *, string: str | None) -> None:
        """Add a parameter that may be taken back."""
        assert self.values is self._values
        self._last = key, pieces, string

    def revoke_last(self) -> None:
        """Forget the last parameter, which has not ended yet."""
        self._last = None

    def add(self, key: str, text: str, *, string: str | None = None, inline: bool = False) -> None:
        """Add a parameter. `string`: its tag's attribute on its type; `inline`: its value is in the tag itself."""
        value, fixes = self._read_value(key, text if inline else self.strip_layout(text), string)
        for fix in fixes:
            self.record_fix(fix)
        if key in self._values:
            if self._values[key] == value and type(self._values[key]) is type(value):
                self.record_fix(Fix("duplicate", f"{key!r} came twice"))
            else:
                self.record_fix(Fix("duplicate", f"{key!r} came twice: the last one counts"))
        self._values[key] = value

    def strip_layout(self, text: str) -> str:
        """Return a value's text without the layout around it."""
        if self._grammar.cdata and "<![CDATA[" in text:
            sections: list[str] = _CDATA.findall(text)
            outside = _CDATA.sub("", text)
            return "".join(sections) if not outside.strip() else _CDATA.sub(r"\1", text)
        wrapped = _VALUE.fullmatch(text)
        if wrapped is not None and "<value>" not in wrapped[1]:
            self.record_fix(Fix("unwrap", "the value was in <value>"))
            text = wrapped[1]
        if self._grammar.trim == "strip":
            return text.strip(LAYOUT)
        if self._grammar.trim == "verbatim":
            return text
        return strip_matching_newlines(text)

    def _read_value(self, key: str, text: str, string: str | None) -> tuple[Any, tuple[Fix, ...]]:
        if string == "true":
            return text, ()
        if string == "false":
            with suppress(ValueError, RecursionError):
                return json.loads(text, parse_constant=_reject_constant), ()
            value = read_typed(text, frozenset())[0]
            return (value, ()) if value is not text else _repair(text)
        return read_parameter(self._rules, self.tool.name if self.tool is not None else self.written_name, key, text)

    def resolve(self, place: Evidence) -> Call | Malformed:
        """Resolve the call. Raise `NotACall` if it calls no offered tool."""
        node = JsonNode(self.values, "", 0, 0, exact=False)
        return resolve_call(UnresolvedCall(node, self.written_name, node, {}, tuple(self.fixes)), self._rules, place)


def _repair(text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Repair and read JSON; any other text stays a string, for the schema to judge."""
    try:
        value = read_value(text.strip())
    except Unreadable:
        return text, ()
    return (text, ()) if text.strip()[value.end :].strip() else (value.value, value.fixes)


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


def strip_matching_newlines(text: str) -> str:
    """Strip one line break from each side of a value on lines of its own."""
    for opening in ("\n", "\r\n"):
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(opening)
    return text
