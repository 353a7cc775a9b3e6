"""Parameters as elements inside elements, read by their schemas.

A list is written as `<item>` elements, or as elements of one name; an object as an element for each of its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from promptools.dialects.calls.bare_values import read_typed
from promptools.dialects.readers.tags.tag_names import Tag
from promptools.dialects.rendering.signature import resolve_reference
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.schema.documents import type_name
from promptools.types import Fix, Tool

ITEM = "item"
MAX_ELEMENT_DEPTH = 64
"""Deepest nesting of elements in the tree."""
MAX_UNMARKED_DEPTH = 8
"""Deepest nesting of elements without marks, where each level is searched again."""
_OPENING_TAG = lazy_pattern(r"\s*<([A-Za-z_][\w.-]{0,63})>")


@dataclass(slots=True)
class Element:
    """One element: its name, the text between its tags, and the elements in it."""

    name: str
    text: list[str] = field(default_factory=list[str])
    children: list[Element] = field(default_factory=list["Element"])

    def has_stray_text(self, mark: str) -> bool:
        """Return whether there is text beside the elements in it, at any level; layout and lone marks do not count."""
        beside = self.children and "".join(self.text).replace(mark, "").strip()
        return bool(beside) or any(child.has_stray_text(mark) for child in self.children)


def build_tree(tokens: Sequence[Tag | str], tag_prefix: str) -> tuple[Element, list[Fix]]:
    """Build the elements from the tags that begin with `tag_prefix`; all other tags are text. O(n)."""
    root = Element("")
    stack = [root]
    fixes: list[Fix] = []
    for token in tokens:
        if not isinstance(token, str) and token.close and _is_repeated_closer(token, stack):
            fixes.append(Fix("closer", f"{token.raw!r} too many"))
        elif isinstance(token, str) or token.kind != "element" or not token.raw.startswith(tag_prefix):
            stack[-1].text.append(token if isinstance(token, str) else token.raw)
        elif not token.close:
            made = Element(token.name or "")
            stack[-1].children.append(made)
            if not token.empty and len(stack) < MAX_ELEMENT_DEPTH:
                stack.append(made)
        else:
            open_names = [element.name for element in stack[1:]]
            if token.name not in open_names:
                fixes.append(Fix("closer", f"{token.raw!r} too many"))
                continue
            while stack.pop().name != token.name:
                fixes.append(Fix("closer", f"closed by {token.raw!r}"))
    fixes += [Fix("closer", f"no closer of {element.name!r}") for element in stack[1:]]
    return root, fixes


def _is_repeated_closer(token: Tag, stack: list[Element]) -> bool:
    """Return whether a closing tag, with its mark or without, repeats that of the element before, outside of values."""
    last = stack[-1].children[-1:]
    return token.kind == "element" and len(stack) == 1 and bool(last) and last[0].name == token.name


def read_members(element: Element, schema: Any, root: dict[str, Any], *, allow_any: bool = True) -> dict[str, Any]:
    """Read an element's children as an object's members. `allow_any`: those undeclared may have any type."""
    groups: dict[str, list[Element]] = {}
    for child in element.children:
        groups.setdefault(child.name, []).append(child)
    properties = _variant(schema, root, "properties").get("properties")
    known: dict[str, Any] = properties if is_object(properties) else {}
    values: dict[str, Any] = {}
    for name, elements in groups.items():
        inner = known.get(name, {} if allow_any or not known else {"type": "string"})
        if len(elements) == 1:
            values[name] = _read_value(elements[0], inner, root)
        else:
            items = _variant(inner, root, "items").get("items", {})
            values[name] = [_read_value(element, items, root) for element in elements]
    return values


def _read_value(element: Element, schema: Any, root: dict[str, Any]) -> Any:
    kinds = schema_types(schema, root)
    if element.children:
        if "array" in kinds or ("object" not in kinds and all(child.name == ITEM for child in element.children)):
            items = _variant(schema, root, "items").get("items", {})
            return [_read_value(child, items, root) for child in element.children]
        return read_members(element, schema, root)
    text = "".join(element.text)
    if not text.strip() and kinds and "string" not in kinds:
        if "array" in kinds:
            return []
        if "object" in kinds:
            return {}
    if "<" in text and kinds and "string" not in kinds and (unmarked := read_unmarked(text)) is not None:
        return _read_value(unmarked, schema, root)
    if text.strip().lower() in ("none", "null") and text.strip() != "null":
        kinds = kinds or frozenset(("string",))  # only `null` spells the null value
        kinds -= {"null"}
    return read_typed(text, kinds)[0]


def read_unmarked(text: str, depth: int = 0) -> Element | None:
    """Read elements without marks, each up to the next closing tag of its name. None if the text is not elements."""
    root = Element("")
    at = 0
    while (match := _OPENING_TAG.match(text, at)) is not None:
        end = text.find(f"</{match[1]}>", match.end())
        if end < 0:
            return None
        inside = text[match.end() : end]
        inner = read_unmarked(inside, depth + 1) if "<" in inside and depth < MAX_UNMARKED_DEPTH else None
        if inner is not None:
            inner.name = match[1]
        root.children.append(inner if inner is not None else Element(match[1], [inside]))
        at = end + len(match[1]) + 3
    return root if root.children and not text[at:].strip() else None


def schema_types(schema: Any, root: dict[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema names, in itself or in its variants; empty if it names none."""
    node = resolve_reference(schema, root)
    kind = node.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if is_array(kind):
        return frozenset(name for name in kind if isinstance(name, str))
    kinds: set[str] = set()
    for keyword in ("anyOf", "oneOf", "allOf"):
        for variant in node.get(keyword, ()):
            kinds |= schema_types(variant, root) if variant is not schema else frozenset()
    constants = [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]
    kinds |= {type_name(value) for value in constants}
    kinds |= {kind for keyword, kind in (("properties", "object"), ("items", "array")) if keyword in node}
    return frozenset(kinds)


def item_types(tool: Tool | None, key: str) -> frozenset[str]:
    """Return the JSON types of the items of a list parameter; empty if the schema names none."""
    schema = tool.parameters if tool is not None else {}
    properties = _variant(schema, schema, "properties").get("properties")
    known = properties.get(key) if is_object(properties) else None
    return schema_types(_variant(known, schema, "items").get("items"), schema)


def _variant(schema: Any, root: dict[str, Any], keyword: str) -> dict[str, Any]:
    """Return the schema that has the keyword `keyword`: itself, or the first such variant."""
    node = resolve_reference(schema, root)
    if keyword in node:
        return node
    variants = [
        resolve_reference(variant, root) for key in ("anyOf", "oneOf", "allOf") for variant in node.get(key, ())
    ]
    return next((variant for variant in variants if keyword in variant), node)
