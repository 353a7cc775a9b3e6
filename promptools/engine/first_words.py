"""The first words of lines that may begin a call: the names of the offered tools, and words that are the same for all.

Lists of tools come and go, and to compile a pattern takes longer than to read a reply. So the patterns are made once for
a set of dialects: they find the first letters of any word, and what depends on the tools is looked up. The letters of
many lines are looked up at once; one line after the other is only where one of them begins like a name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

MOST_LETTERS: Final = 3
"""Letters of a name that are looked up, in any case."""
MAX_HELD_NAME: Final = 128
"""Characters of an unfinished name that are held back."""
FIRST_WINDOW: Final = 128
"""Characters whose lines are looked up at once, at first; then twice as many each time."""
_OVERLAP: Final = 32
"""Characters of a window that are in the next one too: more than an indent and the letters that are looked up."""
_FRAGMENT = rf"(?=\S)[</]{{0,2}}([\w.:/ -]{{0,{MAX_HELD_NAME}}})\Z"
_UNFINISHED_WORD = re.compile(_FRAGMENT)
_UNFINISHED_LINE = re.compile(rf"\n[ \t]{{0,8}}+{_FRAGMENT}")
_SEPARATORS = str.maketrans("", "", "-_.")
"""What models change in a name, or leave out."""


class FirstWordPatterns(NamedTuple):
    """What is the same for all tools: `fixed` matches other first words, `before_names` what may be before a name."""

    fixed: str
    names: bool
    """A name may be the first word."""
    tags: bool
    """A tag that is a name may be."""
    before_names: re.Pattern[str]
    labels: tuple[str, ...]
    """Words that are held back while they are unfinished, as `fold` returns them, in order."""


class FirstWords:
    """The first words of lines that may begin a call of some tools; `names=None`: of any."""

    def __init__(self, patterns: FirstWordPatterns, names: Iterable[str] | None) -> None:
        self._any = names is None
        names = tuple(names or ())
        beginnings = {_beginning(name) for name in names}
        size = min(map(len, beginnings), default=MOST_LETTERS)
        letters = {text[:size].casefold() for text in beginnings}
        self._letters = frozenset(("", *letters, *(sign + text for sign in ("<", "</") for text in letters)))
        self._line, self._word = _first_letters(patterns, size)
        self._names = sorted({fold(name[:MAX_HELD_NAME]) for name in names})
        self._labels, self._before_names = patterns.labels, patterns.before_names
        held = (*names, *self._names, *self._labels, *[""] * bool(names))
        self._held_letters = frozenset(word[:1].casefold() for word in held)

    def begins(self, text: str, at: int) -> bool:
        """Whether the word at `text[at]` may begin a call, or become one that does."""
        word = self._word.match(text, at)
        if word is not None and self._may_begin(word[1]):
            return True
        return self._is_unfinished(_UNFINISHED_WORD, text, at)

    def search(self, text: str, at: int, stop: int) -> int:
        """Return the offset of the first line break in `text[at:stop]` after which a call may begin; -1: none. O(n)."""
        size = FIRST_WINDOW
        while at < stop:
            end = min(stop, at + size)
            if self._any or not self._letters.isdisjoint(map(str.casefold, self._line.findall(text, at, end))):
                for line in self._line.finditer(text, at, end):
                    if self._may_begin(line[1]):
                        return line.start()
            if end == stop:
                break
            at, size = end - _OVERLAP, 2 * size
        return -1

    def ends_unfinished(self, text: str, line: int) -> bool:
        """Whether the last line, after the line break at `text[line]`, may become one that begins a call."""
        return self._is_unfinished(_UNFINISHED_LINE, text, line)

    def _may_begin(self, letters: str) -> bool:
        return self._any or letters.casefold() in self._letters

    def _is_unfinished(self, pattern: re.Pattern[str], text: str, at: int) -> bool:
        match = None if self._any else pattern.match(text, at)
        if match is None:
            return False
        word = match[1]
        while word[:1].casefold() in self._held_letters:
            folded = fold(word)
            if _begins_any(folded, self._names) or _begins_any(folded, self._labels):
                return True
            before = self._before_names.match(word)
            if before is None:
                return False
            word = word[before.end() :]
        return False


def fold(name: str) -> str:
    """Return a name in lower case and without separators."""
    return name.casefold().translate(_SEPARATORS)


def _beginning(name: str) -> str:
    """Return the first letters of a name, up to a separator, since models change those."""
    return re.split(r"[\W_]", name[:MOST_LETTERS], maxsplit=1)[0] or name[:1]


def _begins_any(text: str, words: Sequence[str]) -> bool:
    """Return whether a text is the beginning of one of these words, which are in order."""
    at = bisect_left(words, text)
    return at < len(words) and words[at].startswith(text)


@lru_cache(maxsize=256)
def _first_letters(patterns: FirstWordPatterns, size: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a line that may begin a call, and of its first word.

    Their group is the first `size` letters, after the sign of a tag if it is one; nothing where the word is fixed.
    """
    letters = rf"[^\W\d][^\n]{{0,{size - 1}}}+"
    branches = [
        *([rf"(?={patterns.fixed})"] if patterns.fixed else []),
        *([letters] if patterns.names else []),
        *([rf"</?+(?:{letters}|\Z)"] if patterns.tags else []),
    ]
    word = f"({'|'.join(branches) or '(?!)'})"
    return re.compile(rf"\n[ \t]{{0,8}}+{word}"), re.compile(word)
