"""Validate with jsonschema (draft 2020-12) without I/O and at bounded cost; describe errors in sentences for the model.

Schemas come from callers and values from models, so neither may make validation slow. jsonschema's validator is
extended for that:

- Each keyword that is applied costs steps of the run's budget (`_counted`), and so do long error messages (`_quoting`).
- Patterns are searched by the `regex` library with a time limit, instead of by `re`, which has none.
- `anyOf` and `oneOf` remember the errors of their alternatives for each object and array. Otherwise, each level of
  nesting would double the cost.
- `enum` and `uniqueItems` compare by hash.
- `3.0` is not accepted as an integer, nor NaN as a number, because the programs that receive the arguments do not
  accept them either.

A run that exceeds its budget raises `UncheckedError`.
"""

from __future__ import annotations

import re
from functools import cache, cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.schema import budget
from promptools.schema.budget import UncheckedError, hashable_json
from promptools.schema.documents import REFERENCES, import_library, pointer, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from promptools.schema.graph import SchemaGraph
    from promptools.types import Schema


# Translate a schema's patterns, which are in JavaScript's syntax, to the syntax of the `regex` library.
#
# The two differ in `[^]` (any character), `\u{1F600}` and surrogate pairs, `\k<name>`, `\cA`, and a hyphen before a
# class, as in `[+-\d]`; these are translated. A pattern in slashes, `/^a+$/i`, is read as a JavaScript literal where it
# can mean nothing else: an anchor inside slashes never matches. `\d` and `\w` match as many characters as in Python and
# Rust, whose frameworks write patterns too. Everything else is the same in both (ECMA-262, 2025, section 22.2).


_TOKEN = lazy_pattern(
    r"""
    (?P<any>\[\^\](?=[*+?{]|[^\]]*\Z))                                # in Python, a class that does not end here
    | (?P<open>\[\^?\]?)
    | (?P<close>\])
    | \\u\{(?P<code>[0-9A-Fa-f]{1,6})\}
    | \\u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
    | \\k<(?P<name>\w+)>
    | \\c(?P<control>[A-Za-z])
    | \\. | (?P<hyphen>-)(?=\\[dDsSwW]) | .
    """,
    re.VERBOSE | re.DOTALL,
)
_LITERAL = lazy_pattern(r"/(?=\^|.*\$/[a-z]*\Z)(?P<body>.*)/(?P<flags>[dgimsuvy]*)\Z", re.DOTALL)
_LAST_CHARACTER = 0x10FFFF


def translate_pattern(pattern: str) -> str:
    """Translate a pattern from JavaScript's syntax to that of the `regex` library, in O(n)."""
    literal = _LITERAL.match(pattern)
    flags = "".join(flag for flag in "ims" if literal and flag in literal["flags"])
    made = [f"(?{flags})"] if flags else []
    inside = False
    for token in _TOKEN.finditer(literal["body"] if literal else pattern):
        if inside:
            inside = not token["close"]
            made.append(rf"\{token[0]}" if token["hyphen"] else _translate_escape(token))
        else:
            inside = token["open"] is not None
            made.append(r"[\s\S]" if token["any"] else _translate_escape(token))
    return "".join(made)


def _translate_escape(match: re.Match[str]) -> str:
    """Translate an escape that only JavaScript has; return anything else unchanged."""
    if match["code"] and int(match["code"], 16) <= _LAST_CHARACTER:
        return f"\\U{int(match['code'], 16):08x}"
    if match["high"]:
        return f"\\U{0x10000 + ((int(match['high'], 16) - 0xD800) << 10) + int(match['low'], 16) - 0xDC00:08x}"
    if match["name"]:
        return f"(?P={match['name']})"
    if match["control"]:
        return f"\\x{ord(match['control']) % 32:02x}"
    return match[0]


# The validator: patterns, keywords that count their steps or remember results, and errors as sentences.


PATTERN_SECONDS = 0.1
"""Time limit in seconds for searching one string for one pattern."""
FIRST_SEARCH_SECONDS = 0.001
"""Time limit in seconds for the first attempt at a search.

If it is exceeded, the search is repeated once, with the limit `PATTERN_SECONDS`. A validation may repeat at most
`MAX_SLOW_SEARCHES` searches.
"""
LARGEST_PATTERN = 50_000
"""Maximum number of atoms in a pattern when its repetitions are written out.

`regex` compiles a pattern in this form; a pattern of this size takes about 40 MB.
"""
MAX_ERRORS = 8
"""Maximum number of errors that are described after one validation, since a model corrects only a few at a time."""
MAX_ALTERNATIVES = 4
"""Maximum number of alternatives of an `anyOf` or `oneOf` that the sentence about one error describes."""
MAX_ALTERNATIVE_DEPTH = 2
"""Maximum number of levels of nested alternatives that the sentence about one error describes."""

MAX_QUOTED_MEMBERS = 20
"""Maximum number of members of an object or array that an error message quotes.

Instead of a larger object or array, the message states its size.
"""

TYPE_PHRASES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
}


_ATOM = lazy_pattern(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\()|(?P<close>\))|\{(?P<least>\d*)(?:,(?P<most>\d*))?\}|.", re.DOTALL
)


def expanded_size(pattern: str) -> int:
    """Return the number of atoms in a pattern with its repetitions written out: 3 for `a{3}`. Runs in O(n)."""
    totals, last = [0], 0
    for atom in _ATOM.finditer(pattern):
        if atom["open"]:
            totals.append(0)
            last = 0
        elif atom["close"] and len(totals) > 1:
            last = totals.pop() + 1
            totals[-1] += last
        elif atom["least"] is not None:
            times = max(int(bound[:9]) if bound else 1 for bound in (atom["least"], atom["most"]))
            totals[-1] += last * (times - 1)
            last *= times
        else:
            last = 1
            totals[-1] += 1
    return sum(totals)


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """Compile a schema's pattern. Raises `regex.error` if it is invalid, and UncheckedError if it is too large."""
    text = translate_pattern(pattern)
    if expanded_size(text) > LARGEST_PATTERN:
        raise UncheckedError(f"the pattern {clip(pattern, 60)!r} is too large")
    return import_library("regex").compile(text)


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text; raise UncheckedError if the search takes too long."""
    search = compile_pattern(pattern).search
    try:
        return search(text, timeout=min(FIRST_SEARCH_SECONDS, PATTERN_SECONDS), concurrent=True) is not None
    except TimeoutError:
        run = budget.current_run()
        run.slow_searches_left -= 1
    try:
        if run.slow_searches_left >= 0:
            return search(text, timeout=PATTERN_SECONDS, concurrent=True) is not None
    except TimeoutError:
        pass
    raise UncheckedError(f"the pattern {clip(pattern, 60)!r} took too long on {clip(text, 60)!r}")


def check_patterns(graph: SchemaGraph, tool: str, *, strict: bool = False) -> None:
    """Remove patterns that do not compile; raise UsageError instead if `strict`.

    If both `patternProperties` and `unevaluatedProperties` occur anywhere in the graph, each `unevaluatedProperties` is
    removed, or UsageError is raised if `strict`: jsonschema would search for these patterns with Python's `re`, which
    has no time limit.
    """
    keywords = frozenset[str]().union(*graph.nodes)
    if {"unevaluatedProperties", "patternProperties"} <= keywords:  # with both, jsonschema uses Python's re
        if strict:
            raise UsageError(
                f"Tool {tool!r}: its parameters hold both 'unevaluatedProperties' and 'patternProperties', whose "
                f"patterns would run without a time limit; use 'additionalProperties' instead of the former."
            )
        for node in graph.nodes:
            if "unevaluatedProperties" in node:
                del node["unevaluatedProperties"]
                at = graph.pointers[id(node)]
                graph.notes += (f"{at}/unevaluatedProperties: left out, since there is a 'patternProperties' too",)
    if not keywords.isdisjoint(("pattern", "patternProperties")):
        for node in graph.nodes:
            _check_patterns_of(node, graph, tool, strict=strict)


def _check_patterns_of(node: Schema, graph: SchemaGraph, tool: str, *, strict: bool) -> None:
    named = [(node, "pattern", node["pattern"])] if "pattern" in node else []
    named += [(node["patternProperties"], key, key) for key in node.get("patternProperties", ())]
    for holder, key, pattern in named:
        wrong = _compile_error(pattern)
        if wrong is None:
            continue
        at = graph.pointers[id(node)] + pointer(["pattern"] if holder is node else ["patternProperties", key])
        if strict:
            raise UsageError(
                f"Tool {tool!r}: the pattern {clip(pattern)!r} at {at!r} cannot be compiled: {wrong}. Write it as a "
                f"regular expression that Python's regex module knows."
            )
        del holder[key]
        graph.notes += (f"{at}: the pattern {clip(pattern, 60)!r} was left out: {wrong}",)


def _compile_error(pattern: str) -> str | None:
    """Return why a pattern does not compile; None if it compiles, or if it is too large to try."""
    try:
        compile_pattern(pattern)
    except UncheckedError:
        return None  # the pattern is kept: each validation that reaches it is reported as unchecked
    except (import_library("regex").error, RecursionError, OverflowError) as error:
        return str(error)
    return None


def is_number(value: object) -> bool:
    """Return whether a value is a JSON number: finite, and not a boolean."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value - value == 0)


def is_integer(value: object) -> bool:
    """Return whether a value is an `int`, and not a boolean.

    `3.0` is not an integer here, but is coerced to `3` later.
    """
    return isinstance(value, int) and not isinstance(value, bool)


def _pattern(validator: Any, wanted: str, value: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not matches(wanted, value):
        yield _error(f"{value!r} does not match the pattern {wanted!r}")


def _pattern_properties(validator: Any, wanted: dict[str, Any], value: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, subschema in wanted.items():
            for key, member in value.items():
                if matches(pattern, key):
                    yield from validator.descend(member, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, value: Any, schema: dict[str, Any]) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", ())
    for key, member in value.items():
        if key in known or any(matches(pattern, key) for pattern in patterns):
            continue
        if wanted is False:
            yield _error(f"there is no {clip(key)!r} here; known: {clip(', '.join(map(repr, known))) or 'none'}")
        else:
            yield from validator.descend(member, wanted, path=key)


def _any_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[Any]:
    errors = _branch_errors(validator, branches, value)
    if len({error.schema_path[0] for error in errors}) == len(branches):
        yield _error("fits no alternative", context=errors)


def _one_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[Any]:
    errors = _branch_errors(validator, branches, value)
    fitting = len(branches) - len({error.schema_path[0] for error in errors})
    if fitting == 0:
        yield _error("fits no alternative", context=errors)
    elif fitting > 1:
        yield _error(f"{quote_value(value)} fits {fitting} alternatives; expected exactly one")


def _branch_errors(validator: Any, branches: list[Any], value: Any) -> list[Any]:
    """Return the errors of each alternative of an `anyOf` or `oneOf`.

    For an object or array, the errors are computed only once, because otherwise each level of nesting would double the
    cost.
    """
    seen, key = budget.current_run().branch_errors, (id(branches), id(value))
    if key in seen:
        return seen[key]
    errors: list[Any] = []
    for index, branch in enumerate(branches):
        for error in validator.descend(value, branch, schema_path=index):
            if not error.schema_path:  # an error of the schema `false` has no path
                error.schema_path.append(index)
            errors.append(error)
    if isinstance(value, dict | list):  # Python shares scalars, so their ids are ambiguous; but they are cheap
        seen[key] = errors
    return errors


def _type(validator: Any, wanted: str | list[str], value: Any, _: Any) -> Iterator[Any]:
    if not any(validator.is_type(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted)):
        yield _error("is of another type")  # `describe_error` writes the text; jsonschema's would quote the whole value


def _enum(_: Any, wanted: list[Any], value: Any, __: Any) -> Iterator[Any]:
    known = budget.current_run().enum_members
    if id(wanted) not in known:
        known[id(wanted)] = frozenset(map(hashable_json, wanted))
    if hashable_json(value) not in known[id(wanted)]:
        yield _error("is no member")


def _unique_items(validator: Any, wanted: bool, value: Any, _: Any) -> Iterator[Any]:
    if wanted and validator.is_type(value, "array") and len(set(map(hashable_json, value))) < len(value):
        yield _error(f"{quote_value(value)} contains the same item twice")


def _error(message: str, context: Sequence[Any] = ()) -> Any:
    return import_library("jsonschema").ValidationError(message, context=context)


def _counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a keyword's check so that it costs steps of the budget, and more of them for a large keyword or value."""
    cost = budget.STEPS_PER_REFERENCE if keyword in REFERENCES else 1
    weighs = keyword != "enum"  # the members of an `enum` are looked up by hash

    def counted(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        budget.current_run().spend(cost + (_length(wanted) // 16 if weighs else 0) + _length(value) // 16)
        return check(validator, wanted, value, schema)

    return counted


def _length(value: Any) -> int:
    return len(value) if is_object(value) or is_array(value) else 0


def _quoting(check: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a keyword's check so that long error messages, which may quote a large value, cost steps of the budget."""

    def quoting(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        for error in check(validator, wanted, value, schema) or ():
            budget.current_run().spend(len(error.message) // budget.CHARACTERS_PER_STEP)
            yield error

    return quoting


QUOTING = ("const", "contains", "maxItems", "maxProperties", "minItems", "minProperties", "not", "prefixItems")
"""Keywords whose error messages in jsonschema quote the whole value."""


@cache
def _validator_class() -> Any:
    """Build the class that validates draft 2020-12 within a budget."""
    base = import_library("jsonschema").Draft202012Validator
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
    numbers: dict[str, Callable[[object, object], bool]] = {
        "integer": lambda _, value: is_integer(value),
        "number": lambda _, value: is_number(value),
    }
    types = base.TYPE_CHECKER.redefine_many(numbers)
    counted = {word: _counted(word, check) for word, check in keywords.items()}
    return import_library("jsonschema.validators").extend(base, counted, type_checker=types)


class Validator:
    """Validates values against one schema, which jsonschema compiles on first use."""

    def __init__(self, graph: SchemaGraph) -> None:
        self.graph = graph

    @cached_property
    def _compiled(self) -> Any:
        return _validator_class()(self.graph.root, registry=import_library("referencing").Registry())

    def errors(self, value: Any) -> Iterator[Any]:
        """Yield jsonschema's errors for a value; may raise any of jsonschema's exceptions, or `RecursionError`.

        Raises UncheckedError if validation costs too much. The `context` of an error holds the errors inside
        alternatives. Several errors may share such an inner error, so only its relative path is reliable.
        """
        budget.begin_run(value)
        try:
            yield from self._compiled.iter_errors(value)
        finally:
            budget.end_run()


def describe_errors(errors: Iterable[Any], whole: str = "arguments") -> tuple[str, ...]:
    """Describe the first errors, each in one sentence: where the error is, what is wrong, and what is expected.

    A sentence begins with a JSON pointer to the error or, if the error concerns the whole value, with the text `whole`.
    """
    lines = [
        f"{clip(pointer(error.relative_path)) or whole}: {describe_error(error)}"
        for error in islice(errors, MAX_ERRORS + 1)
    ]
    if len(lines) > MAX_ERRORS:
        lines[MAX_ERRORS:] = ["and more of the kind"]
    return tuple(dict.fromkeys(lines))


def quote_value(value: Any) -> str:
    """Return a value as shortened text for an error message."""
    if (is_object(value) or is_array(value)) and len(value) > MAX_QUOTED_MEMBERS:
        return f"{type_phrase(value)} of {len(value)}"
    return clip(repr(value), 80)


def type_phrase(value: object) -> str:
    """Return the name of a value's JSON type, with an article: `an object`."""
    return TYPE_PHRASES[type_name(value)]


def describe_error(error: Any, depth: int = 0) -> str:
    """Describe what is wrong with one value and what is expected, without the value's path."""
    value, wanted = error.instance, error.validator_value
    match error.validator:
        case "type":
            types = [wanted] if isinstance(wanted, str) else list(wanted)
            wanted = " or ".join(TYPE_PHRASES.get(name, name) for name in types)
            return f"{quote_value(value)} is {type_phrase(value)}; wanted {wanted}"
        case "required":
            return f"the required {clip(error.message.removesuffix(' is a required property'))} is missing"
        case "enum":
            return f"{quote_value(value)} is none of {clip(', '.join(map(repr, wanted)))}"
        case "const":
            return f"{quote_value(value)} is not {quote_value(wanted)}"
        case "anyOf" | "oneOf" if error.context:
            reasons = f": {_describe_alternatives(error, depth + 1)}" if depth < MAX_ALTERNATIVE_DEPTH else ""
            return f"{quote_value(value)} fits no alternative{reasons}"
        case None:
            return f"{quote_value(value)} is not allowed here"
        case _:
            return clip(error.message)


def _describe_alternatives(error: Any, depth: int) -> str:
    by_branch: dict[int, str] = {}
    for inner in error.context:
        branch = inner.schema_path[0]
        if branch not in by_branch:
            inside = pointer(inner.relative_path)
            by_branch[branch] = f"{inside}: {describe_error(inner, depth)}" if inside else describe_error(inner, depth)
    text = "; or ".join(list(by_branch.values())[:MAX_ALTERNATIVES])
    return text if len(by_branch) <= MAX_ALTERNATIVES else f"{text}; or {len(by_branch) - MAX_ALTERNATIVES} more"
