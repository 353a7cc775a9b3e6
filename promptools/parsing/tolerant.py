"""JSON, strict and tolerant: the value that starts at a place in a text, and the liberties taken to read it."""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.parsing.extent import DEEPEST
from promptools.parsing.strict import Places, beginning, decode, too_deep
from promptools.parsing.strings import Unreadable
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.parsing.reader import Reader

__all__ = ["Unreadable", "Value", "read", "whole"]

_SPACE = re.compile(r"[ \t\n\r]*+")
_LOOSE_SPACE = re.compile(r"[\s\ufeff\u200b-\u200d\u2060]*+")


class Value(NamedTuple):
    """One JSON value, `text[start:end]`, and how it was read."""

    value: Any
    end: int
    fixes: tuple[Fix, ...] = ()
    closed: int = 0
    """Closers that the end of the text lacked, supplied innermost first."""
    places: Places | None = None
    """Where the values of an object's members stand in its text as strict JSON, if that is known."""
    mended: str | None = None
    """That text, where it was mended; None: it is the model's, or not at hand."""


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
        value, end = decode(text, start)
    except JSONDecodeError as problem:
        found = _mended(text, start, problem.pos)
    except StopIteration as stop:
        found = _mended(text, start, stop.value)
    except (ValueError, RecursionError):
        found = None
    else:
        if too_deep(value, text, start, end):
            raise Unreadable(start, f"more than {DEEPEST} levels of brackets", "limit")
        return Value(value, end)
    if found is None and close and text.startswith("{", start):
        found = _closed(text, start, *beginning(text, start))
    return _read_loosely(text, start, anchors, close) if found is None else found


def whole(text: str, start: int = 0) -> Value | None:
    """Read the object that starts at `text[start]` if it is all there, strict or with slips that are mended in passing.

    None where there may be more to it, or another liberty has to be taken. Its last bracket alone may be missing: then
    it is `closed`, and ends where the text does. O(n) in characters.
    """
    value, places, stop = beginning(text, start)
    if stop >= 0:
        return Value(value, stop, places=places)
    return _closed(text, start, value, places, stop) or _mended(text, start, ~stop)


def _closed(text: str, start: int, value: Any, places: Places, stop: int) -> Value | None:
    """Supply the last bracket of an object that ends with the text, if it lacks nothing else."""
    if ~stop != len(text) or not places:
        return None
    *_, (begin, end) = places.values()
    if text[end:].strip(" \t\n\r") or not (text[end - 1] in '"]}' or text[begin] in "tfn"):
        return None
    within = {key: (place[0] - start, place[1] - start) for key, place in places.items()}
    return Value(value, end, (Fix("closer", "missing } supplied"),), 1, within, text[start:end] + "}")


def _mended(text: str, start: int, slip: int) -> Value | None:
    from promptools.parsing.slips import mended

    return mended(text, start, slip)


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
    if reader.deepest + 2 > DEEPEST and too_deep(value, reader.text, 0, end):
        raise Unreadable(end, f"more than {DEEPEST} levels of brackets", "limit")
    return Value(value, end, reader.liberties.fixes(), reader.closed)


def _after(space: re.Pattern[str], text: str, at: int) -> int:
    found = space.match(text, at)
    assert found is not None
    return found.end()
