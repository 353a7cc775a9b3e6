"""Read the JSON value at an index of a text, strict or repaired, and report the repairs as fixes.

Three readers are tried, from the fastest to the most tolerant, each only if the one before gives up. The first is
Python's `json`. The second makes repairs, and takes the first quote in a string as the string's end. The third makes
repairs too, and guesses which quotes inside a string were not escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from promptools.jsontext.brackets import MAX_DEPTH
from promptools.jsontext.strict import exceeds_max_depth, read_members, read_strict_value
from promptools.jsontext.text import MemberSpans, ParsedValue, Unreadable
from promptools.patterns import lazy_pattern
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.jsontext.repair import RepairingReader

__all__ = ["ParsedValue", "Unreadable", "read_complete_object", "read_value", "read_whole_value"]

_SPACE = lazy_pattern(r"[ \t\n\r]*+")
_LOOSE_SPACE = lazy_pattern(r"[\s\ufeff\u200b-\u200d\u2060]*+")


def read_value(
    text: str,
    start: int = 0,
    *,
    declared_keys: frozenset[str] = frozenset(),
    supply_closers: bool = False,
    strict: bool = True,
) -> ParsedValue:
    """Read the JSON value that begins at `text[start]`, perhaps after white space; ignore the text after the value.

    `declared_keys` are keys that tools declare. They help to find the end of a string whose inner quotes are not
    escaped. `supply_closers` says that no more text will come: closing brackets that are missing at the end are then
    supplied. The end of a string, a key, a number or a literal is never supplied. `strict=False` skips the strict
    reader, for text that cannot be strict JSON. A lone surrogate is kept. Strict JSON is read at the speed of `json`,
    other text in O(n) characters.

    Raises `Unreadable`, and no other error, if no value can be read.
    """
    start = _skip_space(_SPACE, text, start)
    if not strict:
        return _read_with_repairs(text, start, declared_keys, supply_closers)
    try:
        value, end, _ = read_strict_value(text, start)
    except (StopIteration, ValueError, RecursionError):
        pass
    else:
        if exceeds_max_depth(value, text, start, end):
            raise Unreadable(start, f"more than {MAX_DEPTH} levels of brackets", "limit")
        return ParsedValue(value, end)
    # vllm#19056: the last brace before `</tool_call>` is missing.
    if supply_closers and text.startswith("{", start):
        value, member_spans, _ = read_members(text, start)
        parsed = _with_last_bracket(text, start, value, member_spans)
        if parsed is not None:
            return parsed
    return _read_with_repairs(text, start, declared_keys, supply_closers)


def read_whole_value(text: str) -> ParsedValue:
    """Read a text that is a single JSON value, strict or repaired. Raises `Unreadable` for any other text."""
    parsed = read_value(text)
    if text[parsed.end :].strip():
        raise Unreadable(parsed.end, "text follows the value", "invalid_json")
    return parsed


def read_complete_object(text: str, start: int = 0) -> ParsedValue | None:
    """Read the strict JSON object that starts at `text[start]`, if it is complete.

    Return None if the object may continue after the text, or if it needs a repair. There is one exception: if only the
    last bracket is missing at the end of the text, it is supplied and counted in `supplied_closers`. O(n) in
    characters.
    """
    value, member_spans, end = read_members(text, start)
    if end is not None:
        return ParsedValue(value, end, member_spans=member_spans)
    return _with_last_bracket(text, start, value, member_spans)


def _with_last_bracket(text: str, start: int, value: Any, member_spans: MemberSpans) -> ParsedValue | None:
    """Return an object that lacks only its last bracket at the end of the text; None if it lacks more."""
    if not member_spans:
        return None
    *_, (begin, end) = member_spans.values()
    if text[end:].strip(" \t\n\r") or not (text[end - 1] in '"]}' or text[begin] in "tfn"):
        return None
    spans = {key: (span[0] - start, span[1] - start) for key, span in member_spans.items()}
    return ParsedValue(value, end, (Fix("closer", "missing } supplied"),), 1, spans, text[start:end] + "}")


def _read_with_repairs(text: str, start: int, declared_keys: frozenset[str], supply_closers: bool) -> ParsedValue:
    """Read the value at `text[start]` with repairs.

    Each string is first assumed to end at the first quote in it. If that fails, the ends of strings are guessed.
    """
    from promptools.jsontext.quotes import QuoteResolver
    from promptools.jsontext.repair import RepairingReader

    start = _skip_space(_LOOSE_SPACE, text, start)
    reader = RepairingReader(text, start, supply_closers=supply_closers)
    try:
        return _finish(reader)
    except Unreadable as problem:
        if problem.kind != "invalid_json" or not reader.has_strings:
            raise
        plain = problem
    for trust in (True, False):
        guess = QuoteResolver(declared_keys, failed_at=plain.at, trust_keys=trust)
        try:
            return _finish(RepairingReader(text, start, supply_closers=supply_closers, quotes=guess))
        except Unreadable as second:
            if not guess.met_odd_key or not trust:
                raise (second if second.kind == "truncated" else plain) from None
    raise AssertionError  # pragma: no cover - the last turn returns or raises


def _finish(reader: RepairingReader) -> ParsedValue:
    parsed = reader.read()
    if reader.quotes is not None and not reader.quotes.may_end_at(reader.text, parsed.end):
        raise Unreadable(
            parsed.end, "quotes inside a string are not escaped, and its end is not certain", "invalid_json"
        )
    if reader.entered_depth + 2 > MAX_DEPTH and exceeds_max_depth(parsed.value, reader.text, 0, parsed.end):
        raise Unreadable(parsed.end, f"more than {MAX_DEPTH} levels of brackets", "limit")
    return parsed


def _skip_space(space: re.Pattern[str], text: str, at: int) -> int:
    match = space.match(text, at)
    assert match is not None
    return match.end()
