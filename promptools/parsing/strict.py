"""Strict JSON objects at the speed of `json`: the value, and where the value of each member stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from json.decoder import JSONDecoder
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from promptools.parsing.extent import DEEPEST
from promptools.parsing.strings import finite, scan_string

_SPACE = r"[ \t\n\r]*+"
_KEY = rf'"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"{_SPACE}:{_SPACE}'
_FIRST = re.compile(rf"\{{{_SPACE}(?:\}}|{_KEY})")
_NEXT = re.compile(rf"{_SPACE}(?:\}}|,{_SPACE}{_KEY})")
"""The end of the object, or the next key: the first group, as it is written."""

_CONTAINERS = frozenset({dict, list})
_Items: TypeAlias = "dict[str, _Items] | list[_Items]"


class Members(NamedTuple):
    """One strict JSON object, `text[start:end]`; `places` tells for each key where its value starts and ends."""

    value: dict[str, Any]
    places: dict[str, tuple[int, int]]
    end: int


def members(text: str, start: int = 0) -> Members | None:
    """Read the strict JSON object at `text[start]`. O(n) in characters.

    None if it is not strict JSON; a key that stands twice, NaN, and too many levels count as that.
    """
    value: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    step = _FIRST.match(text, start)
    try:
        while step is not None:
            at = step.end()
            key: str | None = step[1]
            if key is None:
                deep = at - start > 2 * DEEPEST and _too_deep(value)  # each level takes two brackets
                return None if deep else Members(value, places, at)
            if "\\" in key:
                key, _ = scan_string(key + '"', 0, True)
            if key in value:
                return None
            value[key], end = _scan(text, at)
            places[key] = (at, end)
            step = _NEXT.match(text, end)
    except (ValueError, RecursionError, StopIteration):
        pass
    return None


def _too_deep(value: Any) -> bool:
    """Tell whether the value has more than `DEEPEST` levels. A walk over it costs less than to count its brackets."""
    level = [cast("_Items", value)]
    for _ in range(DEEPEST):
        level = [
            each
            for items in level
            for each in (items.values() if isinstance(items, dict) else items)
            if each.__class__ in _CONTAINERS
        ]
        if not level:
            return False
    return True


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_scan: Callable[[str, int], tuple[Any, int]] = vars(
    JSONDecoder(object_pairs_hook=_pairs, parse_float=finite, parse_constant=_constant)
)["scan_once"]
"""Read the value at an index, in C; give it and the index past its end. Raises StopIteration where there is none."""
