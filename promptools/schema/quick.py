"""A fast yes for valid arguments: the common part of JSON Schema as plain Python predicates.

jsonschema says what is wrong with a value; that a value is right can be said many times faster. A schema that uses
any keyword outside the common part has no predicate, and jsonschema alone decides. Both always agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from promptools.schema.graph import Graph

Predicate: TypeAlias = Callable[[Any], bool]


def compile_schema(graph: Graph) -> Predicate | None:
    """Make the predicate of a schema, or None where jsonschema alone must decide."""
    return None
