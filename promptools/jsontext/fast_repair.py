"""Repair four common mistakes in JSON fast: all in a window of text at once, from where `json` stops at the first.

Models that write single quotes, Python's literals, trailing commas or keys without quotes do so throughout. Each of
these is recognized by the tokens beside it, so one call of the regex engine repairs all of one kind, where the step by
step repair takes a step in Python for each.

A round starts at the offset where `json` stopped. It takes a window of text from there, splits it into strings and what
is outside strings, repairs the latter, and has `json` read the whole again from the start. Windows grow by a factor, so
all rounds together are O(n). `json` decides: what it accepts has the tokens of the model's text, in the same order. A
round that cannot repair what `json` stopped at gives up, and the value is left to the step by step repair, which makes
the same repairs and more.

A quote that was supplied is written as a mark until `json` reads the text. All other repairs keep the length, so that
an index in the repaired text leads back to the model's.
"""

from __future__ import annotations

import re
from collections import Counter
from json.decoder import JSONDecodeError
from typing import Any, Final, NamedTuple

from promptools.jsontext.strict import MemberSpans, exceeds_max_depth, read_object_prefix, read_strict_value
from promptools.jsontext.strings import STRICT_STRING, FixLog
from promptools.jsontext.value import ParsedValue
from promptools.types import Fix

MAX_ROUNDS: Final = 10
"""Rounds of a repair, each with one call of `json`."""

FIRST_WINDOW: Final = 256
WINDOW_GROWTH: Final = 16
"""Characters after the mistake that are repaired in the first round, and the factor by which they grow in each later
one. `json` starts anew each round, so all rounds before the last cost little, and a short value only its own length."""

MAX_TOKEN_LENGTH: Final = 100
"""Characters that a token outside strings may have."""

_STRING_MARK = "\x00"
"""The mark of a string in text that is outside strings."""
_QUOTE_MARK = "\x01"
"""The mark of a quote that was supplied around a key."""

_MISTAKE = re.compile(r"['}\],]|[^\W\d]|\"")
"""What `json` stops at: a mistake, or a string that was cut off at the end of the window."""
_STRINGS = re.compile(rf"({STRICT_STRING}|'[^'\"\\\x00-\x1f]*+')")
_STRAY_QUOTE = re.compile("[\"']")
_NO_QUOTES = bytes(set(range(256)) - set(b"\"'"))
_CONTROL = re.compile(r"[\x00-\x1f]")
_TRAILING = re.compile(r",(?=[ \t\n\r]*+[}\]])(?<![\s\[{,:],)")
_KEY = re.compile(r"\b([^\W\d][\w$-]{0,80}+)(?=\s*+:)")
_INCOMPLETE_TOKEN = re.compile(r"[\w$,\s-]+\Z")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_LITERALS = tuple(
    (re.compile(rf"{python}(?<![\w$-]{python})(?![\w$-])(?!\s*+:)"), literal) for python, literal in _PYTHON.items()
)
_COUNT_CHANGES: Final = {
    "single quotes": (("'",), 2),
    "Python literal": (tuple(_PYTHON), 1),
    "trailing comma": ((",",), 1),
    "unquoted key": ((_QUOTE_MARK,), 2),
}
"""By kind of repair, the texts whose count it changes, and by how much for one repair."""
_CLOSERS = frozenset("]}")
_NOT_AFTER_VALUE = frozenset(" \t\n\r[{,:")
"""Characters before a comma that does not directly follow a value."""


def repair_common(text: str, start: int, error_at: int) -> ParsedValue | None:
    """Read the value at `text[start]`, which is strict JSON up to `error_at`.

    Return None if it needs other repairs too. O(n) in the value's characters.
    """
    slips = _FastRepair(text, start)
    at = error_at - start
    for _ in range(MAX_ROUNDS):
        if not slips.repair_at(at):
            return None
        repaired = slips.text
        value, places, stop = _read_strict_prefix(repaired)
        if stop >= 0:
            return ParsedValue(
                value, slips.source_index(stop), slips.fixes(stop), member_spans=places, repaired_text=repaired[:stop]
            )
        at = ~stop
    return None


def _read_strict_prefix(text: str) -> tuple[Any, MemberSpans, int]:
    """Read a value of any kind as far as it is strict JSON, as `read_object_prefix` does an object."""
    if text.startswith("{"):
        return read_object_prefix(text)
    try:
        value, end = read_strict_value(text, 0)
    except JSONDecodeError as problem:
        return None, {}, ~problem.pos
    except StopIteration as stop:
        return None, {}, ~stop.value
    except (ValueError, RecursionError):
        return None, {}, ~0
    return value, {}, ~0 if exceeds_max_depth(value, text, 0, end) else end


class _FastRepair:
    """The beginning of a value, repaired as far as it has been taken."""

    def __init__(self, source: str, start: int) -> None:
        self._source = source
        self._start = start
        self._taken_to = start
        """The index in the source up to which it has been taken."""
        self._repaired = ""
        """What was taken, repaired; supplied quotes are marks."""
        self._scanned_to = 0
        """The index in it up to which mistakes have been looked for."""
        self._window = FIRST_WINDOW
        self._has_unquoted_keys = False
        """Whether there was a key without quotes."""
        self._first_index: dict[str, int] = {}
        """The index in the source of the first mistake of each kind."""
        self._counts = Counter[str]()
        """How many of each kind were repaired."""

    @property
    def text(self) -> str:
        """What was taken, as `json` is to read it."""
        return self._repaired.replace(_QUOTE_MARK, '"') if self._has_unquoted_keys else self._repaired

    def repair_at(self, at: int) -> bool:
        """Repair what is at `at` and the like after it; return False if nothing can be done."""
        upto = self._taken_to + max(0, at + self._window - len(self._repaired))
        window = self._source[self._taken_to : upto]
        taken = self._repaired + window
        cut = 0 < len(self._repaired) == at
        key = not self._has_unquoted_keys and _KEY.match(taken, at) is not None
        begin = at if cut else _mistake_start(taken, at)
        if begin < 0 or (at < self._scanned_to and not key) or _STRING_MARK in window or _QUOTE_MARK in window:
            return False
        more = bool(self._repaired and window)
        self._has_unquoted_keys = self._has_unquoted_keys or key
        self._window *= WINDOW_GROWTH
        self._taken_to += len(window)
        tokens = _tokenize(taken[begin:], more=self._taken_to < len(self._source))
        scanned = begin + len(tokens.outside) + len(tokens.quotes) + sum(map(len, tokens.strings))
        self._repaired = taken[:begin] + self._repaired_text(tokens, begin) + taken[scanned:]
        self._scanned_to = len(self._repaired) - len(taken) + scanned
        return more or self._repaired != taken

    def _repaired_text(self, tokens: _Tokens, begin: int) -> str:
        """Return the text of the tokens, repaired."""
        outside, quotes, strings = tokens

        def note(kind: str, at: int, count: int) -> None:
            """Record the mistakes of a kind, the first of which is at `outside[at]`."""
            before = strings[: outside.count(_STRING_MARK, 0, at)]
            index = self.source_index(begin + at + len(before) + sum(map(len, before)))
            self._first_index[kind] = min(index, self._first_index.get(kind, index))
            self._counts[kind] += count

        single = quotes.find("'")
        if single >= 0:
            *_, after = outside.split(_STRING_MARK, single + 1)
            note("single quotes", len(outside) - len(after) - 1, quotes.count("'"))
        for pattern, literal in _LITERALS:
            if match := pattern.search(outside):
                repaired, count = pattern.subn(literal, outside)
                note("Python literal", match.start(), count)
                outside = repaired
        if match := _TRAILING.search(outside):
            repaired, count = _TRAILING.subn(" ", outside)
            note("trailing comma", match.start(), count)
            outside = repaired
        if self._has_unquoted_keys:
            first, *keys = _KEY.split(outside)
            if keys:
                note("unquoted key", len(first), len(keys) // 2)
                outside = _QUOTE_MARK.join((first, *keys))
        pieces = [""] * (2 * len(strings) + 1)
        pieces[::2] = outside.split(_STRING_MARK)
        pieces[1::2] = strings
        return '"'.join(pieces)

    def source_index(self, at: int) -> int:
        """Return the index in the source that an index in the repaired text comes from."""
        return self._start + at - self._repaired.count(_QUOTE_MARK, 0, at)

    def fixes(self, end: int) -> tuple[Fix, ...]:
        """Return the repairs made before `end`, in the order of their first occurrence."""
        stop = self.source_index(end)

        def behind(what: str) -> int:
            """Return how many were changed after `end`, outside the value."""
            return self._source.count(what, stop, self._taken_to) - self._repaired.count(what, end)

        fix_log = FixLog()
        for kind in sorted(self._first_index, key=self._first_index.__getitem__):
            texts, per_fix = _COUNT_CHANGES[kind]
            if count := self._counts[kind] - abs(sum(map(behind, texts))) // per_fix:
                fix_log.add(kind, count=count)
        return fix_log.fixes()


def _mistake_start(text: str, at: int) -> int:
    """Return where the mistake begins that stopped `json` at `at`; -1 if it is none of these."""
    if not _MISTAKE.match(text, at):
        return -1
    if text[at] in _CLOSERS:
        comma = text.rfind(",", 0, at)
        at = -1 if text[comma + 1 : at].strip() else comma
    return -1 if text.startswith(",", at) and text[at - 1] in _NOT_AFTER_VALUE else at


class _Tokens(NamedTuple):
    """A text split into its strings and what is outside them."""

    outside: str
    """The text outside strings, with a mark for each of them."""
    quotes: str
    """The opening quote of each string."""
    strings: list[str]


def _tokenize(text: str, *, more: bool) -> _Tokens:
    """Split a text into its strings and what is outside them, up to a quote that belongs to no string.

    With `more` the text goes on, so that a token at its end may be incomplete and is left out.
    """
    parts, quotes = _split_at_quotes(text) or _split_at_strings(text)
    outside, strings = _STRING_MARK.join(parts[::2]), parts[1::2]
    if '"' in outside or "'" in outside:
        outside = _STRAY_QUOTE.split(outside, 1)[0]
        count = outside.count(_STRING_MARK)
        return _Tokens(outside, quotes[:count], strings[:count])
    if more and (half := _INCOMPLETE_TOKEN.search(outside, max(0, len(outside) - MAX_TOKEN_LENGTH))):
        outside = outside[: half.start()]
    return _Tokens(outside, quotes, strings)


def _split_at_strings(text: str) -> tuple[list[str], str]:
    """Return the parts outside and inside strings, in turn, and the opening quotes of the strings."""
    parts = _STRINGS.split(text)
    quotes = "".join([string[0] for string in parts[1::2]])
    parts[1::2] = [string[1:-1] for string in parts[1::2]]
    return parts, quotes


def _split_at_quotes(text: str) -> tuple[list[str], str] | None:
    """Do the same in half the time if quotes come in equal pairs, so that no string contains one; else return None.

    A last quote without a partner is left outside.
    """
    if "\\" in text:
        return None
    quotes = text.encode("utf-8", "surrogatepass").translate(None, _NO_QUOTES)
    pairs = len(quotes) // 2
    if quotes[1::2] != quotes[: 2 * pairs : 2]:
        return None
    parts = text.replace("'", '"').split('"')
    if len(quotes) % 2:
        *_, before, _ = parts
        parts[-2:] = [before + '"']
    if _CONTROL.search("".join(parts[1::2])):
        return None
    return parts, quotes[1::2].decode()
