"""Functions for JSON values: type guards, reading and writing with errors handled, and deep copies."""

from __future__ import annotations

import json
from copy import deepcopy
from math import isfinite
from typing import Any, NoReturn, TypeGuard, TypeVar, cast

from promptools.errors import UsageError


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object, that is, a dict."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_text_list(value: object) -> bool:
    """Return whether a value is a list of strings."""
    return is_array(value) and all(isinstance(item, str) for item in value)


def try_json(text: str | bytes, default: Any = None, **options: Any) -> Any:
    """Parse a JSON text; return `default` if the text is not JSON, or is nested too deeply to be read.

    `options` are passed to `json.loads`. The text `null` gives None too; pass another `default` to detect invalid text.
    """
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError):
        return default


def toml_value(value: Any) -> str:
    """Return a string, number, boolean, or list of such values as TOML.

    The JSON of such a value is valid TOML too, except that TOML requires the control character DEL to be escaped.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def reject_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinity. Pass this function to `json.loads` as `parse_constant`."""
    raise ValueError(f"{name} is not a JSON number")


def parse_finite_float(token: str) -> float:
    """Parse a float; raise `ValueError` if it is out of range."""
    value = float(token)
    if not isfinite(value):
        raise ValueError("out of range")
    return value


def write_json(value: object, what: str, *, compact: bool = False) -> str:
    """Return a value as JSON. If it is nested too deeply, raise `UsageError` with a message that begins with `what`."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)
    except RecursionError:
        raise UsageError(f"{what}: nested too deeply to be written as JSON; flatten it") from None


# Deep copies, without recursion and several times faster than `copy.deepcopy`.


T = TypeVar("T")

MAX_DEPTH = 400
"""Maximum nesting of a value to copy. It is limited because `json`, which recurses, has to write the copy later."""

_SCALARS = frozenset((str, int, float, bool, type(None)))


def copy_json(value: T) -> T:
    """Return a deep copy of a JSON value, in linear time. An object or array that occurs several times is copied once.

    Values that are not JSON are copied by `copy.deepcopy`. Raises RecursionError for more than `MAX_DEPTH` levels of
    nesting.
    """
    copies: dict[int, Any] = {}
    unfilled: list[tuple[Any, Any, int]] = []

    def copy_of(value: Any, depth: int) -> Any:
        """Return a copy of a value; the copy of an object or array is empty at first, and is filled later."""
        kind = value.__class__
        if kind in _SCALARS:
            return value
        key = id(value)
        if key in copies:
            return copies[key]
        if kind is not dict and kind is not list:
            return deepcopy(value)
        if depth > MAX_DEPTH:
            raise RecursionError(f"nested more than {MAX_DEPTH} levels")
        inner: Any = {} if kind is dict else []
        copies[key] = inner
        unfilled.append((value, inner, depth + 1))
        return inner

    made = copy_of(value, 0)
    while unfilled:
        old, new, depth = unfilled.pop()
        if is_object(old):
            for key, item in old.items():
                new[key] = item if type(item) in _SCALARS else copy_of(item, depth)
        else:
            new += [item if type(item) in _SCALARS else copy_of(item, depth) for item in old]
    return cast("T", made)


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, including the value itself, in linear time."""
    count = 0
    stack = [value]
    while stack:
        node = stack.pop()
        count += 1
        if is_object(node):
            stack.extend(node.values())
        elif is_array(node):
            stack.extend(node)
    return count
