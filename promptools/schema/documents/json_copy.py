"""Deep copies of JSON values, without recursion and several times faster than `copy.deepcopy`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

from promptools.schema.documents.json_guards import is_array, is_object

T = TypeVar("T")

MAX_DEPTH = 400
"""Maximum nesting: what is copied is written as JSON later, and `json` recurses."""

_SCALARS = frozenset((str, int, float, bool, type(None)))


def copy_json(value: T) -> T:
    """Return a deep copy of a JSON value; shared parts stay shared. O(n).

    What is not JSON is left to `copy.deepcopy`. Raises RecursionError for a value nested more than `MAX_DEPTH` levels.
    """
    work = _Copier()
    made = work.copy_of(value, 0)
    work.finish()
    return cast("T", made)


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, itself included. O(n)."""
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


class _Copier:
    """State of one copy: `copies` holds that of each container by its id, `pending` the copies still to be filled."""

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self.pending: list[tuple[Any, Any, int]] = []

    def copy_of(self, value: Any, depth: int) -> Any:
        kind = value.__class__
        if kind in _SCALARS:
            return value
        key = id(value)
        if key in self.copies:
            return self.copies[key]
        if kind is not dict and kind is not list:
            return deepcopy(value)
        if depth > MAX_DEPTH:
            raise RecursionError(f"nested more than {MAX_DEPTH} levels")
        made: Any = {} if kind is dict else []
        self.copies[key] = made
        self.pending.append((value, made, depth + 1))
        return made

    def finish(self) -> None:
        while self.pending:
            old, new, depth = self.pending.pop()
            if is_object(old):
                for key, value in old.items():
                    new[key] = value if type(value) in _SCALARS else self.copy_of(value, depth)
            else:
                new += [value if type(value) in _SCALARS else self.copy_of(value, depth) for value in old]
