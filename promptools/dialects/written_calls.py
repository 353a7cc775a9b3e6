"""Write calls as markup or as Python, so that they are read back unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.dialects.calls.bare_values import read_typed
from promptools.dialects.prompt import shown_functions
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


# As markup: each value between tags, or all values as one JSON object.


WrittenValues: TypeAlias = Literal["json", "constants", "python"]
"""How values other than strings are written: as JSON, as JSON with Python's constants, or as Python prints them."""
PARAMETER_SLOT = "<parameter name>"
"""The placeholder for a parameter's name in an example."""

PLAIN_NAME = lazy_pattern(r"[^\W\d][\w.:/-]{0,127}\Z")
"""Matches a name or a key that needs no quotes in any dialect with tags."""

_MARKUP_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_MARKUP = lazy_pattern(r"<\s*/?\s*[A-Za-z!|｜\]]|[|｜]\s*>|\]<\]|</|<\Z")
"""Matches text that might be mistaken for a tag. A value that contains such text is written as JSON."""


def value_text(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON with every `<` escaped."""
    return value if isinstance(value, str) else escaped_json(value)


def escaped_json(value: Any) -> str:
    """Return a value as JSON with every `<` escaped, so that the text contains no tags."""
    return dump(value).replace("<", "\\u003c")


def may_hold_tag(text: str) -> bool:
    """Return whether a text might contain a tag."""
    return _MARKUP.search(text) is not None


def bare_text(
    key: str,
    value: Any,
    *,
    has_type: bool = False,
    keeps_space: bool = True,
    may_hold_tags: bool = False,
    values: WrittenValues = "json",
) -> str | None:
    """Return a value as text without quotes; None if the text could be read back as a different value.

    `has_type`: whether the tag around the value gives the value's type. `keeps_space`: whether white space around the
    value is kept when the value is read. `may_hold_tags`: whether the value may contain tags. `values`: how values
    other than text are written. Arrays and objects as Python prints them can only be read back with a schema, so they
    are not checked.
    """
    if _MARKUP_KEY.match(key) is None:
        return None
    text = bare_value(value, values)
    if ("\r" in text or may_hold_tag(text)) and not may_hold_tags:
        return None
    if text != text.strip() and not keeps_space:
        return None
    if has_type or (values == "python" and (is_array(value) or is_object(value))):
        return text
    parsed, fixes = read_typed(text, frozenset())
    return text if not fixes and _same_json(parsed, value) else None


def bare_value(value: Any, values: WrittenValues) -> str:
    """Return a string unchanged, and any other value as text in the style that `values` names."""
    if isinstance(value, str):
        return value
    is_constant = value is None or isinstance(value, bool)
    return str(value) if values == "python" or (values == "constants" and is_constant) else dump(value)


def _same_json(one: Any, other: Any) -> bool:
    return one is other or json.dumps(one) == json.dumps(other)


def render_parameters(
    call: Call,
    parameter: Callable[[str, str, bool], str],
    *,
    has_type: bool = False,
    keeps_space: bool = True,
    may_hold_tags: bool = False,
    values: WrittenValues = "json",
) -> str | None:
    """Return the parameters of a call, each written by `parameter`; None if a value cannot be written without quotes.

    `parameter` takes the name, the text, and True if the value is a string. The other arguments are as in `bare_text`.
    The schema is not known here. So a value whose text is ambiguous, such as the string "2", cannot be written without
    quotes unless its tag gives the type (`has_type`).
    """
    lines: list[str] = []
    for key, value in call.arguments.items():
        text = bare_text(
            key,
            value,
            has_type=has_type,
            keeps_space=keeps_space,
            may_hold_tags=may_hold_tags,
            values=values,
        )
        if text is None:
            return None
        lines.append(parameter(key, text, isinstance(value, str)))
    return "".join(lines)


def wrap_results(results: Sequence[Result], before: str, after: str) -> str:
    """Write results between tags, one after the other."""
    return "\n".join(f"{before}{result.content}{after}" for result in results)


def wrap_cdata(text: str) -> str:
    """Return a text in CDATA sections if it contains markup, line breaks or outer white space; else unchanged."""
    if not text or not ("&" in text or "<" in text or "]]>" in text or text != text.strip() or "\n" in text):
        return text
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def call_instructions(*, parallel: bool, required: bool, several: str = "Several calls follow one another.") -> str:
    """Return the prompt's sentences on how many calls the model may make, and when."""
    how_many = several if parallel else "Make one call at a time."
    when = "Call a tool in this turn." if required else "If no tool is needed, answer in plain text."
    return f"{how_many} Write nothing after the calls, and never a result yourself. {when}"


# As Python: every name and value as a literal.


_PYTHON_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_CONSTANTS = frozenset(("True", "False", "None", "true", "false", "null"))


PythonValues: TypeAlias = Literal["literals", "json", "python"]
"""How values are written in Python calls: as literals with double quotes, as JSON, or as Python's `repr`."""
_WRITERS: dict[PythonValues, Callable[[Any], str]] = {"json": dump, "python": repr}


def python_calls(calls: Sequence[Call], values: PythonValues = "literals") -> Iterator[str]:
    """Yield each call as `name(key=value)`, or as `name(**{...})` if an argument's name is not valid in Python."""
    literal = _WRITERS.get(values, python_literal)
    for call in calls:
        keys = [key for key in call.arguments if not _PYTHON_KEY.fullmatch(key) or key in _CONSTANTS]
        if keys:
            yield f"{call.name}(**{python_literal(call.arguments)})"
        else:
            yield f"{call.name}({', '.join(f'{key}={literal(value)}' for key, value in call.arguments.items())})"


def python_literal(value: Any) -> str:
    """Return a JSON value as a Python literal, with strings in double quotes."""
    if value is True or value is False or value is None:
        return str(value)
    if is_object(value):
        return f"{{{', '.join(f'{dump(key)}: {python_literal(item)}' for key, item in value.items())}}}"
    if is_array(value):
        return f"[{', '.join(map(python_literal, value))}]"
    return dump(value)


def tools_as_json(tools: Tools) -> str:
    """Return the tools as one JSON list, with one tool on each line."""
    return "[" + ",\n".join(map(dump, shown_functions(tools))) + "]"


def results_as_text(results: Sequence[Result]) -> str:
    """Write tool results as the text of one user message."""
    return "\n\n".join(
        f"{result.name} {'failed' if result.is_error else 'returned'}:\n{result.content}" for result in results
    )
