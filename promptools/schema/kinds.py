"""The JSON types that a schema lets a parameter have, for dialects that write values as bare text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from promptools.schema.graph import Graph, is_array, is_object

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types_of(graph: Graph, key: str) -> frozenset[str]:
    """Give the JSON types that a parameter may have, as far as its schema says."""
    found: set[str] = set()
    for node in graph.spread(graph.root):
        properties = node.get("properties")
        if is_object(properties) and key in properties:
            for each in graph.spread(properties[key]):
                found.update(_said(each))
    return frozenset(found)


def _said(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if isinstance(kind, str):
        yield kind
    elif is_array(kind):
        yield from kind
    else:
        yield from _of(node.get("enum", ()))
        yield from _of([node["const"]] if "const" in node else ())
        yield from (each for word, each in (("properties", "object"), ("items", "array")) if word in node)


def _of(values: Iterable[Any]) -> Iterator[str]:
    for each in values:
        yield "null" if each is None else _KINDS[each.__class__]
