"""JSON from the network: decoded, and narrowed to the expected types, since a body may contain anything.

It is decoded strictly if possible, otherwise with unambiguous repairs.
"""

from __future__ import annotations

import json
import math
from json import JSONDecoder
from typing import Any, NamedTuple

from pydantic_core import from_json

from promptools.json_values import is_array, is_object
from promptools.jsontext.read import Unreadable, read_value

# Values narrowed to the wanted type, or to an empty one.


MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""
MAX_TIMESTAMP = 253_402_300_799
"""The last second of the year 9999, since 1970."""


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is an array, else an empty one."""
    return value if is_array(value) else []


def as_text(value: Any) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_int(value: Any) -> int | None:
    """Return `value` if it is an integer; True and False are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: Any) -> int | float | None:
    """Return `value` if it is a finite number within `MAX_SAFE_INTEGER`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and not math.isnan(value) else None


def as_count(value: Any) -> int | None:
    """Return a count of tokens or nanoseconds, a non-negative integer; some servers write 9.0 for 9."""
    number = as_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def as_timestamp(value: Any) -> int:
    """Return seconds since 1970; 0 for anything that is not a time before the year 10000."""
    number = as_number(value)
    return int(number) if number is not None and 0 <= number <= MAX_TIMESTAMP else 0


# Decoding.


MAX_DIGITS = 4_000
"""Integers with more digits become null; Python refuses more than 4,300."""
MAX_DEPTH = 100
"""Nesting above which a value that is only passed on is dropped."""
MAX_LEVELS = 500
"""Nesting above which a text is not read: half of what Python's own recursion allows."""
NO_OBJECT = "the request's body must be a JSON object"
TOO_DEEP = f"the request's body is nested more than {MAX_LEVELS} levels deep; flatten it"
_WHITE_SPACE = " \t\r\n\ufeff\x00"
_GUESS_PREFIX = "unescaped quotes"
"""The prefix of the fix that guesses where a string ends: nothing is guessed of a server's own JSON."""


class Decoded(NamedTuple):
    """The JSON values of a text: one, except for servers that omit the separator between two."""

    values: list[Any]
    fixes: tuple[str, ...] = ()
    """Descriptions of the repairs."""


def _whole_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


_LOOSE = JSONDecoder(strict=False, parse_int=_whole_number)


def parse_json(data: str | bytes) -> Any:
    """Parse strict JSON like `json.loads`, but faster. Raises the same ValueError and RecursionError.

    What pydantic's parser accepts, Python's reads in the same way; but pydantic's rejects lone surrogates, UTF-16 and
    more than 200 levels. More than `MAX_LEVELS` levels are a RecursionError in every version of Python and at every
    depth of the stack, because such values could be read but not written again.
    """
    try:
        return from_json(data)
    except (ValueError, TypeError):  # TypeError: a string with a lone surrogate
        value = json.loads(data)
    if not is_shallow(value, MAX_LEVELS):
        raise RecursionError(f"nested more than {MAX_LEVELS} levels")
    return value


def parse_object(data: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        return as_object(parse_json(data))
    except (ValueError, RecursionError):
        return {}


def parse_body(body: bytes) -> tuple[Any, str]:
    """Parse a request's body; return it, or None and the reason: not a JSON object, or nested too deeply."""
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    except RecursionError:
        return None, TOO_DEEP
    return (value, "") if is_object(value) else (None, NO_OBJECT)


def decode_json(text: str) -> Decoded:
    """Decode one JSON value, or several in a row. O(n) in characters.

    A byte order mark and surrounding zero bytes are dropped. Raises ValueError for text that no repair makes JSON, and
    for JSON that is nested too deeply.
    """
    text = text.strip(_WHITE_SPACE)
    try:
        return Decoded([parse_json(text)])
    except (ValueError, RecursionError):
        pass
    try:
        return Decoded(_decode_sequence(text), ("not strict JSON",))
    except (ValueError, RecursionError):
        return _decode_repaired(text)


def _decode_sequence(text: str) -> list[Any]:
    """Decode values with control characters in strings; numbers that are too long become null."""
    values: list[Any] = []
    at = 0
    while True:
        value, at = _LOOSE.raw_decode(text, at)
        values.append(value)
        while at < len(text) and text[at] in _WHITE_SPACE:
            at += 1
        if at == len(text):
            return values


def _decode_repaired(text: str) -> Decoded:
    """Decode a value that has trailing commas, single quotes, Python's literals and the like."""
    parsed = read_value(text)
    fixes = tuple(fix.detail for fix in parsed.fixes)
    if parsed.end < len(text) or any(fix.startswith(_GUESS_PREFIX) for fix in fixes):
        raise Unreadable(parsed.end, "more follows than one value", "invalid_json")
    return Decoded([parsed.value], fixes)


def is_shallow(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value has at most this many levels; a deeper one might fail to be encoded again. O(n)."""
    level = [value]
    for _ in range(levels):
        level = [inner for item in level for inner in (item.values() if is_object(item) else as_list(item))]
        if not level:
            return True
    return False


# A message's `content`: a string, a list of parts, null, or anything else that a client put there.


def split_content(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Return the text of `content`, a string or parts, and the parts that are not text (images, sound, files)."""
    if isinstance(content, str):
        return content, ()
    if content is None:
        return "", ()
    if not is_array(content):
        return json.dumps(content, ensure_ascii=False), ()
    texts: list[str] = []
    others: list[dict[str, Any]] = []
    for part in content:
        data = as_object(part)
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(data.get("text"), str):
            texts.append(data["text"])
        elif data:
            others.append(data)
    return "\n".join(texts), tuple(others)
