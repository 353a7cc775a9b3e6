"""Write a tool for a prompt: types, enums, defaults, nesting and descriptions, in lines that a small model can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from promptools.dialects.settle import dump
from promptools.schema.graph import is_object
from promptools.types import Schema, Tool

DEEPEST = 6
"""Levels of nesting that are written out."""
MOST_REFERENCES = 32
"""References that are followed from one to the next: those inside an `$id` may lead elsewhere from the root."""


def describe(tool: Tool) -> str:
    """Write one tool as Markdown: a heading, its description, a line for each parameter."""
    lines = [f"### {tool.name}"]
    if tool.description.strip():
        lines.append(tool.description.strip())
    properties = _properties(tool.parameters, tool.parameters)
    if properties:
        lines.append("Parameters:")
        lines.extend(_lines(tool.parameters, tool.parameters))
    else:
        lines.append("Parameters: none")
    return "\n".join(lines)


def _lines(schema: Schema, root: Schema, outer: tuple[int, ...] = ()) -> Iterator[str]:
    """Write a line for each property; `outer` are the ids of the properties around: what is in itself ends there."""
    required = schema.get("required", ())
    properties = _properties(schema, root)
    within = (*outer, id(properties))
    for name, inner in properties.items():
        node = resolve(inner, root)
        facts = [type_of(node, root), "required" if name in required else "optional"]
        if "default" in node:
            facts.append(f"default {dump(node['default'])}")
        text = " ".join(node.get("description", "").split())
        yield f"{'  ' * len(outer)}- {name} ({', '.join(facts)})" + (f": {text}" if text else "")
        nested = _nested(node, root)
        if nested is not None and id(_properties(nested, root)) not in within and len(outer) < DEEPEST:
            yield from _lines(nested, root, within)


def _properties(schema: Any, root: Schema) -> dict[str, Any]:
    properties: dict[str, Any] = resolve(schema, root).get("properties", {})
    return properties


def _nested(node: Schema, root: Schema) -> Schema | None:
    """Give the object inside a property: itself, its items, or the one variant that is an object."""
    for _ in range(DEEPEST):
        if _properties(node, root):
            return node
        if "items" not in node:
            break
        node = resolve(node["items"], root)
    variants = [resolve(each, root) for key in ("anyOf", "oneOf") for each in node.get(key, ())]
    objects = [each for each in variants if _properties(each, root)]
    return objects[0] if len(objects) == 1 else None


def resolve(schema: Any, root: Schema) -> Schema:
    """Follow `$ref` inside `root`; what leads to no object there gives the schema as it is, `true` gives `{}`."""
    node: Schema = schema if is_object(schema) else {}
    for _ in range(MOST_REFERENCES):
        reference: str = node.get("$ref", "")
        found = _at_pointer(reference, root) if f"{reference}/".startswith("#/") else None
        if not is_object(found):
            break
        node = {**found, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def _at_pointer(reference: str, root: Schema) -> Any:
    found: Any = root
    for step in reference[1:].split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if is_object(found) else None
    return found


def type_of(schema: Any, root: Schema, depth: int = 0) -> str:
    """Write a type in a few words: `string`, `"c" | "f"`, `array of integer`, `string or null`."""
    node = resolve(schema, root)
    if depth > DEEPEST:
        return "any"
    if "const" in node:
        return dump(node["const"])
    if node.get("enum"):
        return " | ".join(dump(value) for value in node["enum"])
    variants = node.get("anyOf") or node.get("oneOf")
    if variants:
        return _either(type_of(each, root, depth + 1) for each in variants)
    all_of = node.get("allOf", ())
    if len(all_of) == 1:
        return type_of(all_of[0], root, depth + 1)
    kinds: str | list[str] = node.get("type", "object" if "properties" in node else "any")
    names = [kinds] if isinstance(kinds, str) else kinds
    return _either(_with_items(name, node, root, depth) for name in names)


def _either(types: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(types))


def _with_items(name: str, node: Schema, root: Schema, depth: int) -> str:
    if name == "array" and "items" in node:
        return f"array of {type_of(node['items'], root, depth + 1)}"
    return name
