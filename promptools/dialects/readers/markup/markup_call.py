"""One call of `call(name) / parameter(key) value` markup: its parameters so far, and the call made of them."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

from promptools.dialects.calls.call_builder import ANY_JSON, CallBuilder
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.streaming.member_streamer import LAYOUT, Trim
from promptools.dialects.readers.tags.tag_names import SHARED_NAMES, Tag, TagNames
from promptools.errors import clip
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

STRING_ATTRIBUTE: Final = {"true": "string", "false": ANY_JSON}
"""The type of a value by the attribute that says whether it is a string, as DeepSeek writes it."""
_CDATA = lazy_pattern(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_VALUE = lazy_pattern(r"\s*<value>(.*)</value>\s*", re.DOTALL)


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
    json_closer: str = ""
    """The closing tag of a call's arguments that are one JSON object, where they have tags of their own."""
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


class MarkupCall(CallBuilder):
    """A call whose name is known, and the parameters that have come so far."""

    def __init__(self, name: str, grammar: MarkupGrammar, rules: ParseOptions) -> None:
        super().__init__(rules)
        resolved = rules.tools.find(name) if rules.tools is not None else None
        last = name.rpartition(".")[2]
        if resolved is None and grammar.namespaced and rules.tools is not None and rules.tools.get(last) is not None:
            self.fixes.append(Fix("name", f"{clip(name)!r} to {last!r}"))
            name, resolved = last, rules.tools.find(last)
        self.name = name
        self.tool = resolved[0] if resolved is not None else None
        self._last: tuple[str, list[str], str] | None = None
        """The last parameter, not read yet: text after the call may still be part of it."""
        self.unclosed = False
        """The text ended before its closing tag."""
        self.holds_opener = False
        """A value holds the opening tag of a parameter without its closing tag."""
        self._grammar = grammar

    @property
    def values(self) -> dict[str, Any]:
        """The values of its parameters by name."""
        if self._last is not None:
            (key, pieces, type_name), self._last = self._last, None
            self.add(key, "".join(pieces), type_name)
        return self.arguments

    def split_key(self, text: str) -> tuple[str, str]:
        """Split a key from the value glued to it, where the tag lost its bracket: `path/etc/hosts`."""
        tools = self.rules.tools
        keys = tools.keys(self.tool.name) if tools is not None and self.tool is not None else ()
        for key in sorted(keys, key=len, reverse=True):
            if text.startswith(key) and key not in self.values and re.match(r"[^\w.-]", text[len(key) :]):
                return key, text[len(key) :]
        return text, ""

    def add_revocable(self, key: str, pieces: list[str], type_name: str) -> None:
        """Add a parameter that may be taken back."""
        assert self.values is self.arguments
        self._last = key, pieces, type_name

    def revoke_last(self) -> None:
        """Forget the last parameter, which has not ended yet."""
        self._last = None

    def add(self, key: str, text: str, type_name: str = "", *, inline: bool = False) -> None:
        """Add a parameter. `type_name`: the type that its tag gives; `inline`: its value is in the tag itself."""
        self.put(key, *self.read(key, text if inline else self._strip_layout(text), type_name))

    def _strip_layout(self, text: str) -> str:
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

    def resolve(self, place: Evidence) -> Call | Malformed:
        """Build the call. Raise `NotACall` if it calls no offered tool."""
        assert self.values is self.arguments
        return self.resolve_in(place)


def strip_matching_newlines(text: str) -> str:
    """Strip one line break from each side of a value on lines of its own."""
    for opening in ("\n", "\r\n"):
        if text.startswith(opening):
            return text.removeprefix(opening).removesuffix(opening)
    return text
