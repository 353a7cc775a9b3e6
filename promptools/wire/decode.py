"""Decode JSON off the wire: strictly where possible, otherwise with the repairs that leave no doubt."""

from __future__ import annotations

from json import JSONDecoder
from typing import Any, NamedTuple

from promptools.parsing.tolerant import Unreadable, read
from promptools.wire.shapes import as_list, is_object

DIGITS = 4_000
"""Integers with more digits become null; Python refuses more than 4,300."""
DEEPEST = 100
"""Nesting above which a value that is only passed on is dropped."""
_BLANK = " \t\r\n\ufeff\x00"
_GUESSED = "unescaped quotes"
"""The prefix of the fix that guesses where a string ends: nothing is guessed of a server's own JSON."""


class Decoded(NamedTuple):
    """The JSON values of a text: one, except for servers that omit the separator between two."""

    values: list[Any]
    fixes: tuple[str, ...] = ()
    """Descriptions of the repairs."""


def _whole_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= DIGITS else None


_STRICT = JSONDecoder()
_LOOSE = JSONDecoder(strict=False, parse_int=_whole_number)


def decode(text: str) -> Decoded:
    """Decode one JSON value, or several in a row. O(n) in characters.

    A byte order mark and zero bytes around it are dropped. Raises ValueError for text that no repair makes JSON, and
    for JSON that is nested too deeply.
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
    """Decode values with control characters in strings, and with numbers that are too long, which become null."""
    values: list[Any] = []
    at = 0
    while True:
        value, at = _LOOSE.raw_decode(text, at)
        values.append(value)
        at = _next(text, at)
        if at == len(text):
            return values


def _next(text: str, at: int) -> int:
    """Return the offset after white space."""
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _tolerantly(text: str) -> Decoded:
    """Decode a value that has trailing commas, single quotes, Python's literals and the like."""
    parsed = read(text)
    fixes = tuple(fix.detail for fix in parsed.fixes)
    if parsed.end < len(text) or any(fix.startswith(_GUESSED) for fix in fixes):
        raise Unreadable(parsed.end, "more follows than one value", "invalid_json")
    return Decoded([parsed.value], fixes)


def shallow(value: Any) -> bool:
    """Return whether a value has at most `DEEPEST` levels: deeper, it may fail to be encoded again. O(n)."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return True
    return False


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if is_object(value) else as_list(value)
