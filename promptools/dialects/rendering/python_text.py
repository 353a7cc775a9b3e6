"""Write calls as Python: every name and value as a literal that reads back the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from promptools.dialects.rendering.declaration import shown_functions
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_KEY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_CONSTANTS = frozenset(("True", "False", "None", "true", "false", "null"))


def python_calls(calls: Sequence[Call]) -> Iterator[str]:
    """Yield each call as `name(key=value)`, or as `name(**{...})` if an argument's name is not valid in Python."""
    for call in calls:
        keys = [key for key in call.arguments if not _KEY.fullmatch(key) or key in _CONSTANTS]
        if keys:
            yield f"{call.name}(**{python_literal(call.arguments)})"
        else:
            yield f"{call.name}({', '.join(f'{key}={python_literal(value)}' for key, value in call.arguments.items())})"


def python_literal(value: Any) -> str:
    """Return a JSON value as a Python literal, strings in double quotes."""
    if value is True or value is False or value is None:
        return str(value)
    if is_object(value):
        return f"{{{', '.join(f'{dump(key)}: {python_literal(item)}' for key, item in value.items())}}}"
    if is_array(value):
        return f"[{', '.join(map(python_literal, value))}]"
    return dump(value)


def tools_as_json(tools: Tools) -> str:
    """Return the tools as one JSON list, a tool a line."""
    return "[" + ",\n".join(map(dump, shown_functions(tools))) + "]"


def results_as_text(results: Sequence[Result]) -> str:
    """Write results as one user turn."""
    return "\n\n".join(
        f"{result.name} {'failed' if result.is_error else 'returned'}:\n{result.content}" for result in results
    )
