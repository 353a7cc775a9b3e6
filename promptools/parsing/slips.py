"""Slips that `json` comes upon are mended where they stand, all of a kind at once, and it reads on.

Four slips that models make row after row: single quotes, Python's literals, trailing commas, keys without quotes. Each
can be told from the tokens beside it, so all of one kind in a stretch are mended by one call of the regex engine, and
`json` is the judge: what it then reads has the very tokens of the text. Anything else is left to the reader
(`promptools.parsing.reader`), which takes the same liberties step by step.
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
"""Times that `json` is asked again."""

WINDOW: Final = 256
GROWTH: Final = 16
"""Characters past the slip that are mended in the first round; how much more in each that follows. `json` begins anew
each time, so the rounds before the last cost little, and a short value costs nothing but itself."""

TOKEN: Final = 100
"""Characters of a token outside strings."""

_STRING = "\x00"
"""Stands for a string where only what is outside strings matters."""
_QUOTE = "\x01"
"""A quote that the text lacks, put in around a key."""

_SLIP = re.compile(r"['}\],]|[^\W\d]|\"")
"""What stands where `json` stops at a slip, or at a string that was cut."""
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
"""What there is less of, or more, once slips of a kind are mended, and how much for one of them."""
_CLOSERS = frozenset("]}")
_NO_VALUE = frozenset(" \t\n\r[{,:")
"""What stands before a comma that follows no value, or not at once."""


def mended(text: str, start: int, slip: int) -> Value | None:
    """Read the value at `text[start]`, which is strict JSON up to `slip`.

    None where it holds slips of other kinds too. O(n) in the value's characters.
    """
    slips = _Slips(text, start)
    at = slip - start
    for _ in range(ROUNDS):
        if not slips.mend(at):
            return None
        said = slips.text
        value, places, stop = _strict(said)
        if stop >= 0:
            return Value(value, slips.origin(stop), slips.fixes(stop), places=places, mended=said[:stop])
        at = ~stop
    return None


def _strict(text: str) -> tuple[Any, Places, int]:
    """Read a value of any kind as far as it is strict JSON, as `beginning` does."""
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
    """The beginning of a value, mended as far as it goes."""

    def __init__(self, source: str, start: int) -> None:
        self._source = source
        self._start = start
        self._upto = start
        """How much of the source has been taken."""
        self._marked = ""
        """That, mended; the quotes put in are marked."""
        self._done = 0
        """How far that has been looked at for slips."""
        self._window = WINDOW
        self._keys = False
        """A key without quotes was met."""
        self._first: dict[str, int] = {}
        """Where in the source the first slip of each kind stands."""
        self._count = Counter[str]()
        """How many of each kind were mended so far."""

    @property
    def text(self) -> str:
        """What has been taken, as `json` is to read it."""
        return self._marked.replace(_QUOTE, '"') if self._keys else self._marked

    def mend(self, at: int) -> bool:
        """Mend what stands at `at` and all that is like it behind it; False where nothing can be done."""
        upto = self._upto + max(0, at + self._window - len(self._marked))
        fresh = self._source[self._upto : upto]
        taken = self._marked + fresh
        cut = 0 < len(self._marked) == at
        key = not self._keys and _KEY.match(taken, at) is not None
        begin = at if cut else _beginning(taken, at)
        if begin < 0 or (at < self._done and not key) or _STRING in fresh or _QUOTE in fresh:
            return False
        more = bool(self._marked and fresh)
        self._keys = self._keys or key
        self._window *= GROWTH
        self._upto += len(fresh)
        tokens = _tokens(taken[begin:], more=self._upto < len(self._source))
        looked = begin + len(tokens.outside) + len(tokens.quotes) + sum(map(len, tokens.strings))
        self._marked = taken[:begin] + self._mended(tokens, begin) + taken[looked:]
        self._done = len(self._marked) - len(taken) + looked
        return more or self._marked != taken

    def _mended(self, tokens: _Tokens, begin: int) -> str:
        """Give the tokens as they should be."""
        outside, quotes, strings = tokens

        def note(kind: str, at: int, count: int) -> None:
            """Note the slips of a kind: the first one stands at `outside[at]`."""
            before = strings[: outside.count(_STRING, 0, at)]
            place = self.origin(begin + at + len(before) + sum(map(len, before)))
            self._first[kind] = min(place, self._first.get(kind, place))
            self._count[kind] += count

        single = quotes.find("'")
        if single >= 0:
            *_, after = outside.split(_STRING, single + 1)
            note("single quotes", len(outside) - len(after) - 1, quotes.count("'"))
        for pattern, literal in _LITERALS:
            if found := pattern.search(outside):
                mended, count = pattern.subn(literal, outside)
                note("Python literal", found.start(), count)
                outside = mended
        if found := _TRAILING.search(outside):
            mended, count = _TRAILING.subn(" ", outside)
            note("trailing comma", found.start(), count)
            outside = mended
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
        """Tell where in the source a place in the mended text comes from."""
        return self._start + at - self._marked.count(_QUOTE, 0, at)

    def fixes(self, end: int) -> tuple[Fix, ...]:
        """Tell what was mended before `end`, in the order in which it was first met."""
        stop = self.origin(end)

        def behind(what: str) -> int:
            """Tell how much was changed behind `end`: that is no part of the value."""
            return self._source.count(what, stop, self._upto) - self._marked.count(what, end)

        liberties = Liberties()
        for kind in sorted(self._first, key=self._first.__getitem__):
            words, each = _CHANGED[kind]
            if count := self._count[kind] - abs(sum(map(behind, words))) // each:
                liberties.take(kind, count=count)
        return liberties.fixes()


def _beginning(text: str, at: int) -> int:
    """Tell where the slip begins that stopped `json` at `at`; -1 if it can be none of ours."""
    if not _SLIP.match(text, at):
        return -1
    if text[at] in _CLOSERS:
        comma = text.rfind(",", 0, at)
        at = -1 if text[comma + 1 : at].strip() else comma
    return -1 if text.startswith(",", at) and text[at - 1] in _NO_VALUE else at


class _Tokens(NamedTuple):
    """A text without the quotes around its strings."""

    outside: str
    """What stands outside strings, each of which leaves a mark."""
    quotes: str
    """The quote that each string begins with."""
    strings: list[str]


def _tokens(text: str, *, more: bool) -> _Tokens:
    """Part what is outside strings from the strings; up to a quote that is neither.

    `more`: the text goes on, so what stands at its end may be half a token.
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
    """Split the text into what is outside strings and what is inside, by turns; and give the strings' quotes."""
    parts = _STRINGS.split(text)
    quotes = "".join([each[0] for each in parts[1::2]])
    parts[1::2] = [each[1:-1] for each in parts[1::2]]
    return parts, quotes


def _at_quotes(text: str) -> tuple[list[str], str] | None:
    """Do the same in half the time, where each second quote is one like that before it: then no string holds any.

    A last quote without another is left to what is outside.
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
