"""The content of an element: bare text, elements of its own, or a mapping in JSON or in lines of YAML."""

from __future__ import annotations

import re
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.bare_values import read_typed as read_as
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.readers.elements.element_tags import HTML_ELEMENTS
from promptools.dialects.readers.elements.element_tree import item_types
from promptools.dialects.readers.tags.field_call import FieldCall
from promptools.json_values import is_object
from promptools.jsontext.read import Unreadable, read_value
from promptools.patterns import lazy_pattern
from promptools.types import Fix

_OPENER = lazy_pattern(r"\s*<([\w.-]{1,80})>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
_ENTITY = lazy_pattern("|".join(_ENTITIES))
MAX_DEPTH = 8
"""Deepest nesting of elements in a value."""


class ElementArguments:
    """The arguments of a call whose parameters are elements; the element of a list may repeat."""

    def __init__(self, call: FieldCall, tool: str) -> None:
        self._call = call
        self._tool = tool
        self.texts: dict[str, str] = {}
        """The last text of each argument."""
        self._list_key = ""
        self._items: list[str] = []
        """Items of the list that was named last: each further element of its name adds one."""

    def types(self, key: str) -> frozenset[str]:
        """Return the JSON types of a parameter."""
        tools = self._call.rules.tools
        return tools.types(self._tool, key) if tools is not None else frozenset()

    def is_list(self, key: str) -> bool:
        """Return whether a parameter is a list, so that its element may repeat."""
        types = self.types(key)
        return "array" in types and "string" not in types

    def add(self, key: str, text: str, *, read: bool) -> None:
        """Add an element; not `read`: its tool is known only at the end."""
        if self._items and key == self._list_key:
            self._items.append(text)
            return
        self.end_list()
        if key in self.texts and self.is_list(key):
            self._call.error = f"{key!r} came twice, apart from each other"
        self.texts[key] = text
        if read and self.is_list(key):
            self._list_key, self._items = key, [text]
        elif read:
            self._call.put(key, *element_value(self._call.rules, self._tool, key, text))

    def end_list(self) -> None:
        """Add the list that is now complete."""
        items, self._items = self._items, []
        rules, key = self._call.rules, self._list_key
        if len(items) > 1:
            self._call.put(key, list_value(rules, self._tool, key, items))
        elif items:
            self._call.put(key, *element_value(rules, self._tool, key, items[0]))


def element_value(rules: ParseOptions, tool: str, key: str, text: str) -> tuple[Any, tuple[Fix, ...]]:
    """Read the value of a parameter. One line break on each side is layout."""
    text = strip_outer_newlines(text)
    declared = rules.tools is not None and key in rules.tools.keys(tool)
    types = rules.tools.types(tool, key) if declared and rules.tools is not None else frozenset[str]()
    if types & {"array", "object"} and "string" not in types and text.lstrip().startswith("<"):
        nested = _read_elements(text, as_list="array" in types, depth=0)
        if nested is not None:
            return nested, ()
    if "&lt;" in text and "<" not in text:
        unescaped = _ENTITY.sub(lambda match: _ENTITIES[match[0]], text)
        value, fixes = read_parameter(rules, tool, key, unescaped)
        return value, (Fix("marker", "its entities were decoded"), *fixes)
    return read_parameter(rules, tool, key, text)


def list_value(rules: ParseOptions, tool: str, key: str, texts: list[str]) -> list[Any]:
    """Read the items of a list, each of which came in an element of the parameter's name."""
    types = item_types(rules.tools.get(tool), key) if rules.tools is not None else frozenset[str]()
    return [_read_item(strip_outer_newlines(text), types) for text in texts]


def _read_item(text: str, types: frozenset[str]) -> Any:
    if text.lstrip().startswith("<") and "string" not in types:
        nested = _read_elements(text, as_list="array" in types, depth=0)
        if nested is not None:
            return nested
    return read_as(text, types)[0]


def strip_outer_newlines(text: str) -> str:
    """Strip one line break from each side."""
    text = text.removeprefix("\r").removeprefix("\n")
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def read_json_object(text: str) -> tuple[dict[str, Any], tuple[Fix, ...]] | None:
    """Read a body that is one JSON object; None if it is not."""
    body = text.strip()
    try:
        value = read_value(body)
    except Unreadable:
        return None
    return (value.value, value.fixes) if is_object(value.value) and value.end == len(body) else None


def read_undeclared(text: str) -> tuple[dict[str, Any], tuple[Fix, ...]] | None:
    """Read a body that is nothing but elements, each named once and none of HTML's, as undeclared arguments."""
    children = _split_elements(text)
    names = {name for name, _ in children or ()}
    if children is None or len(names) < len(children) or not names.isdisjoint(HTML_ELEMENTS):
        return None
    return {name: _read_item(strip_outer_newlines(inner), frozenset()) for name, inner in children}, ()


def _read_elements(text: str, *, as_list: bool, depth: int) -> Any:
    """Read elements as an object, or as a list of their contents; None if the text is anything else."""
    children = _split_elements(text)
    if children is None or depth > MAX_DEPTH:
        return None
    values = [(name, _read_content(inner, depth + 1)) for name, inner in children]
    names = {name for name, _ in values}
    if as_list and (len(names) <= 1 or _are_index_named(values)):
        return [value for _, value in values]
    if len(names) == len(values):
        return dict(values)
    return {name: _one_or_all([value for key, value in values if key == name]) for name, _ in values}


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _read_content(text: str, depth: int) -> Any:
    children = _split_elements(text)
    if children is None:
        return strip_outer_newlines(text)
    names = {name for name, _ in children}
    return _read_elements(text, as_list=names == {"item"} or _are_index_named(children), depth=depth)


def _are_index_named(children: list[tuple[str, Any]]) -> bool:
    """Return whether elements are named by their list indexes, as MorphXML numbers them: from 0 on."""
    return [name for name, _ in children] == [str(index) for index in range(len(children))]


def _split_elements(text: str) -> list[tuple[str, str]] | None:
    """Split a text that is nothing but elements into names and contents, else return None. O(n) for each level."""
    children: list[tuple[str, str]] = []
    at = 0
    while (opener := _OPENER.match(text, at)) is not None:
        end = _find_closing_tag(text, opener[1], opener.end())
        if end < 0:
            return None
        children.append((opener[1], text[opener.end() : end]))
        at = text.index(">", end) + 1
    return None if text[at:].strip() or not children else children


def _find_closing_tag(text: str, name: str, at: int) -> int:
    """Return the offset of the closing tag that matches an opening tag; -1 if there is none."""
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}\s*>").finditer(text, at):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.start()
    return -1
