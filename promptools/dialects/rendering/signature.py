"""Describe a tool in a prompt: types, enums, defaults, nesting and descriptions, in lines small models can read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from promptools.json_values import count_values, is_array, is_object
from promptools.schema.documents import resolve_pointer
from promptools.types import Schema, Tool

MAX_DEPTH = 6
"""Levels of nesting that are written out at most."""
MAX_REFERENCES = 32
"""References in a chain that are followed at most: those inside an `$id` may lead elsewhere from the root."""
EXTRA_VISITS = 2000
"""Visits of subschemas beyond `VISITS_PER_SUBSCHEMA` for each that the tool has: references may multiply at each
level."""
VISITS_PER_SUBSCHEMA = 4
"""Visits of each subschema of the tool where no reference leads to it."""


def describe(tool: Tool) -> str:
    """Return a tool as Markdown: a heading, its description, a line for each parameter."""
    lines = [f"### {tool.name}"]
    if tool.description.strip():
        lines.append(tool.description.strip())
    written = list(_Signature(tool.parameters).lines(tool.parameters))
    if written:
        lines.append("Parameters:")
        lines.extend(written)
    else:
        lines.append("Parameters: none")
    return "\n".join(lines)


class _Signature:
    """Describes the parameters of one tool; `visits_left` is how many more subschemas may be visited."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.visits_left = EXTRA_VISITS + VISITS_PER_SUBSCHEMA * count_values(root)

    def lines(self, schema: Schema, outer: tuple[int, ...] = ()) -> Iterator[str]:
        """Yield a line for each property; `outer` are the ids of the enclosing objects, at which recursion stops."""
        required = schema.get("required")
        properties = self._properties(schema)
        within = (*outer, id(properties))
        for name, inner in properties.items():
            node = self.resolve(inner)
            facts = [self.type_of(node), "required" if is_array(required) and name in required else "optional"]
            if "default" in node:
                facts.append(f"default {_json(node['default'])}")
            description = node.get("description")
            text = " ".join(description.split()) if isinstance(description, str) else ""
            yield f"{'  ' * len(outer)}- {name} ({', '.join(facts)})" + (f": {text}" if text else "")
            nested = self._nested(node)
            if nested is not None and id(self._properties(nested)) not in within and len(outer) < MAX_DEPTH:
                yield from self.lines(nested, within)

    def resolve(self, schema: Any) -> Schema:
        self.visits_left -= 1
        return resolve_reference(schema, self.root) if self.visits_left > 0 else {}

    def _properties(self, schema: Any) -> dict[str, Any]:
        properties = resolve_reference(schema, self.root).get("properties")
        return properties if is_object(properties) else {}

    def _nested(self, node: Schema) -> Schema | None:
        """Return the object in a property: itself, its items, or the only variant that is an object; else None."""
        for _ in range(MAX_DEPTH):
            if self._properties(node):
                return node
            if "items" not in node:
                break
            node = self.resolve(node["items"])
        variants = [self.resolve(variant) for key in ("anyOf", "oneOf") for variant in _list(node, key)]
        objects = [variant for variant in variants if self._properties(variant)]
        return objects[0] if len(objects) == 1 else None

    def type_of(self, schema: Any, depth: int = 0) -> str:
        """Return a type in short: `string`, `"c" | "f"`, `array of integer`, `string or null`."""
        node = self.resolve(schema)
        if depth > MAX_DEPTH or self.visits_left <= 0:
            return "any"
        if "const" in node:
            return _json(node["const"])
        if _list(node, "enum"):
            return " | ".join(_json(value) for value in node["enum"])
        variants = _list(node, "anyOf") or _list(node, "oneOf")
        if variants:
            return _either(self.type_of(variant, depth + 1) for variant in variants)
        all_of = _list(node, "allOf")
        if len(all_of) == 1:
            return self.type_of(all_of[0], depth + 1)
        kinds = node.get("type", "object" if "properties" in node else "any")
        names = kinds if is_array(kinds) else [kinds]
        return _either(self._with_items(str(name), node, depth) for name in names)

    def _with_items(self, name: str, node: Schema, depth: int) -> str:
        if name == "array" and "items" in node:
            return f"array of {self.type_of(node['items'], depth + 1)}"
        return name


def resolve_reference(schema: Any, root: Schema) -> Schema:
    """Follow `$ref` inside `root`; return the schema as it is if that leads to no object, and {} for `true`."""
    node: Schema = schema if is_object(schema) else {}
    for _ in range(MAX_REFERENCES):
        reference = node.get("$ref")
        target = resolve_pointer(root, reference) if isinstance(reference, str) else None
        if not is_object(target):
            break
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def _list(node: Schema, key: str) -> list[Any]:
    value = node.get(key)
    return value if is_array(value) else []


def _either(types: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(types))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
