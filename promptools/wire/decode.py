"""JSON off the wire: strict where it is strict, and read with the liberties that leave no doubt where it is not."""

from __future__ import annotations

from json import JSONDecoder
from typing import Any, NamedTuple

from promptools.parsing.tolerant import Unreadable, read
from promptools.wire.shapes import as_list, is_object

DIGITS = 4_000
"""Digits above which a whole number is none that anyone counts with; Python refuses more than 4,300."""
DEEPEST = 100
"""Levels of brackets above which a value that is only passed on is left out."""
_BLANK = " \t\r\n\ufeff\x00"
_GUESSED = "unescaped quotes"
"""How the fix begins that says where a string may have ended: of a server's own JSON nothing is guessed."""


class Decoded(NamedTuple):
    """The JSON values of a text, of which there is one but for servers that leave out what separates two."""

    values: list[Any]
    fixes: tuple[str, ...] = ()
    """The liberties taken, in words."""


def _whole_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= DIGITS else None


_STRICT = JSONDecoder()
_LOOSE = JSONDecoder(strict=False, parse_int=_whole_number)


def decode(text: str) -> Decoded:
    """Read one JSON value, or several that stand one after the other. O(n) in characters.

    A byte order mark and zero bytes around it are left out. Raises ValueError for what is no JSON, whatever liberty is
    taken, and for JSON that is nested too deeply.
    """
    text = text.strip(_BLANK)
    try:
        return Decoded([_STRICT.decode(text)])
    except (ValueError, RecursionError):
        pass
    try:
        return Decoded(_several(text), ("not strict JSON",))
    except (ValueError, RecursionError):
        return _tolerantly(text)


def _several(text: str) -> list[Any]:
    """Read values with control characters in their strings, and numbers that are too long, which become null."""
    values: list[Any] = []
    at = 0
    while True:
        value, at = _LOOSE.raw_decode(text, at)
        values.append(value)
        at = _next(text, at)
        if at == len(text):
            return values


def _next(text: str, at: int) -> int:
    """Return where the text goes on after blanks."""
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _tolerantly(text: str) -> Decoded:
    """Read a value that has trailing commas, single quotes, Python's literals and the like."""
    found = read(text)
    fixes = tuple(fix.detail for fix in found.fixes)
    if found.end < len(text) or any(each.startswith(_GUESSED) for each in fixes):
        raise Unreadable(found.end, "more follows than one value", "invalid_json")
    return Decoded([found.value], fixes)


def shallow(value: Any) -> bool:
    """Whether a value has at most `DEEPEST` levels: what is deeper may not be writable again. O(n) in its parts."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return True
    return False


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if is_object(value) else as_list(value)
