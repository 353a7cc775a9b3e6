r"""Decode strings in JSON and in text that is almost JSON; define the result of reading a value; write a value.

This module decides for all readers which quotes open and close a string, and what the escapes in a string mean. A
string is never changed to make it parse: a valid escape keeps its meaning, a needless escape of punctuation (`\'`,
`\$`) decodes to the punctuation, and any other backslash is kept. `ParsedValue` is the result of reading, strict or
with repairs. `dump` writes a value.
"""

from __future__ import annotations

import json
import json.decoder
import json.encoder
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from promptools.patterns import lazy_pattern
from promptools.types import Fix, FixKind

CLOSING_QUOTES: Final = {'"': '"', "'": "'", "“": "“”", "”": "“”", "„": "“”", "‘": "‘’", "’": "‘’"}
"""Opening quotes, each with the quotes that may close it."""

STRING_BODIES: Final = {
    quote: lazy_pattern(rf"[^{close}\\]*+(?:\\.[^{close}\\]*+)*+(?=[{close}])", re.DOTALL)
    for quote, close in CLOSING_QUOTES.items()
}
"""Maps each opening quote to the pattern of a string's body, which ends before the first unescaped closing quote."""

scan_string: Callable[[str, int, bool], tuple[str, int]] = vars(json.decoder)["scanstring"]
"""A C function in the `json` module that is missing from typeshed.

For a text and the index just past an opening quote, it returns the decoded string and the index past its closing quote.
"""

STRICT_STRING: Final = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
"""The pattern of a strict JSON string."""

encode_string: Callable[[str], str] = vars(json.encoder)["encode_basestring"]
"""A C function in the `json` module that is missing from typeshed. It encodes a string as strict JSON."""

# Command R+ writes `\$`, and Go's parser in Ollama fails on it (ollama#12064).
_NEEDLESS = frozenset("'$`_")
_VALID = lazy_pattern(r'[^\\"]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^\\"]*+)*+\Z')
_CONTROL = lazy_pattern(r"[\x00-\x1f]")
_ESCAPE = lazy_pattern(r'((?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))++)|\\(.?)', re.DOTALL)
_BAD_LETTER = lazy_pattern(r"\\(?![bfnrt])(?!u[0-9a-fA-F]{4})[^\W_]")
_PATH = lazy_pattern(
    r"(?:[A-Za-z]:|\\\\[^\\/:*?\"<>|\s]++)"
    r"(?:\\(?:Program\ Files(?:\ \(x86\))?+|[^\\/:*?\"<>|\s]++))++\\?+"
)


class Unreadable(ValueError):
    """Raised if no repair makes a value readable; `at` is the index in the text at which reading failed."""

    def __init__(self, at: int, reason: str, kind: Literal["invalid_json", "truncated", "limit"]) -> None:
        super().__init__(f"{reason} (at character {at})")
        self.at = at
        self.reason = reason
        self.kind: Literal["invalid_json", "truncated", "limit"] = kind


class FixLog:
    """The repairs made so far. Repairs of the same kind and detail become one `Fix`, which says how many there were."""

    def __init__(self) -> None:
        self._counts: dict[tuple[FixKind, str], int] = {}

    def add(self, detail: str, kind: FixKind = "json", count: int = 1) -> None:
        """Record a repair made `count` times."""
        key = (kind, detail)
        self._counts[key] = self._counts.get(key, 0) + count

    def fixes(self) -> tuple[Fix, ...]:
        """Return one fix for each kind and detail, in the order of the first repairs."""
        return tuple(
            Fix(kind, detail if count == 1 else f"{detail} ({count} times)")
            for (kind, detail), count in self._counts.items()
        )


def decode_string(body: str, fix_log: FixLog) -> str:
    """Decode the text between the quotes of a string. O(n) in characters."""
    # xgrammar 0.2.8 (vLLM 0.32) lets raw control characters into strings that have a `maxLength`.
    if _CONTROL.search(body):
        fix_log.add("control character in a string")
    if "\\" not in body:
        return body
    if _VALID.match(body):
        return scan_string(body + '"', 0, False)[0]
    if _PATH.fullmatch(body) and _BAD_LETTER.search(body):
        fix_log.add("backslashes of a Windows path kept")
        return body

    def repair(match: re.Match[str]) -> str:
        if match[1]:
            return scan_string(match[1] + '"', 0, False)[0]
        if match[2] in _NEEDLESS:
            fix_log.add("needless escape dropped")
            return match[2]
        fix_log.add("backslash that escapes nothing kept")
        return match[0]

    return _ESCAPE.sub(repair, body)


# The result of reading a value, strict or with repairs; and writing a value.


MemberSpans: TypeAlias = dict[str, tuple[int, int]]
"""Maps the key of each member of an object to the start and the end of the member's value."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
"""An encoder that is made once, since `json.dumps` would make an encoder for each call."""


class ParsedValue(NamedTuple):
    """A JSON value, the index `end` at which it ends in the text, and how it was read."""

    value: Any
    end: int
    fixes: tuple[Fix, ...] = ()
    supplied_closers: int = 0
    """Number of closing brackets that were missing at the end of the text and were supplied."""
    member_spans: MemberSpans | None = None
    """For an object, the spans of its members' values in its strict JSON text; None if they are not known."""
    repaired_text: str | None = None
    """The strict JSON text of a repaired object; None if the model's text is strict, or no such text is known."""


def dump(value: Any) -> str:
    """Encode a value as JSON in the way that models write it: on one line, without ASCII escapes."""
    return _ENCODER.encode(value)
