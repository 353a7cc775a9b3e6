"""Confirm quickly that arguments are valid, with Python functions compiled from JSON Schemas (predicates).

jsonschema explains what is wrong with a value. But most arguments are valid, and a predicate confirms that they are,
many times faster. A predicate always agrees with jsonschema. A schema with a keyword that predicates do not support
gets no predicate, and only jsonschema is used.

A schema may refer to itself. While such a schema is being compiled, its reference to itself gets a predicate that looks
up the finished predicate when called.

The cost of a predicate must stay linear in the size of the value. So two kinds of schema are left to jsonschema, whose
validation has a budget (`promptools.schema.budget`). In a recursive schema with alternatives, each level would double
the cost of a negative result, since a predicate does not remember results. In other schemas, too many subschemas apply
to one value; `schemas_per_value` counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.json_values import is_array, is_object
from promptools.schema import budget
from promptools.schema.validate import is_integer, is_number, matches

if TYPE_CHECKING:
    from promptools.schema.graph import SchemaGraph
    from promptools.types import Schema


Predicate: TypeAlias = Callable[[Any], bool]

UNSUPPORTED_KEYWORDS = frozenset(
    [
        "$dynamicRef",
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "multipleOf",
        "not",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    ]
)
"""Keywords that predicates do not support: a schema with one of them is left to jsonschema."""
MAX_SCHEMAS_PER_VALUE = 256
"""Maximum number of subschemas that apply to one value. If there are more, jsonschema decides, within its budget."""

_TYPES: dict[str, Predicate] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": is_number,
    "null": lambda value: value is None,
}
_SCALARS = (str, int, float, type(None))
_MEMBER_KEYWORDS = frozenset(("properties", "required", "additionalProperties"))
_LIMITS = {"minimum": ge, "maximum": le, "exclusiveMinimum": gt, "exclusiveMaximum": lt}
_SIZES = {"Length": str, "Items": list, "Properties": dict}


class _UnsupportedError(Exception):
    """Raised if a keyword of the schema has a value that predicates do not support."""


def compile_predicate(graph: SchemaGraph) -> Predicate | None:
    """Return a function that tests whether a value is valid; None if the schema cannot be compiled to one."""
    if any(not UNSUPPORTED_KEYWORDS.isdisjoint(node) for node in graph.nodes):
        return None
    compiler = _Compiler(graph)
    try:
        made = compiler.compile_node(graph.root)
    except (_UnsupportedError, RecursionError):
        return None
    # in a tree with alternatives, each level would double the cost of a "no"; our jsonschema keywords remember results
    forks = any(len(_in_place(graph, node)) + bool(_member_schemas(node)) > 1 for node in graph.nodes)
    if (compiler.recursive and forks) or compiler.schemas_per_value[id(graph.root)] > MAX_SCHEMAS_PER_VALUE:
        return None
    return _with_budget(made) if any("pattern" in node for node in graph.nodes) else made


def _with_budget(test: Predicate) -> Predicate:
    """Wrap a predicate so that all pattern searches for one value share a budget."""

    def timed(value: Any) -> bool:
        budget.begin_run(value)
        try:
            return test(value)
        finally:
            budget.end_run()

    return timed


def _in_place(graph: SchemaGraph, node: Schema) -> list[Any]:
    """Return the subschemas that apply to the same value as the node itself."""
    return [
        *graph.targets.get(id(node), ()),
        *(sub for keyword in ("allOf", "anyOf", "oneOf") for sub in node.get(keyword, ())),
    ]


def _member_schemas(node: Schema) -> list[Any]:
    """Return the subschemas that apply to the members and items of a value."""
    return [
        *node.get("properties", {}).values(),
        *(node[keyword] for keyword in ("additionalProperties", "items") if keyword in node),
    ]


class _Compiler:
    def __init__(self, graph: SchemaGraph) -> None:
        self.graph = graph
        self.predicates: dict[int, Predicate] = {}
        self.schemas_per_value: dict[int, int] = {}
        """Maps the id of a subschema to the maximum number of subschemas, itself included, that apply to one value."""
        self.in_progress: set[int] = set()
        self.recursive = False

    def compile_node(self, node: Any) -> Predicate:
        if isinstance(node, bool):
            return lambda _: node
        key = id(node)
        self.recursive |= key in self.in_progress
        if key not in self.predicates:
            # a forward reference, for a schema that refers to itself
            self.predicates[key] = lambda value: self.predicates[key](value)  # noqa: PLW0108  looked up when called, not now
            self.in_progress.add(key)
            self.predicates[key] = _all_of(self.compile_keywords(node))
            inside = [self.schemas_per_value.get(id(sub), 1) for sub in _member_schemas(node)]
            self.schemas_per_value[key] = max([1, *inside]) + sum(
                self.schemas_per_value.get(id(sub), 1) for sub in _in_place(self.graph, node)
            )
            self.in_progress.discard(key)
        return self.predicates[key]

    def compile_keywords(self, node: Schema) -> list[Predicate]:
        tests = [self.compile_node(target) for target in self.graph.targets.get(id(node), ())]
        kind = node.get("type")
        members, items = not _MEMBER_KEYWORDS.isdisjoint(node), "items" in node
        # the tests for members and for items check the type too
        tested = (members and kind == "object") or (items and kind == "array")
        if kind is not None and not tested:
            tests.append(_type(kind))
        if "enum" in node:
            tests.append(_enum(node["enum"]))
        if "const" in node:
            tests.append(_enum([node["const"]]))
        tests += [*_limits(node), *_sizes(node)]
        if "pattern" in node:
            pattern: str = node["pattern"]
            tests.append(lambda value: not isinstance(value, str) or matches(pattern, value))
        if members:
            tests.append(self.compile_object(node))
        if items:
            tests.append(_items(self.compile_node(node["items"]), other=kind != "array"))
        if "allOf" in node:
            tests += [self.compile_node(sub) for sub in node["allOf"]]
        if "anyOf" in node:
            tests.append(_any_of([self.compile_node(sub) for sub in node["anyOf"]]))
        if "oneOf" in node:
            tests.append(_one_of([self.compile_node(sub) for sub in node["oneOf"]]))
        return tests

    def compile_object(self, node: Schema) -> Predicate:
        known = {name: self.compile_node(sub) for name, sub in node.get("properties", {}).items()}
        required: list[str] = node.get("required", [])
        other = self.compile_node(node.get("additionalProperties", True))
        no_object = node.get("type") != "object"

        def test(value: Any) -> bool:
            if not is_object(value):
                return no_object
            for name in required:
                if name not in value:
                    return False
            for name, member in value.items():  # noqa: SIM110  all() over a generator costs half as much again
                if not known.get(name, other)(member):
                    return False
            return True

        return test


def _all_of(tests: list[Predicate]) -> Predicate:
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda value: first(value) and second(value)
    return lambda value: all(test(value) for test in tests)


def _any_of(tests: list[Predicate]) -> Predicate:
    return lambda value: any(test(value) for test in tests)


def _one_of(tests: list[Predicate]) -> Predicate:
    return lambda value: sum(test(value) for test in tests) == 1


def _items(test: Predicate, *, other: bool) -> Predicate:
    """Return a predicate that tests each item of an array.

    `other` is the predicate's result for a value that is not an array.
    """
    return lambda value: all(map(test, value)) if is_array(value) else other


def _type(wanted: str | list[str]) -> Predicate:
    return _TYPES[wanted] if isinstance(wanted, str) else _any_of([_TYPES[name] for name in wanted])


def _enum(members: list[Any]) -> Predicate:
    if not all(isinstance(member, str | bool | None) or is_number(member) for member in members):
        raise _UnsupportedError
    # True == 1 in Python but not in JSON; 1 == 1.0 in both
    wanted = {(isinstance(member, bool), member) for member in members}

    def test(value: Any) -> bool:
        return isinstance(value, _SCALARS) and (isinstance(value, bool), value) in wanted

    return test


def _limits(node: Schema) -> list[Predicate]:
    return [_limit(compare, node[keyword]) for keyword, compare in _LIMITS.items() if keyword in node]


def _limit(compare: Callable[[Any, Any], bool], bound: float) -> Predicate:
    return lambda value: not is_number(value) or compare(value, bound)


def _sizes(node: Schema) -> list[Predicate]:
    tests: list[Predicate] = []
    for what, kind in _SIZES.items():
        least, most = node.get(f"min{what}"), node.get(f"max{what}")
        if least is not None or most is not None:
            tests.append(_size(kind, least or 0, float("inf") if most is None else most))
    return tests


def _size(kind: Any, least: float, most: float) -> Predicate:
    return lambda value: not isinstance(value, kind) or least <= len(value) <= most
