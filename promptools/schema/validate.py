"""Validation by jsonschema (draft 2020-12): no I/O, patterns under a time limit, errors as sentences for the model."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.schema import budget
from promptools.schema.budget import UncheckedError, frozen
from promptools.schema.graph import REFS, is_array, is_object, library, pointer
from promptools.schema.patterns import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from promptools.schema.graph import Graph
    from promptools.types import Schema

PATTERN_SECONDS = 0.1
"""How long one pattern may search one string."""
QUICK_SECONDS = 0.001
"""How long most searches may take: a slow one is begun again, and `budget.SLOW` of them end the check."""
LARGEST_PATTERN = 50_000
"""Characters of a pattern with its repetitions written out, as `regex` compiles it: some 40 MB."""
MOST_ERRORS = 8
"""Sentences that one check gives at most: a model mends few at a time."""
ALTERNATIVES = 4
"""Alternatives of an `anyOf` that one sentence tells."""
DEEPEST = 2
"""Alternatives inside alternatives that one sentence tells."""

MOST_SHOWN = 20
"""Members of an object or array that a sentence quotes."""

KINDS: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
}
WANTED = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
}


_ATOM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\()|(?P<close>\))|\{(?P<least>\d*)(?:,(?P<most>\d*))?\}|.", re.DOTALL
)


def expanded(pattern: str) -> int:
    """Count the atoms of a pattern when its repetitions are written out. O(n)."""
    totals, last = [0], 0
    for found in _ATOM.finditer(pattern):
        if found["open"]:
            totals.append(0)
            last = 0
        elif found["close"] and len(totals) > 1:
            last = totals.pop() + 1
            totals[-1] += last
        elif found["least"] is not None:
            times = max(int(each[:9]) if each else 1 for each in (found["least"], found["most"]))
            totals[-1] += last * (times - 1)
            last *= times
        else:
            last = 1
            totals[-1] += 1
    return sum(totals)


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """Compile a schema's pattern; raises `regex.error`, and UncheckedError for one that is too large to be compiled."""
    text = translated(pattern)
    if expanded(text) > LARGEST_PATTERN:
        raise UncheckedError(f"the pattern {clip(pattern, 60)!r} is too large")
    return library("regex").compile(text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found anywhere in a text; raises UncheckedError where that takes too long."""
    search = compile_pattern(pattern).search
    try:
        return search(text, timeout=min(QUICK_SECONDS, PATTERN_SECONDS), concurrent=True) is not None
    except TimeoutError:
        run = budget.current()
        run.slow -= 1
    try:
        if run.slow >= 0:
            return search(text, timeout=PATTERN_SECONDS, concurrent=True) is not None
    except TimeoutError:
        pass
    raise UncheckedError(f"the pattern {clip(pattern, 60)!r} took too long on {clip(text, 60)!r}")


def check_patterns(graph: Graph, tool: str, *, strict: bool = False) -> None:
    """Leave out patterns that do not compile, or would run without a time limit; raise UsageError where `strict`."""
    words = frozenset[str]().union(*graph.nodes)
    if {"unevaluatedProperties", "patternProperties"} <= words:  # jsonschema gives these to Python's own re
        if strict:
            raise UsageError(
                f"Tool {tool!r}: its parameters hold both 'unevaluatedProperties' and 'patternProperties', whose "
                f"patterns would run without a time limit; use 'additionalProperties' instead of the former."
            )
        for node in graph.nodes:
            if "unevaluatedProperties" in node:
                del node["unevaluatedProperties"]
                at = graph.where[id(node)]
                graph.notes += (f"{at}/unevaluatedProperties: left out, since there is a 'patternProperties' too",)
    if not words.isdisjoint(("pattern", "patternProperties")):
        for node in graph.nodes:
            _check_patterns_of(node, graph, tool, strict=strict)


def _check_patterns_of(node: Schema, graph: Graph, tool: str, *, strict: bool) -> None:
    named = [(node, "pattern", node["pattern"])] if "pattern" in node else []
    named += [(node["patternProperties"], each, each) for each in node.get("patternProperties", ())]
    for holder, key, pattern in named:
        wrong = _wrong_with(pattern)
        if wrong is None:
            continue
        at = graph.where[id(node)] + pointer(["pattern"] if holder is node else ["patternProperties", key])
        if strict:
            raise UsageError(
                f"Tool {tool!r}: the pattern {clip(pattern)!r} at {at!r} cannot be compiled: {wrong}. Write it as a "
                f"regular expression that Python's regex module knows."
            )
        del holder[key]
        graph.notes += (f"{at}: the pattern {clip(pattern, 60)!r} was left out: {wrong}",)


def _wrong_with(pattern: str) -> str | None:
    """Return why a pattern does not compile; None for one that does, or that is too large to be tried."""
    try:
        compile_pattern(pattern)
    except UncheckedError:
        return None  # what it says is not checked, and every call says so
    except (library("regex").error, RecursionError, OverflowError) as error:
        return str(error)
    return None


def is_number(value: object) -> bool:
    """Say whether a value is a JSON number: no boolean, and finite."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value - value == 0)


def is_integer(value: object) -> bool:
    """Say whether a value is an integer as programs take it: `3.0` is none, and is coerced to `3`."""
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(validator: Any, wanted: str, value: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not matches(wanted, value):
        yield _error(f"{value!r} does not match the pattern {wanted!r}")


def _pattern_properties(validator: Any, wanted: dict[str, Any], value: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, subschema in wanted.items():
            for key, each in value.items():
                if matches(pattern, key):
                    yield from validator.descend(each, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, value: Any, schema: dict[str, Any]) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", ())
    for key, each in value.items():
        if key in known or any(matches(pattern, key) for pattern in patterns):
            continue
        if wanted is False:
            yield _error(f"there is no {clip(key)!r} here; known: {clip(', '.join(map(repr, known))) or 'none'}")
        else:
            yield from validator.descend(each, wanted, path=key)


def _any_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[Any]:
    errors = _refusals(validator, branches, value)
    if len({error.schema_path[0] for error in errors}) == len(branches):
        yield _error("fits no alternative", context=errors)


def _one_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[Any]:
    errors = _refusals(validator, branches, value)
    fitting = len(branches) - len({error.schema_path[0] for error in errors})
    if fitting == 0:
        yield _error("fits no alternative", context=errors)
    elif fitting > 1:
        yield _error(f"{shown(value)} fits {fitting} alternatives; wanted is just one")


def _refusals(validator: Any, branches: list[Any], value: Any) -> list[Any]:
    """Collect what each alternative has against a value, once for each value: else a tree's cost doubles by level."""
    seen, key = budget.current().refusals, (id(branches), id(value))
    if key in seen:
        return seen[key]
    errors: list[Any] = []
    for index, each in enumerate(branches):
        for error in validator.descend(value, each, schema_path=index):
            if not error.schema_path:  # the schema `false` does not say where it stands
                error.schema_path.append(index)
            errors.append(error)
    if isinstance(value, dict | list):  # Python shares small values, so their ids say nothing; they are cheap to check
        seen[key] = errors
    return errors


def _type(validator: Any, wanted: str | list[str], value: Any, _: Any) -> Iterator[Any]:
    if not any(validator.is_type(value, each) for each in ([wanted] if isinstance(wanted, str) else wanted)):
        yield _error("is of another type")  # `describe` tells it; jsonschema quotes the whole value each time


def _enum(_: Any, wanted: list[Any], value: Any, __: Any) -> Iterator[Any]:
    known = budget.current().members
    if id(wanted) not in known:
        known[id(wanted)] = frozenset(map(frozen, wanted))
    if frozen(value) not in known[id(wanted)]:
        yield _error("is no member")


def _unique_items(validator: Any, wanted: bool, value: Any, _: Any) -> Iterator[Any]:
    if wanted and validator.is_type(value, "array") and len(set(map(frozen, value))) < len(value):
        yield _error(f"{shown(value)} holds the same item twice")


def _error(message: str, context: Sequence[Any] = ()) -> Any:
    return library("jsonschema").ValidationError(message, context=context)


def _checks(test: Callable[[object], bool]) -> Callable[[object, object], bool]:
    return lambda _, value: test(value)


def _counted(word: str, check: Callable[..., Any]) -> Callable[..., Any]:
    """Let a keyword cost a step, and more where it, or the value, holds much."""
    cost = budget.STEPS_A_REFERENCE if word in REFS else 1
    weighs = word != "enum"  # its members are looked up

    def counted(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        budget.current().spend(cost + (_length(wanted) // 16 if weighs else 0) + _length(value) // 16)
        return check(validator, wanted, value, schema)

    return counted


def _length(value: Any) -> int:
    return len(value) if is_object(value) or is_array(value) else 0


def _quoting(check: Callable[..., Any]) -> Callable[..., Any]:
    """Let an error cost what it quotes."""

    def quoting(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        for error in check(validator, wanted, value, schema) or ():
            budget.current().spend(len(error.message) // budget.CHARACTERS)
            yield error

    return quoting


QUOTING = ("const", "contains", "maxItems", "maxProperties", "minItems", "minProperties", "not", "prefixItems")
"""Keywords whose errors in jsonschema quote the whole value."""


@cache
def _validator_class() -> Any:
    """Draft 2020-12 within a budget, with patterns under a time limit and with the numbers that programs take."""
    base = library("jsonschema").Draft202012Validator
    keywords = {
        **base.VALIDATORS,
        **{word: _quoting(base.VALIDATORS[word]) for word in QUOTING},
        "type": _type,
        "enum": _enum,
        "uniqueItems": _unique_items,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "anyOf": _any_of,
        "oneOf": _one_of,
    }
    numbers = {"integer": _checks(is_integer), "number": _checks(is_number)}
    types = base.TYPE_CHECKER.redefine_many(numbers)
    counted = {word: _counted(word, check) for word, check in keywords.items()}
    return library("jsonschema.validators").extend(base, counted, type_checker=types)


class Validator:
    """One schema, compiled by jsonschema on first use."""

    __slots__ = ("_compiled", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._compiled: Any = None

    def errors(self, value: Any) -> Iterator[Any]:
        """Yield jsonschema's errors for a value; may raise whatever jsonschema or recursion raises.

        Raises UncheckedError when it costs too much. An error inside alternatives (`context`) may belong to several:
        only its relative path is to be trusted.
        """
        if self._compiled is None:
            self._compiled = _validator_class()(self.graph.root, registry=library("referencing").Registry())
        budget.begin(value)
        try:
            yield from self._compiled.iter_errors(value)
        finally:
            budget.end()


def sentences(errors: Iterable[Any]) -> tuple[str, ...]:
    """Tell the first errors, one sentence each: where (JSON pointer), what is wrong, what is wanted."""
    told = [f"{_where(error)}: {describe(error)}" for error in islice(errors, MOST_ERRORS + 1)]
    if len(told) > MOST_ERRORS:
        told[MOST_ERRORS:] = ["and more of the kind"]
    return tuple(dict.fromkeys(told))


def _where(error: Any) -> str:
    return clip(pointer(error.relative_path)) or "arguments"


def shown(value: Any) -> str:
    """Quote a value for a sentence, shortened."""
    if (is_object(value) or is_array(value)) and len(value) > MOST_SHOWN:
        return f"{kind(value)} of {len(value)}"
    return clip(repr(value), 80)


def kind(value: object) -> str:
    """Name the JSON type of a value, with its article."""
    return KINDS.get(type(value), "null")


def describe(error: Any, depth: int = 0) -> str:
    """Say what is wrong with one value and what is wanted, without its place."""
    value, wanted = error.instance, error.validator_value
    match error.validator:
        case "type":
            types = [wanted] if isinstance(wanted, str) else list(wanted)
            return f"{shown(value)} is {kind(value)}; wanted {' or '.join(WANTED.get(each, each) for each in types)}"
        case "required":
            return f"the required {clip(error.message.removesuffix(' is a required property'))} is missing"
        case "enum":
            return f"{shown(value)} is none of {clip(', '.join(map(repr, wanted)))}"
        case "const":
            return f"{shown(value)} is not {shown(wanted)}"
        case "anyOf" | "oneOf" if error.context:
            told = f": {_alternatives(error, depth + 1)}" if depth < DEEPEST else ""
            return f"{shown(value)} fits no alternative{told}"
        case None:
            return f"{shown(value)} is not allowed here"
        case _:
            return clip(error.message)


def _alternatives(error: Any, depth: int) -> str:
    told: dict[int, str] = {}
    for each in error.context:
        branch = each.schema_path[0]
        if branch not in told:
            inside = pointer(each.relative_path)
            told[branch] = f"{inside}: {describe(each, depth)}" if inside else describe(each, depth)
    text = "; or ".join(list(told.values())[:ALTERNATIVES])
    return text if len(told) <= ALTERNATIVES else f"{text}; or {len(told) - ALTERNATIVES} more"
