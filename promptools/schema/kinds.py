"""The JSON types that a schema allows for a parameter, for dialects that write values as bare text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from promptools.schema.graph import Graph, is_array, is_object

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types_of(graph: Graph, key: str) -> frozenset[str]:
    """Return the JSON types that a parameter may have, as far as its schema says."""
    types: set[str] = set()
    for node in graph.spread(graph.root):
        properties = node.get("properties")
        if is_object(properties) and key in properties:
            for sub in graph.spread(properties[key]):
                types.update(_said(sub))
    return frozenset(types)


def _said(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if isinstance(kind, str):
        yield kind
    elif is_array(kind):
        yield from kind
    else:
        yield from _of(node.get("enum", ()))
        yield from _of([node["const"]] if "const" in node else ())
        yield from (implied for keyword, implied in (("properties", "object"), ("items", "array")) if keyword in node)


def _of(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield "null" if value is None else _KINDS[value.__class__]
