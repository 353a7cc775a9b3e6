"""Read the JSON value at an index of a text, strict or repaired, and report the repairs as fixes.

Readers are tried from the fastest to the most tolerant, each only where the one before gives up: `json` in C, the fast
repair of four common mistakes, the repair of everything else with strings that end at their first quote, and at last
the same with a guess at which inner quotes were not escaped.
"""

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
    """A JSON value that ends at `end`, and how it was read."""

    value: Any
    end: int
    fixes: tuple[Fix, ...] = ()
    closed: int = 0
    """Closing brackets missing at the end of the text that were supplied, innermost first."""
    places: Places | None = None
    """The spans of an object's member values in its text as strict JSON, if they are known."""
    mended: str | None = None
    """That text, if it was repaired; None if it is the model's own, or not at hand."""


def read(
    text: str, start: int = 0, *, anchors: frozenset[str] = frozenset(), close: bool = False, strict: bool = True
) -> Value:
    """Read the JSON value that starts at `text[start]` after white space; what follows it is ignored.

    `anchors` are keys that tools declare: they show where a string ends whose inner quotes are not escaped. With
    `close` the text is complete, so closing brackets missing at its end are supplied, but never the end of a string, a
    key, a number or a literal. `strict=False` skips the strict reader, for text known not to be strict JSON. A lone
    surrogate is kept. Strict JSON is read at the speed of `json`, anything else in O(n) characters.

    Raise `Unreadable`, and nothing else, if there is no value.
    """
    start = _after(_SPACE, text, start)
    if not strict:
        return _read_loosely(text, start, anchors, close)
    try:
        value, end = decode(text, start)
    except JSONDecodeError as problem:
        result = _mended(text, start, problem.pos)
    except StopIteration as stop:
        result = _mended(text, start, stop.value)
    except (ValueError, RecursionError):
        result = None
    else:
        if too_deep(value, text, start, end):
            raise Unreadable(start, f"more than {DEEPEST} levels of brackets", "limit")
        return Value(value, end)
    if result is None and close and text.startswith("{", start):
        result = _closed(text, start, *beginning(text, start))
    return _read_loosely(text, start, anchors, close) if result is None else result


def whole(text: str, start: int = 0) -> Value | None:
    """Read the object that starts at `text[start]` if it is complete, and strict but for what the fast repair fixes.

    Return None if there may be more of it, or if it needs another repair. Its last bracket alone may be missing: then
    it is `closed`, and ends where the text does. O(n) in characters.
    """
    value, places, stop = beginning(text, start)
    if stop >= 0:
        return Value(value, stop, places=places)
    return _closed(text, start, value, places, stop) or _mended(text, start, ~stop)


def _closed(text: str, start: int, value: Any, places: Places, stop: int) -> Value | None:
    """Return an object that ends with the text and lacks its last bracket alone; None if it lacks more."""
    if ~stop != len(text) or not places:
        return None
    *_, (begin, end) = places.values()
    if text[end:].strip(" \t\n\r") or not (text[end - 1] in '"]}' or text[begin] in "tfn"):
        return None
    spans = {key: (span[0] - start, span[1] - start) for key, span in places.items()}
    return Value(value, end, (Fix("closer", "missing } supplied"),), 1, spans, text[start:end] + "}")


def _mended(text: str, start: int, slip: int) -> Value | None:
    from promptools.parsing.slips import mended

    return mended(text, start, slip)


def _read_loosely(text: str, start: int, anchors: frozenset[str], close: bool) -> Value:
    """Read with repairs: strings end at their first quote, and if that fails where a guess puts their end."""
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
    match = space.match(text, at)
    assert match is not None
    return match.end()
