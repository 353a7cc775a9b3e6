"""Strict JSON objects at the speed of `json`: the value, and where the value of each member stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn, TypeAlias, cast

from promptools.parsing.extent import DEEPEST
from promptools.parsing.strings import finite, scan_string

_SPACE = r"[ \t\n\r]*+"
_KEY = r'"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"'
_STEP = re.compile(rf"{_SPACE}(?:\}}|(,?+){_SPACE}{_KEY}{_SPACE}:{_SPACE})")
"""The end of the object; or the comma, if there is one, and the next key as it is written."""

Places: TypeAlias = "dict[str, tuple[int, int]]"
"""Where each member's value starts and ends."""
_GAP = re.compile(rf"{_SPACE}[{{,]?+{_SPACE}")

HOOKED = 2048
"""Characters up to which a call of Python for each object and each float costs less than to look for what they see."""
FEW = 16
"""Keys in the first `HOOKED` characters below which a longer text is taken to be long strings, not many objects."""
_BONES = bytes.maketrans(b"123456789E", b"000000000e")

_CONTAINERS = frozenset({dict, list})
_Items: TypeAlias = "dict[str, _Items] | list[_Items]"


def members(text: str, start: int = 0) -> tuple[dict[str, Any], Places, int] | None:
    """Read the strict JSON object at `text[start]`: its value, the places of its members, its end. O(n) in characters.

    None if it is not strict JSON; a key that stands twice, NaN, and too many levels count as that.
    """
    found = beginning(text, start)
    return found if found[2] >= 0 else None


def beginning(text: str, start: int = 0) -> tuple[dict[str, Any], Places, int]:
    """Read the object at `text[start]` as far as it is strict JSON, as `members` does.

    One that ceases to be strict has as its end the `~index` where it does; `~start` says no more than that.
    """
    value: dict[str, Any] = {}
    places: Places = {}
    comma = ""
    end = start
    levels = 0
    step = _STEP.match(text, start + 1) if text.startswith("{", start) else None
    try:
        while step is not None:
            at = step.end()
            before, key = step.groups()
            if key is None:
                unsure = levels >= DEEPEST and at - start > 2 * DEEPEST  # each level takes two brackets
                deep = unsure and too_deep(value, text, start, at)
                return value, places, ~start if deep else at
            if "\\" in key:
                key, _ = scan_string(key + '"', 0, True)
            if before != comma or key in value:
                return value, places, ~start
            value[key], end, known = _leveled(text, at)
            levels = max(levels, known)
            places[key] = (at, end)
            comma = ","
            step = _STEP.match(text, end)
    except JSONDecodeError as problem:
        return value, places, ~problem.pos
    except StopIteration as stop:
        return value, places, ~stop.value
    except (ValueError, RecursionError):
        return value, places, ~start
    gap = _GAP.match(text, end)
    return value, places, ~(gap.end() if gap is not None else end)


def decode(text: str, at: int) -> tuple[Any, int]:
    """Read the strict JSON value at an index, in C; give it and the index past its end. O(n) in characters.

    Raises JSONDecodeError, or StopIteration with the index, where it ceases to be strict JSON, another ValueError for a
    key that stands twice and for a number out of range, RecursionError for what is nested in thousands.
    """
    value, end, _ = _leveled(text, at)
    return value, end


def _leveled(text: str, at: int) -> tuple[Any, int, int]:
    """Do what `decode` does, and tell how many levels the value has at most."""
    if len(text) - at <= HOOKED or text.count('":', at, at + HOOKED) < FEW:
        return _hooked_leveled(text, at)
    value, end = _bare(text, at)
    if isinstance(value, str):
        return value, end, 0
    levels = _levels(value, text[at:end])
    return _hooked_leveled(text, at) if levels is None else (value, end, levels)


def _hooked_leveled(text: str, at: int) -> tuple[Any, int, int]:
    value, end = _hooked(text, at)
    return value, end, 0 if value.__class__ not in _CONTAINERS else (end - at) // 2


def _levels(value: Any, text: str) -> int | None:
    """Count the levels of a value, if surely no key stands twice in its text, and no number is out of range."""
    bones = text.encode("utf-8", "surrogatepass").translate(_BONES, b" \t\n\r")
    if b"0" * 200 in bones or (b"0e" in bones and (b"0e000" in bones or b"0e+000" in bones)):
        return None
    levels, keys = _survey(value, bones.count(b"{") + bones.count(b"["))
    # what looks like the end of a key in a string makes more of them, never fewer
    return levels if bones.count(b'":') == keys else None


def too_deep(value: Any, text: str, start: int, end: int) -> bool:
    """Tell whether the value read from `text[start:end]` has more than `DEEPEST` levels."""
    flat = not _inner(_inner(_inner([[value]])))
    if flat:  # a long string in it need not be counted
        return False
    brackets = text.count("{", start, end) + text.count("[", start, end)
    return brackets > DEEPEST and _survey(value, brackets)[0] > DEEPEST


def _survey(value: Any, brackets: int) -> tuple[int, int]:
    """Count levels and keys. There are no more containers than opening brackets in the text, so none is missed.

    A walk over the value costs less than to count levels in its text, and with all containers found it may end.
    """
    level = [cast("_Items", [value])]
    levels = keys = 0
    while brackets > 0 and levels <= DEEPEST and (level := _inner(level)):
        brackets -= len(level)
        levels += 1
        keys += sum(map(len, [items for items in level if items.__class__ is dict]))
    return levels, keys


def _inner(level: list[_Items]) -> list[_Items]:
    """Give the containers inside the containers of one level."""
    return [
        each
        for items in level
        for each in (items.values() if isinstance(items, dict) else items)
        if each.__class__ in _CONTAINERS
    ]


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_Scan: TypeAlias = Callable[[str, int], tuple[Any, int]]
_hooked: _Scan = vars(JSONDecoder(object_pairs_hook=_pairs, parse_float=finite, parse_constant=_constant))["scan_once"]
_bare: _Scan = vars(JSONDecoder(parse_constant=_constant))["scan_once"]
"""Read the value at an index, in C; give it and the index past its end. Raises StopIteration where there is none."""
