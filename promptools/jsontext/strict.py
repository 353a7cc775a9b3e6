"""Read strict JSON objects at the speed of `json`: the value, and the span of each member's value.

The members of the outermost object are read one by one, each value by the scanner of `json`, which is written in C. So
the span of each value is known. `json` accepts more than strict JSON, so hooks reject duplicate keys and numbers that
are out of range, and the depth is checked afterwards. Hooks cost a call of a Python function per object and per float.
So a long value with many keys is first read without hooks, and its text is searched for signs of a duplicate key or of
such a number. Only if there are signs is the value read again, with hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from json.decoder import JSONDecoder
from typing import Any, TypeAlias, cast

from promptools.json_values import parse_finite_float, reject_constant
from promptools.jsontext.brackets import MAX_DEPTH
from promptools.jsontext.text import MemberSpans, scan_string
from promptools.patterns import lazy_pattern

_SPACE = r"[ \t\n\r]*+"
_KEY = r'"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"'
_STEP = lazy_pattern(rf"{_SPACE}(?:\}}|(,?+){_SPACE}{_KEY}{_SPACE}:{_SPACE})")
"""Matches the end of the object, or the next key, perhaps after a comma. Escapes in the key are not decoded."""

MAX_HOOKED_LENGTH = 2048
"""Number of characters up to which reading with hooks costs less than reading without hooks and searching the text."""
FEW_KEYS = 16
"""A long text whose beginning contains fewer keys than this is read with hooks.

A text is long if it has more than `MAX_HOOKED_LENGTH` characters; the first `MAX_HOOKED_LENGTH` are its beginning.
Few keys are a sign of long strings rather than many objects, so that hooks cost little.
"""
_TO_STRUCTURE = bytes.maketrans(b"123456789E", b"000000000e")

_CONTAINERS = frozenset({dict, list})
_Items: TypeAlias = "dict[str, _Items] | list[_Items]"


def read_members(text: str, start: int = 0) -> tuple[dict[str, Any], MemberSpans, int | None]:
    """Read the object at `text[start]` as far as it is strict JSON; return its value, its members' spans, and its end.

    The end is None if the object is not strict JSON. Duplicate keys, NaN and more than `MAX_DEPTH` levels are not
    strict. O(n) in characters.
    """
    value: dict[str, Any] = {}
    member_spans: MemberSpans = {}
    comma = ""
    levels = 0
    step = _STEP.match(text, start + 1) if text.startswith("{", start) else None
    try:
        while step is not None:
            at = step.end()
            before, key = step.groups()
            if key is None:
                unsure = levels >= MAX_DEPTH and at - start > 2 * MAX_DEPTH  # each level takes two brackets
                return value, member_spans, None if unsure and exceeds_max_depth(value, text, start, at) else at
            if "\\" in key:
                key, _ = scan_string(key + '"', 0, True)
            if before != comma or key in value:
                break
            value[key], end, value_levels = read_strict_value(text, at)
            levels = max(levels, value_levels)
            member_spans[key] = (at, end)
            comma = ","
            step = _STEP.match(text, end)
    except (StopIteration, ValueError, RecursionError):
        pass
    return value, member_spans, None


def read_strict_value(text: str, at: int) -> tuple[Any, int, int]:
    """Read the strict JSON value at `text[at]`; return the value, the index past it, and an upper bound on its depth.

    The value is read by C code. Raises ValueError or StopIteration if the text is not strict JSON, and RecursionError
    for thousands of levels. O(n) in characters.
    """
    if len(text) - at <= MAX_HOOKED_LENGTH or text.count('":', at, at + MAX_HOOKED_LENGTH) < FEW_KEYS:
        return _read_hooked_with_depth(text, at)
    value, end = _scan_bare(text, at)
    if isinstance(value, str):
        return value, end, 0
    levels = _verified_depth(value, text[at:end])
    return _read_hooked_with_depth(text, at) if levels is None else (value, end, levels)


def _read_hooked_with_depth(text: str, at: int) -> tuple[Any, int, int]:
    value, end = _scan_hooked(text, at)
    return value, end, 0 if value.__class__ not in _CONTAINERS else (end - at) // 2


def _verified_depth(value: Any, text: str) -> int | None:
    """Return the number of levels of a value; None if its text may contain a duplicate key or a number out of range."""
    bones = text.encode("utf-8", "surrogatepass").translate(_TO_STRUCTURE, b" \t\n\r")
    if b"0" * 200 in bones or (b"0e" in bones and (b"0e000" in bones or b"0e+000" in bones)):
        return None
    levels, keys = _count_levels_and_keys(value, bones.count(b"{") + bones.count(b"["))
    # text inside a string that looks like the end of a key makes the count too high, never too low
    return levels if bones.count(b'":') == keys else None


def exceeds_max_depth(value: Any, text: str, start: int, end: int) -> bool:
    """Return whether the value read from `text[start:end]` has more than `MAX_DEPTH` levels."""
    flat = not _inner_containers(_inner_containers(_inner_containers([[value]])))
    if flat:  # the text, which may contain a long string, need not be searched
        return False
    brackets = text.count("{", start, end) + text.count("[", start, end)
    return brackets > MAX_DEPTH and _count_levels_and_keys(value, brackets)[0] > MAX_DEPTH


def _count_levels_and_keys(value: Any, brackets: int) -> tuple[int, int]:
    """Count the levels and the keys of a value with at most `brackets` containers.

    This walks over the value, which costs less than counting levels in its text. The walk ends once `brackets`
    containers are found.
    """
    level = [cast("_Items", [value])]
    levels = keys = 0
    while brackets > 0 and levels <= MAX_DEPTH and (level := _inner_containers(level)):
        brackets -= len(level)
        levels += 1
        keys += sum(map(len, [items for items in level if items.__class__ is dict]))
    return levels, keys


def _inner_containers(level: list[_Items]) -> list[_Items]:
    """Return the containers directly inside the containers of one level."""
    return [
        item
        for items in level
        for item in (items.values() if isinstance(items, dict) else items)
        if item.__class__ in _CONTAINERS
    ]


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


_Scan: TypeAlias = Callable[[str, int], tuple[Any, int]]
_scan_hooked: _Scan = vars(
    JSONDecoder(object_pairs_hook=_unique_members, parse_float=parse_finite_float, parse_constant=reject_constant)
)["scan_once"]
_scan_bare: _Scan = vars(JSONDecoder(parse_constant=reject_constant))["scan_once"]
"""Functions, written in C, that read the value at an index; they return the value and the index past its end.

They raise StopIteration if there is no value. `_scan_hooked` uses the hooks, `_scan_bare` does not.
"""
