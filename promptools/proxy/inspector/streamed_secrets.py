"""Secrets that a body holds in pieces: a stream has a few characters of a text in each event.

A string of one event continues that of an earlier one at the same place in the JSON. So all strings of a place are read
as one text, and what is masked in it is masked in the strings that it is spread over; everything else stays as it is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptools.masking import SecretMask

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_DATA = re.compile(r"\s*(?:data:)?\s*")


def mask_body(text: str, mask: SecretMask) -> str:
    """Return a body, whole or a stream, without the secrets that its strings hold together."""
    if mask.pattern is None:
        return text
    places: dict[str, list[tuple[int, int, str]]] = {}
    for start, document in _documents(text):
        for place, begins, ends, string in _strings(document):
            places.setdefault(place, []).append((start + begins, start + ends, string))
    changes: list[tuple[int, int, str]] = []
    for strings in places.values():
        masked = mask.pieces([string for _, _, string in strings])
        changes += [
            (start, end, json.dumps(shown, ensure_ascii=False))
            for (start, end, string), shown in zip(strings, masked, strict=True)
            if shown != string
        ]
    parts, at = list[str](), 0
    for start, end, shown in sorted(changes):
        parts += [text[at:start], shown]
        at = end
    return "".join((*parts, text[at:]))


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield the JSON of a whole body, or of each line of a stream, with where it begins."""
    if _parse(text) is not None:
        yield 0, text
        return
    start = 0
    for line in text.splitlines(keepends=True):
        found = _DATA.match(line)
        begins = found.end() if found else 0
        yield start + begins, line[begins:]
        start += len(line)


def _strings(document: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield the values of a document that are strings: their place, where they are in it, and what they say."""
    value = _parse(document)
    if value is None:
        return
    tokens = list(_STRING.finditer(document))
    known = list(_walk(value, ""))
    if len(known) != len(tokens):  # a name occurs twice in an object
        known = [(f"string {number}", "") for number in range(len(tokens))]
    for (place, _), token in zip(known, tokens, strict=True):
        if place is not None:
            yield place, token.start(), token.end(), json.loads(token[0], strict=False)


def _walk(value: Any, place: str) -> Iterator[tuple[str | None, str]]:
    """Yield the place of each string, None for names, in the order of the text."""
    if isinstance(value, str):
        yield place, value
    elif is_object(value):
        for name, entry in value.items():
            yield None, name
            yield from _walk(entry, f"{place}/{name}")
    elif is_array(value):
        for entry in value:  # the choices and calls of a stream say themselves which one they continue
            index = entry.get("index", "") if is_object(entry) else ""
            yield from _walk(entry, f"{place}/{index}")


def _parse(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
