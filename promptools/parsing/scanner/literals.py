"""Sets of literals, and the patterns that are built of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from os.path import commonprefix

from promptools.patterns import lazy_pattern

SHORT_TEXT = 256
"""Characters of a text below which one search for all literals costs less than one search for each."""


def alternatives(literals: Iterable[str]) -> str:
    """Return the pattern of any one of several literals; of none, one that never matches."""
    return f"(?:{'|'.join(map(re.escape, literals)) or '(?!)'})"


def rare_character(literal: str) -> str:
    """Return the first character of a literal that is rare in prose, empty if there is none."""
    return next((char for char in literal if not char.isalnum() and not char.isspace()), "")


def character_class(characters: Iterable[str]) -> str:
    """Return the pattern of one of several characters."""
    return f"[{''.join(map(re.escape, sorted(characters)))}]"


def prefix_tree(words: Set[str]) -> str:
    """Build the prefix tree of `words` as a pattern that examines each character once."""
    if "" in words:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    trees = {first: prefix_tree(rests) for first, rests in sorted(by_first.items())}
    ends = [first for first, tree in trees.items() if not tree]
    branches = [re.escape(first) + tree for first, tree in trees.items() if tree]
    if ends:
        branches.append(character_class(ends) if len(ends) > 1 else re.escape(ends[0]))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


class LiteralSet:
    """A set of literals, to test whether a text contains any: their rare characters are searched for first."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals)
        self._by_rare_character: dict[str, list[str]] = {}
        for word in sorted(self.literals):
            self._by_rare_character.setdefault(rare_character(word), []).append(word)
        plain = self._by_rare_character.pop("", [])
        if plain:
            self._by_rare_character[commonprefix(plain)] = plain  # noqa: RUF071  characters are what is compared
        self._any = lazy_pattern(alternatives(sorted(self.literals)))

    def occurs_in(self, text: str) -> bool:
        """Whether `text` contains one of the literals. O(n), at C speed."""
        if len(text) < SHORT_TEXT:
            return self._any.search(text) is not None
        return any(
            sign in text and any(word in text for word in words) for sign, words in self._by_rare_character.items()
        )
