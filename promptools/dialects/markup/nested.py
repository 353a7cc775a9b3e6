"""Parameters as elements inside elements: read by what the schema says about each of them.

A list is written as `<item>` elements, or as elements of one name; an object as an element for each of its members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from promptools.dialects.markup.tags import Tag
from promptools.dialects.signature import resolve
from promptools.dialects.values import read
from promptools.schema.graph import is_array, is_object
from promptools.types import Fix, Tool

ITEM = "item"
DEEPEST = 64
"""Levels of elements that are told apart."""
PLAIN = 8
"""Levels of elements without marks: each is looked for again in the one around it."""
_WORD = re.compile(r"\s*<([A-Za-z_][\w.-]{0,63})>")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


@dataclass(slots=True)
class Element:
    """One element, what stands between its tags, and the elements in it."""

    name: str
    text: list[str] = field(default_factory=list[str])
    children: list[Element] = field(default_factory=list["Element"])

    def strewn(self, mark: str) -> bool:
        """Tell whether words stand beside the elements in it, or in those; layout and lone marks are none."""
        beside = self.children and "".join(self.text).replace(mark, "").strip()
        return bool(beside) or any(each.strewn(mark) for each in self.children)


def tree(tokens: Sequence[Tag | str], marked: str) -> tuple[Element, list[Fix]]:
    """Build the elements out of the tags that begin with `marked`; all other tags are text. O(n)."""
    root = Element("")
    stack = [root]
    fixes: list[Fix] = []
    for token in tokens:
        if not isinstance(token, str) and token.close and _is_doubled(token, stack):
            fixes.append(Fix("closer", f"{token.raw!r} too many"))
        elif isinstance(token, str) or token.kind != "element" or not token.raw.startswith(marked):
            stack[-1].text.append(token if isinstance(token, str) else token.raw)
        elif not token.close:
            made = Element(token.name or "")
            stack[-1].children.append(made)
            if not token.empty and len(stack) < DEEPEST:
                stack.append(made)
        else:
            open_names = [each.name for each in stack[1:]]
            if token.name not in open_names:
                fixes.append(Fix("closer", f"{token.raw!r} too many"))
                continue
            while stack.pop().name != token.name:
                fixes.append(Fix("closer", f"closed by {token.raw!r}"))
    fixes += [Fix("closer", f"no closer of {each.name!r}") for each in stack[1:]]
    return root, fixes


def _is_doubled(token: Tag, stack: list[Element]) -> bool:
    """Tell whether a closer, with its mark or without, stands outside of values, behind the element that it closed."""
    last = stack[-1].children[-1:]
    return token.kind == "element" and len(stack) == 1 and bool(last) and last[0].name == token.name


def members(element: Element, schema: Any, root: dict[str, Any], *, free: bool = True) -> dict[str, Any]:
    """Read the children of an element as the members of an object. `free`: what is not declared may be anything."""
    found: dict[str, list[Element]] = {}
    for child in element.children:
        found.setdefault(child.name, []).append(child)
    properties = _variant(schema, root, "properties").get("properties")
    known: dict[str, Any] = properties if is_object(properties) else {}
    values: dict[str, Any] = {}
    for name, elements in found.items():
        inner = known.get(name, {} if free or not known else {"type": "string"})
        if len(elements) == 1:
            values[name] = _value(elements[0], inner, root)
        else:
            items = _variant(inner, root, "items").get("items", {})
            values[name] = [_value(each, items, root) for each in elements]
    return values


def _value(element: Element, schema: Any, root: dict[str, Any]) -> Any:
    kinds = kinds_of(schema, root)
    if element.children:
        if "array" in kinds or ("object" not in kinds and all(each.name == ITEM for each in element.children)):
            items = _variant(schema, root, "items").get("items", {})
            return [_value(each, items, root) for each in element.children]
        return members(element, schema, root)
    text = "".join(element.text)
    if not text.strip() and kinds and "string" not in kinds:
        if "array" in kinds:
            return []
        if "object" in kinds:
            return {}
    if "<" in text and kinds and "string" not in kinds and (unmarked := plain(text)) is not None:
        return _value(unmarked, schema, root)
    if text.strip().lower() in ("none", "null") and text.strip() != "null":
        kinds = kinds or frozenset(("string",))  # only `null` is nothing
        kinds -= {"null"}
    return read(text, kinds)[0]


def plain(text: str, depth: int = 0) -> Element | None:
    """Read elements without marks: each up to its next closer of that name. None where it is no such text."""
    root = Element("")
    at = 0
    while (found := _WORD.match(text, at)) is not None:
        end = text.find(f"</{found[1]}>", found.end())
        if end < 0:
            return None
        inside = text[found.end() : end]
        inner = plain(inside, depth + 1) if "<" in inside and depth < PLAIN else None
        if inner is not None:
            inner.name = found[1]
        root.children.append(inner if inner is not None else Element(found[1], [inside]))
        at = end + len(found[1]) + 3
    return root if root.children and not text[at:].strip() else None


def kinds_of(schema: Any, root: dict[str, Any]) -> frozenset[str]:
    """Give the JSON types that a schema names, in itself or in its variants; none where it names none."""
    node = resolve(schema, root)
    kind = node.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if is_array(kind):
        return frozenset(each for each in kind if isinstance(each, str))
    found: set[str] = set()
    for word in ("anyOf", "oneOf", "allOf"):
        for each in node.get(word, ()):
            found |= kinds_of(each, root) if each is not schema else frozenset()
    said = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
    found |= {"null" if each is None else _TYPES[type(each)] for each in said}
    found |= {kind for word, kind in (("properties", "object"), ("items", "array")) if word in node}
    return frozenset(found)


def items_of(tool: Tool | None, key: str) -> frozenset[str]:
    """Give the JSON types of the items of a parameter that is a list; none where the schema names none."""
    schema = tool.parameters if tool is not None else {}
    properties = _variant(schema, schema, "properties").get("properties")
    known = properties.get(key) if is_object(properties) else None
    return kinds_of(_variant(known, schema, "items").get("items"), schema)


def _variant(schema: Any, root: dict[str, Any], word: str) -> dict[str, Any]:
    """Give the schema that has `word`: itself, or the first of its variants."""
    node = resolve(schema, root)
    if word in node:
        return node
    variants = [resolve(each, root) for key in ("anyOf", "oneOf", "allOf") for each in node.get(key, ())]
    return next((each for each in variants if word in each), node)
