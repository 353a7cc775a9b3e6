"""Decode JSON from the network, and narrow values to the expected types, since a body may contain anything.

JSON is decoded strictly if possible, otherwise with unambiguous repairs.
"""

from __future__ import annotations

import json
from json import JSONDecoder
from typing import Any, NamedTuple

from pydantic_core import from_json

from promptools.json_values import is_array, is_object
from promptools.jsontext.read import Unreadable, read_value

# Narrowing: a value that is not of the expected type becomes an empty value.


def as_object(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty object."""
    return value if is_object(value) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is an array, else an empty array."""
    return value if is_array(value) else []


def as_text(value: Any) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


# Decoding.


MAX_DIGITS = 4_000
"""Maximum number of digits of an integer; a longer integer becomes null. Python itself refuses more than 4,300."""
MAX_DEPTH = 100
"""Maximum nesting of a value that is only passed on; a deeper value is dropped."""
MAX_LEVELS = 500
"""Maximum nesting of JSON text that is parsed: half of what Python's recursion limit allows."""
NO_OBJECT = "the request's body must be a JSON object"
TOO_DEEP = f"the request's body is nested more than {MAX_LEVELS} levels deep; flatten it"
_WHITE_SPACE = " \t\r\n\ufeff\x00"
_GUESS_PREFIX = "unescaped quotes"
"""Prefix of the description of a repair that guessed where a string ends.

This module refuses JSON that was repaired in this way.
"""


class Decoded(NamedTuple):
    """Holds the JSON values of a text. Most texts have one value, but some servers send several without a separator."""

    values: list[Any]
    fixes: tuple[str, ...] = ()
    """Descriptions of the repairs."""


def _whole_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


_LOOSE = JSONDecoder(strict=False, parse_int=_whole_number)


def parse_json(data: str | bytes) -> Any:
    """Parse strict JSON like `json.loads`, with the same ValueError and RecursionError, but faster.

    pydantic's parser is tried first. What it accepts, it reads exactly as Python's parser would. What it rejects, such
    as lone surrogates, UTF-16 and more than 200 levels, is then read by Python's parser. More than `MAX_LEVELS` levels
    are a RecursionError in every version of Python and at every depth of the stack, because such values could be read
    but not written again.
    """
    try:
        return from_json(data)
    except (ValueError, TypeError):  # TypeError: a string with a lone surrogate
        value = json.loads(data)
    if not is_shallow(value, MAX_LEVELS):
        raise RecursionError(f"nested more than {MAX_LEVELS} levels")
    return value


def parse_object(data: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty object for any other text."""
    try:
        return as_object(parse_json(data))
    except (ValueError, RecursionError):
        return {}


def parse_body(body: bytes) -> tuple[Any, str]:
    """Parse a request's body; return the object and "", or else None and the reason why the body cannot be used."""
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    except RecursionError:
        return None, TOO_DEEP
    return (value, "") if is_object(value) else (None, NO_OBJECT)


def decode_json(text: str) -> Decoded:
    """Decode one JSON value, or several in a row. The cost is O(n) in characters.

    A byte order mark and zero bytes around the text are dropped. Raises ValueError for text that is not JSON even with
    repairs, and for JSON that is nested too deeply.
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
    """Decode one or more values; strings may contain control characters, and integers that are too long become null."""
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
    """Decode a single value with trailing commas, single quotes, Python's literals and the like."""
    parsed = read_value(text)
    fixes = tuple(fix.detail for fix in parsed.fixes)
    if parsed.end < len(text) or any(fix.startswith(_GUESS_PREFIX) for fix in fixes):
        raise Unreadable(parsed.end, "more follows than one value", "invalid_json")
    return Decoded([parsed.value], fixes)


def is_shallow(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Return whether a value has at most `levels` levels of nesting, in O(n).

    Callers check this because it might not be possible to encode a deeper value again.
    """
    level = [value]
    for _ in range(levels):
        level = [inner for item in level for inner in (item.values() if is_object(item) else as_list(item))]
        if not level:
            return True
    return False


# A message's `content`: a string, a list of parts, null, or anything else that a client put there.


def split_content(content: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Return the text of a message's `content`, and its parts that are not text (images, files).

    `content` is a string or a list of parts. None is returned as an empty text, and any other value as JSON.
    """
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
