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

from promptools.parsing.strict import Places, beginning, decode, too_deep
from promptools.parsing.strings import STRICT, Liberties
from promptools.parsing.tolerant import Value
from promptools.types import Fix

ROUNDS: Final = 10
"""Rounds of a repair, each with one call of `json`."""

WINDOW: Final = 256
GROWTH: Final = 16
"""Characters after the mistake that are repaired in the first round, and the factor by which they grow in each later
one. `json` starts anew each round, so all rounds before the last cost little, and a short value only its own length."""

TOKEN: Final = 100
"""Characters that a token outside strings may have."""

_STRING = "\x00"
"""The mark of a string in text that is outside strings."""
_QUOTE = "\x01"
"""The mark of a quote that was supplied around a key."""

_SLIP = re.compile(r"['}\],]|[^\W\d]|\"")
"""What `json` stops at: a mistake, or a string that was cut off at the end of the window."""
_STRINGS = re.compile(rf"({STRICT}|'[^'\"\\\x00-\x1f]*+')")
_STRAY = re.compile("[\"']")
_NO_QUOTES = bytes(set(range(256)) - set(b"\"'"))
_CONTROL = re.compile(r"[\x00-\x1f]")
_TRAILING = re.compile(r",(?=[ \t\n\r]*+[}\]])(?<![\s\[{,:],)")
_KEY = re.compile(r"\b([^\W\d][\w$-]{0,80}+)(?=\s*+:)")
_HALF = re.compile(r"[\w$,\s-]+\Z")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_LITERALS = tuple(
    (re.compile(rf"{python}(?<![\w$-]{python})(?![\w$-])(?!\s*+:)"), literal) for python, literal in _PYTHON.items()
)
_CHANGED: Final = {
    "single quotes": (("'",), 2),
    "Python literal": (tuple(_PYTHON), 1),
    "trailing comma": ((",",), 1),
    "unquoted key": ((_QUOTE,), 2),
}
"""By kind of repair, the texts whose count it changes, and by how much for one repair."""
_CLOSERS = frozenset("]}")
_NO_VALUE = frozenset(" \t\n\r[{,:")
"""Characters before a comma that does not directly follow a value."""


def mended(text: str, start: int, slip: int) -> Value | None:
    """Read the value at `text[start]`, which is strict JSON up to `slip`.

    Return None if it needs other repairs too. O(n) in the value's characters.
    """
    slips = _Slips(text, start)
    at = slip - start
    for _ in range(ROUNDS):
        if not slips.mend(at):
            return None
        repaired = slips.text
        value, places, stop = _strict(repaired)
        if stop >= 0:
            return Value(value, slips.origin(stop), slips.fixes(stop), places=places, mended=repaired[:stop])
        at = ~stop
    return None


def _strict(text: str) -> tuple[Any, Places, int]:
    """Read a value of any kind as far as it is strict JSON, as `beginning` does an object."""
    if text.startswith("{"):
        return beginning(text)
    try:
        value, end = decode(text, 0)
    except JSONDecodeError as problem:
        return None, {}, ~problem.pos
    except StopIteration as stop:
        return None, {}, ~stop.value
    except (ValueError, RecursionError):
        return None, {}, ~0
    return value, {}, ~0 if too_deep(value, text, 0, end) else end


class _Slips:
    """The beginning of a value, repaired as far as it has been taken."""

    def __init__(self, source: str, start: int) -> None:
        self._source = source
        self._start = start
        self._upto = start
        """The index in the source up to which it has been taken."""
        self._marked = ""
        """What was taken, repaired; supplied quotes are marks."""
        self._done = 0
        """The index in it up to which mistakes have been looked for."""
        self._window = WINDOW
        self._keys = False
        """Whether there was a key without quotes."""
        self._first: dict[str, int] = {}
        """The index in the source of the first mistake of each kind."""
        self._count = Counter[str]()
        """How many of each kind were repaired."""

    @property
    def text(self) -> str:
        """What was taken, as `json` is to read it."""
        return self._marked.replace(_QUOTE, '"') if self._keys else self._marked

    def mend(self, at: int) -> bool:
        """Repair what is at `at` and the like after it; return False if nothing can be done."""
        upto = self._upto + max(0, at + self._window - len(self._marked))
        window = self._source[self._upto : upto]
        taken = self._marked + window
        cut = 0 < len(self._marked) == at
        key = not self._keys and _KEY.match(taken, at) is not None
        begin = at if cut else _beginning(taken, at)
        if begin < 0 or (at < self._done and not key) or _STRING in window or _QUOTE in window:
            return False
        more = bool(self._marked and window)
        self._keys = self._keys or key
        self._window *= GROWTH
        self._upto += len(window)
        tokens = _tokens(taken[begin:], more=self._upto < len(self._source))
        scanned = begin + len(tokens.outside) + len(tokens.quotes) + sum(map(len, tokens.strings))
        self._marked = taken[:begin] + self._mended(tokens, begin) + taken[scanned:]
        self._done = len(self._marked) - len(taken) + scanned
        return more or self._marked != taken

    def _mended(self, tokens: _Tokens, begin: int) -> str:
        """Return the text of the tokens, repaired."""
        outside, quotes, strings = tokens

        def note(kind: str, at: int, count: int) -> None:
            """Record the mistakes of a kind, the first of which is at `outside[at]`."""
            before = strings[: outside.count(_STRING, 0, at)]
            index = self.origin(begin + at + len(before) + sum(map(len, before)))
            self._first[kind] = min(index, self._first.get(kind, index))
            self._count[kind] += count

        single = quotes.find("'")
        if single >= 0:
            *_, after = outside.split(_STRING, single + 1)
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
        if self._keys:
            first, *keys = _KEY.split(outside)
            if keys:
                note("unquoted key", len(first), len(keys) // 2)
                outside = _QUOTE.join((first, *keys))
        pieces = [""] * (2 * len(strings) + 1)
        pieces[::2] = outside.split(_STRING)
        pieces[1::2] = strings
        return '"'.join(pieces)

    def origin(self, at: int) -> int:
        """Return the index in the source that an index in the repaired text comes from."""
        return self._start + at - self._marked.count(_QUOTE, 0, at)

    def fixes(self, end: int) -> tuple[Fix, ...]:
        """Return the repairs made before `end`, in the order of their first occurrence."""
        stop = self.origin(end)

        def behind(what: str) -> int:
            """Return how many were changed after `end`, outside the value."""
            return self._source.count(what, stop, self._upto) - self._marked.count(what, end)

        fix_log = Liberties()
        for kind in sorted(self._first, key=self._first.__getitem__):
            texts, per_fix = _CHANGED[kind]
            if count := self._count[kind] - abs(sum(map(behind, texts))) // per_fix:
                fix_log.take(kind, count=count)
        return fix_log.fixes()


def _beginning(text: str, at: int) -> int:
    """Return where the mistake begins that stopped `json` at `at`; -1 if it is none of these."""
    if not _SLIP.match(text, at):
        return -1
    if text[at] in _CLOSERS:
        comma = text.rfind(",", 0, at)
        at = -1 if text[comma + 1 : at].strip() else comma
    return -1 if text.startswith(",", at) and text[at - 1] in _NO_VALUE else at


class _Tokens(NamedTuple):
    """A text split into its strings and what is outside them."""

    outside: str
    """The text outside strings, with a mark for each of them."""
    quotes: str
    """The opening quote of each string."""
    strings: list[str]


def _tokens(text: str, *, more: bool) -> _Tokens:
    """Split a text into its strings and what is outside them, up to a quote that belongs to no string.

    With `more` the text goes on, so that a token at its end may be incomplete and is left out.
    """
    parts, quotes = _at_quotes(text) or _at_strings(text)
    outside, strings = _STRING.join(parts[::2]), parts[1::2]
    if '"' in outside or "'" in outside:
        outside = _STRAY.split(outside, 1)[0]
        count = outside.count(_STRING)
        return _Tokens(outside, quotes[:count], strings[:count])
    if more and (half := _HALF.search(outside, max(0, len(outside) - TOKEN))):
        outside = outside[: half.start()]
    return _Tokens(outside, quotes, strings)


def _at_strings(text: str) -> tuple[list[str], str]:
    """Return the parts outside and inside strings, in turn, and the opening quotes of the strings."""
    parts = _STRINGS.split(text)
    quotes = "".join([string[0] for string in parts[1::2]])
    parts[1::2] = [string[1:-1] for string in parts[1::2]]
    return parts, quotes


def _at_quotes(text: str) -> tuple[list[str], str] | None:
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
