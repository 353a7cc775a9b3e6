"""A fast path for valid arguments: the common part of JSON Schema compiled to plain Python predicates.

jsonschema explains what is wrong with a value, but most arguments are valid, and a predicate confirms that many times
faster. A schema that uses a keyword outside the common part gets no predicate, and jsonschema alone decides. Where
there is one, both always agree.

Recursion is handled by a forward reference: while a schema is being compiled, references to it get a predicate that
looks up the finished one when called. The cost of a predicate must stay linear in the value. It has no memory, so
alternatives in a recursive schema would double the cost of a "no" at each level, and many subschemas may apply to one
value; `loads` counts them. Schemas of either kind are left to jsonschema, whose run has a budget
(`promptools.schema.budget`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.schema import budget
from promptools.schema.graph import is_array, is_object
from promptools.schema.validate import is_integer, is_number, matches

if TYPE_CHECKING:
    from promptools.schema.graph import Graph
    from promptools.types import Schema

Predicate: TypeAlias = Callable[[Any], bool]

UNCOMMON = frozenset(
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
"""Assertions without a predicate."""
COMMON = frozenset(
    [
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "oneOf",
        "pattern",
        "properties",
        "required",
        "type",
    ]
)
"""Assertions with one; `format` asserts nothing in draft 2020-12."""

MOST_LOOKS = 256
"""Subschemas that may apply to one value; with more, jsonschema decides, which counts the cost."""

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
_OF_MEMBERS = frozenset(("properties", "required", "additionalProperties"))
_SIZES = {"Length": str, "Items": list, "Properties": dict}


class _UncommonError(Exception):
    """The schema uses something that has no predicate."""


def compile_schema(graph: Graph) -> Predicate | None:
    """Return the predicate of a schema; None where jsonschema alone must decide."""
    if any(not UNCOMMON.isdisjoint(node) for node in graph.nodes):
        return None
    compiler = _Compiler(graph)
    try:
        made = compiler.node(graph.root)
    except (_UncommonError, RecursionError):
        return None
    # in a tree with alternatives each level would double the cost of a "no"; our jsonschema keywords remember results
    forks = any(len(_in_place(graph, node)) + bool(_inside(node)) > 1 for node in graph.nodes)
    if (compiler.recursive and forks) or compiler.loads[id(graph.root)] > MOST_LOOKS:
        return None
    return _timed(made) if any("pattern" in node for node in graph.nodes) else made


def _timed(test: Predicate) -> Predicate:
    """Wrap a predicate so that all patterns of one value share a budget."""

    def timed(value: Any) -> bool:
        budget.begin(value)
        try:
            return test(value)
        finally:
            budget.end()

    return timed


def _in_place(graph: Graph, node: Schema) -> list[Any]:
    """Return the subschemas that apply to the same value as the node itself."""
    return [
        *graph.targets.get(id(node), ()),
        *(sub for keyword in ("allOf", "anyOf", "oneOf") for sub in node.get(keyword, ())),
    ]


def _inside(node: Schema) -> list[Any]:
    """Return the subschemas that apply to the members and items of the value."""
    return [
        *node.get("properties", {}).values(),
        *(node[keyword] for keyword in ("additionalProperties", "items") if keyword in node),
    ]


class _Compiler:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[int, Predicate] = {}
        self.loads: dict[int, int] = {}
        """How many subschemas apply to one value at most, by the id of the topmost of them."""
        self.open: set[int] = set()
        self.recursive = False

    def node(self, node: Any) -> Predicate:
        if isinstance(node, bool):
            return lambda _: node
        key = id(node)
        self.recursive |= key in self.open
        if key not in self.made:
            # a forward reference, for a schema that holds itself
            self.made[key] = lambda value: self.made[key](value)  # noqa: PLW0108  looked up when called, not now
            self.open.add(key)
            self.made[key] = _every(self.tests(node))
            inside = [self.loads.get(id(sub), 1) for sub in _inside(node)]
            self.loads[key] = max([1, *inside]) + sum(self.loads.get(id(sub), 1) for sub in _in_place(self.graph, node))
            self.open.discard(key)
        return self.made[key]

    def tests(self, node: Schema) -> list[Predicate]:
        tests = [self.node(target) for target in self.graph.targets.get(id(node), ())]
        kind = node.get("type")
        members, items = not _OF_MEMBERS.isdisjoint(node), "items" in node
        # the tests of members and of items check the type too
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
            tests.append(self.object(node))
        if items:
            tests.append(_items(self.node(node["items"]), other=kind != "array"))
        if "allOf" in node:
            tests += [self.node(sub) for sub in node["allOf"]]
        if "anyOf" in node:
            tests.append(_any([self.node(sub) for sub in node["anyOf"]]))
        if "oneOf" in node:
            tests.append(_one([self.node(sub) for sub in node["oneOf"]]))
        return tests

    def object(self, node: Schema) -> Predicate:
        known = {name: self.node(sub) for name, sub in node.get("properties", {}).items()}
        required: list[str] = node.get("required", [])
        other = self.node(node.get("additionalProperties", True))
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


def _every(tests: list[Predicate]) -> Predicate:
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda value: first(value) and second(value)
    return lambda value: all(test(value) for test in tests)


def _any(tests: list[Predicate]) -> Predicate:
    return lambda value: any(test(value) for test in tests)


def _one(tests: list[Predicate]) -> Predicate:
    return lambda value: sum(test(value) for test in tests) == 1


def _items(test: Predicate, *, other: bool) -> Predicate:
    """Return a predicate that tests each item of an array; `other` is its result for anything else."""
    return lambda value: all(map(test, value)) if is_array(value) else other


def _type(wanted: str | list[str]) -> Predicate:
    return _TYPES[wanted] if isinstance(wanted, str) else _any([_TYPES[name] for name in wanted])


def _enum(members: list[Any]) -> Predicate:
    if not all(isinstance(member, str | bool | None) or is_number(member) for member in members):
        raise _UncommonError
    # True == 1 in Python but not in JSON; 1 == 1.0 in both
    wanted = {(isinstance(member, bool), member) for member in members}

    def test(value: Any) -> bool:
        return isinstance(value, _SCALARS) and (isinstance(value, bool), value) in wanted

    return test


def _limits(node: Schema) -> list[Predicate]:
    tests: list[Predicate] = []
    if "minimum" in node:
        least = node["minimum"]
        tests.append(lambda value: not is_number(value) or value >= least)
    if "maximum" in node:
        most = node["maximum"]
        tests.append(lambda value: not is_number(value) or value <= most)
    if "exclusiveMinimum" in node:
        below = node["exclusiveMinimum"]
        tests.append(lambda value: not is_number(value) or value > below)
    if "exclusiveMaximum" in node:
        above = node["exclusiveMaximum"]
        tests.append(lambda value: not is_number(value) or value < above)
    return tests


def _sizes(node: Schema) -> list[Predicate]:
    tests: list[Predicate] = []
    for what, kind in _SIZES.items():
        least, most = node.get(f"min{what}"), node.get(f"max{what}")
        if least is not None or most is not None:
            tests.append(_size(kind, least or 0, float("inf") if most is None else most))
    return tests


def _size(kind: Any, least: float, most: float) -> Predicate:
    return lambda value: not isinstance(value, kind) or least <= len(value) <= most
