"""Validation by jsonschema (draft 2020-12): no I/O, patterns under a time limit, errors as sentences for the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import Any, cast

import regex

from promptools.errors import UsageError, clip
from promptools.schema.graph import Graph, pointer

PATTERN_SECONDS = 0.1
"""How long one pattern may search one string."""
MOST_ERRORS = 8
"""Sentences that one check gives at most: a model mends few at a time."""
ALTERNATIVES = 4
"""Alternatives of an `anyOf` that one sentence tells."""

KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}
WANTED = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
}


class PatternTimeoutError(Exception):
    """A pattern of the schema took longer than `PATTERN_SECONDS` on a value."""


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a schema's pattern; raises `regex.error`."""
    return regex.compile(pattern)


def matches(pattern: str, text: str) -> bool:
    """Say whether a pattern is found anywhere in a text; raises PatternTimeoutError."""
    try:
        return compile_pattern(pattern).search(text, timeout=PATTERN_SECONDS, concurrent=True) is not None
    except TimeoutError:
        raise PatternTimeoutError(
            f"the pattern {clip(pattern)!r} took too long on {clip(text, 60)!r}; give a shorter or simpler text"
        ) from None


def check_patterns(graph: Graph, tool: str) -> None:
    """Raise UsageError for a pattern that does not compile."""
    for node in graph.nodes:
        named = [(node["pattern"], "/pattern")] if "pattern" in node else []
        named += [(each, pointer(["patternProperties", each])) for each in node.get("patternProperties", ())]
        for pattern, step in named:
            try:
                compile_pattern(pattern)
            except (regex.error, RecursionError, OverflowError) as error:
                raise UsageError(
                    f"Tool {tool!r}: the pattern {clip(pattern)!r} at {graph.where[id(node)] + step!r} cannot be "
                    f"compiled: {error}. Write it as a regular expression that Python's regex module knows."
                ) from None


def is_number(value: object) -> bool:
    """Say whether a value is a JSON number: no boolean, and finite."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value - value == 0)


def is_integer(value: object) -> bool:
    """Say whether a value is an integer as programs take it: `3.0` is none, and is coerced to `3`."""
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(validator: Any, wanted: str, instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and not matches(wanted, instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: dict[str, Any], instance: Any, _: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "object"):
            for each, subschema in wanted.items():
                for key, value in instance.items():
                    if matches(each, key):
                        yield from validator.descend(value, subschema, path=key, schema_path=each)

    def additional(validator: Any, wanted: Any, instance: Any, schema: dict[str, Any]) -> Iterator[ValidationError]:
        if not validator.is_type(instance, "object"):
            return
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", ())
        for key in instance:
            if key in known or any(matches(each, key) for each in patterns):
                continue
            if wanted is False:
                yield ValidationError(f"there is no {clip(key)!r} here; known: {clip(', '.join(known)) or 'none'}")
            else:
                yield from validator.descend(instance[key], wanted, path=key)

    numbers = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: is_integer(value),
            "number": lambda _, value: is_number(value),
        }
    )
    keywords = {"pattern": pattern, "patternProperties": pattern_properties, "additionalProperties": additional}
    return extend(Draft202012Validator, keywords, type_checker=numbers)


class Validator:
    """One schema, compiled by jsonschema on first use."""

    __slots__ = ("_compiled", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._compiled: Any = None

    def errors(self, value: Any) -> Iterator[Any]:
        """Yield jsonschema's errors for a value; may raise whatever jsonschema, a pattern or recursion raises."""
        if self._compiled is None:
            from referencing import Registry

            self._compiled = _validator_class()(self.graph.root, registry=Registry())
        return cast(Iterator[Any], self._compiled.iter_errors(value))


def sentences(errors: Iterable[Any]) -> tuple[str, ...]:
    """Tell the first errors, one sentence each: where (JSON pointer), what is wrong, what is wanted."""
    told = [f"{_where(error)}: {describe(error)}" for error in islice(errors, MOST_ERRORS + 1)]
    if len(told) > MOST_ERRORS:
        told[MOST_ERRORS:] = ["and more of the kind"]
    return tuple(dict.fromkeys(told))


def _where(error: Any) -> str:
    return clip(pointer(list(error.absolute_path))) or "arguments"


def shown(value: Any) -> str:
    """Quote a value for a sentence, shortened."""
    if isinstance(value, dict | list) and len(cast(list[Any], value)) > 20:
        return f"{KINDS[type(cast(Any, value))]} of {len(cast(list[Any], value))}"
    return clip(repr(value), 80)


def describe(error: Any) -> str:
    """Say what is wrong with one value and what is wanted, without its place."""
    value, wanted = error.instance, error.validator_value
    match error.validator:
        case "type":
            types = [wanted] if isinstance(wanted, str) else list(wanted)
            kind = KINDS.get(type(value), "null")
            return f"{shown(value)} is {kind}; wanted {' or '.join(WANTED.get(each, each) for each in types)}"
        case "required":
            missing = [each for each in wanted if each not in value and repr(each) in error.message[: len(repr(each))]]
            return f"the required {missing[0]!r} is missing" if missing else clip(error.message)
        case "enum":
            return f"{shown(value)} is none of {clip(', '.join(map(repr, wanted)))}"
        case "const":
            return f"{shown(value)} is not {shown(wanted)}"
        case "anyOf" | "oneOf" if error.context:
            return f"{shown(value)} fits no alternative: {_alternatives(error)}"
        case None:
            return f"{shown(value)} is not allowed here"
        case _:
            return clip(error.message)


def _alternatives(error: Any) -> str:
    told: dict[int, str] = {}
    for each in error.context:
        branch = each.schema_path[0]
        if branch not in told:
            inside = pointer(list(each.relative_path))
            told[branch] = f"{inside}: {describe(each)}" if inside else describe(each)
    text = "; or ".join(list(told.values())[:ALTERNATIVES])
    return text if len(told) <= ALTERNATIVES else f"{text}; or {len(told) - ALTERNATIVES} more"
