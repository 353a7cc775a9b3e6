"""The first words of lines that may begin a call: the names of the offered tools, and words that are the same for all.

Lists of tools come and go, and to compile a pattern takes longer than to read some hundred replies. So the patterns are
made once for a set of dialects: they find the first letters of any word, and what depends on the tools is looked up.
Only for tools of which very many lines were looked up is a pattern made, which finds the same lines faster.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

from promptools.patterns import lazy_pattern

MOST_LETTERS: Final = 3
"""Letters of a name that are looked up, in any case."""
MAX_HELD_NAME: Final = 128
"""Characters of an unfinished name that are held back."""
WORTH_A_PATTERN: Final = 4096
"""Lines looked up in vain after which a pattern of the tools pays: by then they have cost as much as to compile it."""
_INDENT = r"\n[ \t]{0,8}+"
_FRAGMENT = rf"(?=\S)[</]{{0,2}}+([\w.:/ -]{{0,{MAX_HELD_NAME}}}+)\Z"
_UNFINISHED_WORD = lazy_pattern(_FRAGMENT)
_UNFINISHED_LINE = lazy_pattern(_INDENT + _FRAGMENT)
_MAX_UNFINISHED: Final = MAX_HELD_NAME + 11
"""Characters of an unfinished line: its break, its indent, the sign of a tag, and the name."""
_SEPARATORS = str.maketrans("", "", "-_.")
"""What models change in a name, or leave out."""
_OTHER_CASES: Final = {"k": "\u212a", "s": "\u017f"}
"""What else is one of these letters without case."""


class FirstWordPatterns(NamedTuple):
    """What is the same for all tools."""

    fixed: str
    """The pattern of first words that are no names; empty if there are none."""
    fixed_characters: str | None
    """What these begin with, as a part of a set in a pattern; None if that is not known."""
    names: bool
    """A name may be a first word."""
    tags: bool
    """A tag that is a name may be one."""
    before_names: re.Pattern[str]
    """Matches what may be before a name."""
    labels: tuple[str, ...]
    """Words that are held back while they are unfinished, as `fold` returns them, in order."""


class FirstWords:
    """The first words of lines that may begin a call of some tools; `names=None`: of any."""

    def __init__(self, patterns: FirstWordPatterns, names: Iterable[str] | None) -> None:
        self._patterns = patterns
        self._any = names is None
        names = tuple(names or ())
        beginnings = {_beginning(name) for name in names}
        size = min(map(len, beginnings), default=1)  # of any tools one letter is enough
        self._beginnings = frozenset(text[:size].casefold() for text in beginnings)
        self._letters = frozenset(
            ("", *self._beginnings, *(sign + text for sign in ("<", "</") for text in self._beginnings))
        )
        self._line, self._word = _first_letters(patterns, size)
        self._own_line: re.Pattern[str] | None = self._line if self._any else None
        """Finds just the lines that may begin a call."""
        self._lookups = 0
        """Lines that were looked up in vain."""
        self._names = sorted({fold(name[:MAX_HELD_NAME]) for name in names})
        held = (*names, *self._names, *patterns.labels, *[""] * bool(names))
        self._held_letters = frozenset(word[:1].casefold() for word in held)

    def begins(self, text: str, at: int) -> bool:
        """Whether the word at `text[at]` may begin a call, or become one that does."""
        word = self._word.match(text, at)
        if word is not None and self._may_begin(word[1]):
            return True
        return len(text) - at <= _MAX_UNFINISHED and self._is_unfinished(_UNFINISHED_WORD, text, at)

    def search(self, text: str, at: int, stop: int) -> int:
        """Return the offset of the first line break in `text[at:stop]` after which a call may begin; -1: none. O(n)."""
        if self._own_line is not None:
            line = self._own_line.search(text, at, stop)
            return -1 if line is None else line.start()
        for line in self._line.finditer(text, at, stop):
            if self._may_begin(line[1]):
                return line.start()
            self._lookups += 1
        if self._lookups > WORTH_A_PATTERN and all(map(str.isascii, self._beginnings)):
            self._own_line = _line_pattern(self._patterns, self._beginnings)
        return -1

    def ends_unfinished(self, text: str, line: int) -> bool:
        """Whether the last line, after the line break at `text[line]`, may become one that begins a call."""
        return len(text) - line <= _MAX_UNFINISHED and self._is_unfinished(_UNFINISHED_LINE, text, line)

    def _may_begin(self, letters: str) -> bool:
        return self._any or letters.casefold() in self._letters

    def _is_unfinished(self, pattern: re.Pattern[str], text: str, at: int) -> bool:
        match = None if self._any else pattern.match(text, at)
        if match is None:
            return False
        word = match[1]
        while word[:1].casefold() in self._held_letters:
            folded = fold(word)
            if _begins_any(folded, self._names) or _begins_any(folded, self._patterns.labels):
                return True
            before = self._patterns.before_names.match(word)
            if before is None:
                return False
            word = word[before.end() :]
        return False


def fold(name: str) -> str:
    """Return a name in lower case and without separators."""
    return name.casefold().translate(_SEPARATORS)


def in_any_case(words: Set[str]) -> str:
    """Return the pattern of any of these words in any case, as a tree: each character is looked at once."""
    if "" in words:
        return ""
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    branches = (f"[{first_characters((first,))}]{in_any_case(rests[first])}" for first in sorted(rests))
    return f"(?:{'|'.join(branches)})"


def first_characters(words: Iterable[str]) -> str:
    """Return the first characters of words in any case, as a part of a set in a pattern."""
    cases = (f"{word[0]}{word[0].upper()}{_OTHER_CASES.get(word[0], '')}" for word in words)
    return "".join(map(re.escape, dict.fromkeys("".join(cases))))


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
    letters = rf"[^\W\d][^\n]{{{size - 1}}}"
    branches = [
        *([rf"(?={patterns.fixed})"] if patterns.fixed else []),
        *([letters] if patterns.names else []),
        *([rf"</?+(?:{letters}|\Z)"] if patterns.tags else []),
    ]
    word = f"({'|'.join(branches) or '(?!)'})"
    return lazy_pattern(_INDENT + word), lazy_pattern(word)


def _line_pattern(patterns: FirstWordPatterns, beginnings: Set[str]) -> re.Pattern[str]:
    """Return the pattern of a line whose first word is fixed, or begins so."""
    branches = [patterns.fixed] if patterns.fixed else []
    if beginnings:
        names = in_any_case(beginnings)
        branches += [*([names] if patterns.names else []), *([f"</?{names}"] if patterns.tags else [])]
    ahead = ""
    if patterns.fixed_characters is not None:
        ahead = f"(?=[<{patterns.fixed_characters}{first_characters(sorted(beginnings))}])"
    return lazy_pattern(f"{_INDENT}{ahead}(?:{'|'.join(branches) or '(?!)'})")
