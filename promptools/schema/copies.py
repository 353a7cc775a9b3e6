"""Deep copies of JSON values, without recursion and several times faster than `copy.deepcopy`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

from promptools.schema.shapes import is_array, is_object

T = TypeVar("T")

DEEPEST = 400
"""Levels that a value may be nested: what is copied is written as JSON later, and `json` recurses."""

_SCALARS = frozenset((str, int, float, bool, type(None)))


def copied(value: T) -> T:
    """Copy a JSON value; parts that are one object stay one object. O(n).

    What is not JSON is left to `copy.deepcopy`. Raises RecursionError for a value nested more than `DEEPEST` levels.
    """
    work = _Copying()
    made = work.copy_of(value, 0)
    work.finish()
    return cast("T", made)


def size(value: Any) -> int:
    """Count the values inside a JSON value, itself included. O(n)."""
    found = 0
    stack = [value]
    while stack:
        here = stack.pop()
        found += 1
        if is_object(here):
            stack.extend(here.values())
        elif is_array(here):
            stack.extend(here)
    return found


class _Copying:
    """One copy: `made` holds the copy of each container by its id, `todo` those that are still empty."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.todo: list[tuple[Any, Any, int]] = []

    def copy_of(self, value: Any, depth: int) -> Any:
        kind = value.__class__
        if kind in _SCALARS:
            return value
        key = id(value)
        if key in self.made:
            return self.made[key]
        if kind is not dict and kind is not list:
            return deepcopy(value)
        if depth > DEEPEST:
            raise RecursionError(f"nested more than {DEEPEST} levels")
        made: Any = {} if kind is dict else []
        self.made[key] = made
        self.todo.append((value, made, depth + 1))
        return made

    def finish(self) -> None:
        while self.todo:
            old, new, depth = self.todo.pop()
            if is_object(old):
                for key, value in old.items():
                    new[key] = value if type(value) in _SCALARS else self.copy_of(value, depth)
            else:
                new += [value if type(value) in _SCALARS else self.copy_of(value, depth) for value in old]
