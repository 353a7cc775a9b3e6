"""One call of `call(name) / parameter(key) value` markup: its parameters so far, and the call made of them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from promptools.dialects.envelope import Node, Said
from promptools.dialects.settle import Place, Rules, settle
from promptools.dialects.values import read, value_of
from promptools.errors import clip
from promptools.types import Call, Fix, Malformed, Tool

Trim = Literal["line", "verbatim", "strip"]
"""Which white space around a value is layout: one line break on each side, none, or all of it."""

LAYOUT = " \t\r\n"
FIXES = 8
"""Odd tags of one call that are recorded."""
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_VALUE = re.compile(r"\s*<value>(.*)</value>\s*", re.DOTALL)


class Grammar(NamedTuple):
    """The tags that one family writes, and the variations that it allows."""

    canonical: re.Pattern[str]
    """Every tag as the family is trained to write it."""
    wrapper: tuple[str, str]
    """The tags around calls."""
    closers: tuple[str, str]
    """The closing tags of a call and of a parameter."""
    trim: Trim = "verbatim"
    bare: bool = False
    """Calls come without a wrapper."""
    cdata: bool = False
    """Values may be in CDATA sections."""
    objects: bool = False
    """The wrapper may hold calls as JSON."""
    spaced: bool = False
    """Names may have any namespace before them."""


class Collected:
    """A call whose name is known, and the parameters that have come so far."""

    def __init__(self, said: str, grammar: Grammar, rules: Rules) -> None:
        self.fixes: list[Fix] = []
        resolved = rules.tools.find(said) if rules.tools is not None else None
        last = said.rpartition(".")[2]
        if resolved is None and grammar.spaced and rules.tools is not None and rules.tools.get(last) is not None:
            self.fixes.append(Fix("name", f"{clip(said)!r} to {last!r}"))
            said, resolved = last, rules.tools.find(last)
        self.said = said
        self.tool: Tool | None = resolved[0] if resolved is not None else None
        self._values: dict[str, Any] = {}
        self._last: tuple[str, list[str], str | None] | None = None
        """The last parameter, not read yet: text after the call may still be part of it."""
        self.unclosed = False
        """The text ended before its closing tag."""
        self.wrong = ""
        """Why its arguments are uncertain."""
        self.holds_opener = False
        """A value holds the opening tag of a parameter without its closing tag."""
        self._grammar = grammar
        self._rules = rules

    def declares(self, key: str) -> bool:
        """Return whether the tool has a parameter of this name; True if its schema is unknown."""
        tools = self._rules.tools
        return tools is None or self.tool is None or key in tools.keys(self.tool.name)

    def note(self, fix: Fix) -> None:
        """Record a fix, at most `FIXES` and each once."""
        if fix not in self.fixes and len(self.fixes) < FIXES:
            self.fixes.append(fix)

    @property
    def values(self) -> dict[str, Any]:
        """The values of its parameters by name."""
        if self._last is not None:
            (key, pieces, string), self._last = self._last, None
            self.add(key, "".join(pieces), string=string)
        return self._values

    def add_last(self, key: str, pieces: list[str], *, string: str | None) -> None:
        """Add a parameter that may be taken back."""
        assert self.values is self._values
        self._last = key, pieces, string

    def take_back(self) -> None:
        """Forget the last parameter, which has not ended yet."""
        self._last = None

    def add(self, key: str, text: str, *, string: str | None = None, inline: bool = False) -> None:
        """Add a parameter. `string`: its tag's attribute on its type; `inline`: its value is in the tag itself."""
        value, fixes = self._value(key, text if inline else self.bare(text), string)
        for fix in fixes:
            self.note(fix)
        if key in self._values:
            if self._values[key] == value and type(self._values[key]) is type(value):
                self.note(Fix("duplicate", f"{key!r} stood twice"))
            else:
                self.note(Fix("duplicate", f"{key!r} stood twice: the last one holds"))
        self._values[key] = value

    def bare(self, text: str) -> str:
        """Return a value's text without the layout around it."""
        if self._grammar.cdata and "<![CDATA[" in text:
            sections: list[str] = _CDATA.findall(text)
            outside = _CDATA.sub("", text)
            return "".join(sections) if not outside.strip() else _CDATA.sub(r"\1", text)
        wrapped = _VALUE.fullmatch(text)
        if wrapped is not None and "<value>" not in wrapped[1]:
            self.note(Fix("unwrap", "the value stood in <value>"))
            text = wrapped[1]
        if self._grammar.trim == "strip":
            return text.strip(LAYOUT)
        if self._grammar.trim == "verbatim":
            return text
        return trimmed(text)

    def _value(self, key: str, text: str, string: str | None) -> tuple[Any, tuple[Fix, ...]]:
        if string == "true":
            return text, ()
        if string == "false":
            with suppress(ValueError, RecursionError):
                return json.loads(text, parse_constant=_refuse), ()
            return read(text, frozenset())
        return value_of(self._rules, self.tool.name if self.tool is not None else self.said, key, text)

    def settle(self, place: Place) -> Call | Malformed:
        """Resolve the call. Raise `NoCall` if it calls no offered tool."""
        node = Node(self.values, "", 0, 0, exact=False)
        return settle(Said(node, self.said, node, {}, tuple(self.fixes)), self._rules, place)


def _refuse(name: str) -> Any:
    raise ValueError(name)


def trimmed(text: str) -> str:
    """Strip one line break from each side of a value on lines of its own."""
    for opening in ("\n", "\r\n"):
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(opening)
    return text
