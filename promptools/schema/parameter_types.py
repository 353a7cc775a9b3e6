"""The JSON types that a schema allows for a parameter, for dialects that write values as bare text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from promptools.schema.documents.graph import SchemaGraph
from promptools.schema.documents.json_guards import is_array, is_object
from promptools.schema.documents.type_names import type_name


def parameter_types(graph: SchemaGraph, key: str) -> frozenset[str]:
    """Return the JSON types that a parameter may have, as far as its schema says."""
    types: set[str] = set()
    for node in graph.applied_nodes(graph.root):
        properties = node.get("properties")
        if is_object(properties) and key in properties:
            for sub in graph.applied_nodes(properties[key]):
                types.update(_stated_types(sub))
    return frozenset(types)


def _stated_types(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if isinstance(kind, str):
        yield kind
    elif is_array(kind):
        yield from kind
    else:
        yield from map(type_name, node.get("enum", ()))
        yield from map(type_name, [node["const"]] if "const" in node else ())
        yield from (implied for keyword, implied in (("properties", "object"), ("items", "array")) if keyword in node)
