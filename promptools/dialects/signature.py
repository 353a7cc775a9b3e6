"""Write a tool for a prompt: types, enums, defaults, nesting and descriptions, in lines that a small model can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptools.dialects.settle import dump
from promptools.types import Tool

DEEPEST = 6
"""Levels of nesting that are written out."""


def describe(tool: Tool) -> str:
    """Write one tool as Markdown: a heading, its description, a line for each parameter."""
    lines = [f"### {tool.name}"]
    if tool.description.strip():
        lines.append(tool.description.strip())
    properties = _properties(tool.parameters, tool.parameters)
    if properties:
        lines.append("Parameters:")
        lines.extend(_lines(tool.parameters, tool.parameters, 0))
    else:
        lines.append("Parameters: none")
    return "\n".join(lines)


def _lines(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[str]:
    required = schema.get("required", ())
    for name, inner in _properties(schema, root).items():
        node = resolve(inner, root)
        facts = [type_of(node, root), "required" if name in required else "optional"]
        if isinstance(node, Mapping) and "default" in node:
            facts.append(f"default {dump(node['default'])}")
        text = " ".join(str(node.get("description", "")).split()) if isinstance(node, Mapping) else ""
        yield f"{'  ' * depth}- {name} ({', '.join(facts)})" + (f": {text}" if text else "")
        nested = _nested(node, root)
        if nested is not None and depth < DEEPEST:
            yield from _lines(nested, root, depth + 1)


def _properties(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    node = resolve(schema, root)
    properties = node.get("properties") if isinstance(node, Mapping) else None
    return dict(properties) if isinstance(properties, Mapping) else {}


def _nested(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the object inside a property: itself, its items, or the one variant that is an object."""
    if not isinstance(node, Mapping):
        return None
    if _properties(node, root):
        return node
    if "items" in node:
        return _nested(resolve(node["items"], root), root)
    variants = [resolve(each, root) for key in ("anyOf", "oneOf") for each in node.get(key, ())]
    objects = [each for each in variants if _properties(each, root)]
    return objects[0] if len(objects) == 1 else None


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow `$ref` inside `root`; a reference that leads nowhere gives the schema as it is."""
    for _ in range(32):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        found: Any = root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is None:
            return schema
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**found, **rest} if isinstance(found, Mapping) and rest else found
    return schema


def type_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """Write a type in a few words: `string`, `"c" | "f"`, `array of integer`, `string or null`."""
    node = resolve(schema, root)
    if not isinstance(node, Mapping) or depth > DEEPEST:
        return "any"
    if "const" in node:
        return dump(node["const"])
    if isinstance(node.get("enum"), list):
        return " | ".join(dump(value) for value in node["enum"])
    variants = node.get("anyOf") or node.get("oneOf")
    if isinstance(variants, list):
        return _either(type_of(each, root, depth + 1) for each in variants)
    all_of = node.get("allOf")
    if isinstance(all_of, list) and len(all_of) == 1:
        return type_of(all_of[0], root, depth + 1)
    kinds = node.get("type", "object" if "properties" in node else "any")
    names = kinds if isinstance(kinds, list) else [kinds]
    return _either(_with_items(str(name), node, root, depth) for name in names)


def _either(types: Iterator[str]) -> str:
    return " or ".join(dict.fromkeys(types))


def _with_items(name: str, node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if name == "array" and "items" in node:
        return f"array of {type_of(node['items'], root, depth + 1)}"
    return name
