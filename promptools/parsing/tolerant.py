"""JSON, strict and tolerant: the value that starts at a place in a text, and the liberties taken to read it."""

from __future__ import annotations

import re
from json.decoder import JSONDecoder
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from promptools.parsing.extent import DEEPEST
from promptools.parsing.strings import Unreadable, finite, scan_string
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.parsing.reader import Reader

__all__ = ["Unreadable", "Value", "members", "read"]

_CONTAINERS = frozenset({dict, list})
_SPACE = re.compile(r"[ \t\n\r]*+")
_LOOSE_SPACE = re.compile(r"[\s\ufeff\u200b-\u200d\u2060]*+")
_COLON = re.compile(r"[ \t\n\r]*+:[ \t\n\r]*+")
_NEXT = re.compile(r"[ \t\n\r]*+([,}])[ \t\n\r]*+")


_Items: TypeAlias = "dict[str, _Items] | list[_Items]"


class Value(NamedTuple):
    """One JSON value, `text[start:end]`, and how it was read."""

    value: Any
    end: int
    fixes: tuple[Fix, ...] = ()
    closed: int = 0
    """Closers that the end of the text lacked, supplied innermost first."""


def read(
    text: str, start: int = 0, *, anchors: frozenset[str] = frozenset(), close: bool = False, strict: bool = True
) -> Value:
    """Read the JSON value that starts at `text[start]` after white space; what follows it is not looked at.

    `anchors` are keys that tools declare: they tell where a string ends whose inner quotes are not escaped. `close`
    says that the text is all there is: closing brackets missing at its end are supplied, but never the end of a
    string, a key, a number or a literal. Strict JSON is read at the speed of `json`; the rest costs O(n) in
    characters. A surrogate without its partner stays as it is. `strict=False`: it is known to be no strict JSON.
    Raises `Unreadable` and nothing else.
    """
    start = _after(_SPACE, text, start)
    if not strict:
        return _read_loosely(text, start, anchors, close)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _read_loosely(text, start, anchors, close)
    if _too_deep(value):
        raise Unreadable(start, f"more than {DEEPEST} levels of brackets", "limit")
    return Value(value, end)


def members(text: str, start: int = 0) -> tuple[dict[str, tuple[Any, int, int]], int] | None:
    """Read the strict JSON object at `text[start]`: each member with its value's span, and the object's end.

    None if it is not strict JSON; a key that stands twice, NaN, and too many levels count as that.
    """
    if not text.startswith("{", start):
        return None
    found: dict[str, tuple[Any, int, int]] = {}
    at = _after(_SPACE, text, start + 1)
    try:
        more = not text.startswith("}", at)
        at += not more
        while more:
            if not text.startswith('"', at):
                return None
            key, at = scan_string(text, at + 1, True)
            colon = _COLON.match(text, at)
            if colon is None or key in found:
                return None
            value, end = _DECODER.raw_decode(text, colon.end())
            separator = _NEXT.match(text, end)
            if separator is None:
                return None
            found[key] = (value, colon.end(), end)
            more = separator[1] == ","
            at = separator.end() if more else separator.start(1) + 1
    except (ValueError, RecursionError):
        return None
    if _too_deep({key: value for key, (value, _, _) in found.items()}):
        return None
    return found, at


def _read_loosely(text: str, start: int, anchors: frozenset[str], close: bool) -> Value:
    """Read with liberties: strings end at their first quote, or else where a guess says."""
    from promptools.parsing.guess import Guess
    from promptools.parsing.reader import Reader

    start = _after(_LOOSE_SPACE, text, start)
    reader = Reader(text, start, close=close)
    try:
        return _finish(reader)
    except Unreadable as problem:
        if problem.kind != "invalid_json" or not reader.strings:
            raise
        plain = problem
    for trust in (True, False):
        guess = Guess(anchors, before=plain.at, trust=trust)
        try:
            return _finish(Reader(text, start, close=close, guess=guess))
        except Unreadable as second:
            if not guess.trusted or not trust:
                raise (second if second.kind == "truncated" else plain) from None
    raise AssertionError  # pragma: no cover - the last turn returns or raises


def _finish(reader: Reader) -> Value:
    value = reader.read()
    end = reader.at
    if reader.guess is not None and not reader.guess.whole(reader.text, end):
        raise Unreadable(end, "quotes inside a string are not escaped, and its end is not certain", "invalid_json")
    if reader.deepest + 2 > DEEPEST and _too_deep(value):
        raise Unreadable(end, f"more than {DEEPEST} levels of brackets", "limit")
    return Value(value, end, reader.liberties.fixes(), reader.closed)


def _too_deep(value: Any) -> bool:
    """Tell whether the value has more than `DEEPEST` levels. A walk over it costs less than to count its brackets."""
    level = [cast("_Items", [value])]
    for _ in range(DEEPEST + 1):
        level = [
            each
            for items in level
            for each in (items.values() if isinstance(items, dict) else items)
            if each.__class__ in _CONTAINERS
        ]
        if not level:
            return False
    return True


def _after(space: re.Pattern[str], text: str, at: int) -> int:
    found = space.match(text, at)
    assert found is not None
    return found.end()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = JSONDecoder(object_pairs_hook=_pairs, parse_float=finite, parse_constant=_constant)
