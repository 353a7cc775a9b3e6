"""Heads that begin only at the beginning of a line: the name of an offered tool, perhaps in a namespace or a tag.

Which lines may begin one depends on the tools, so the gate that lines have to pass is built of the first letters of
their names (`LineHeads.gate`), and what may be the beginning of a name is held back (`LineHeads.unfinished_word`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptools.dialects.contract import NAME_GATE, TAG_GATE
from promptools.dialects.prefix_patterns import any_of
from promptools.parsing.scanner import LineStartMarkers
from promptools.schema.fitting.spelling import NAMESPACES

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect, Head

MAX_SPELLED_NAMES = 16
"""Tools whose names go into the pattern in full; of more only the beginnings do, which keeps the pattern small."""
MAX_NAME_PREFIXES = 256
"""Beginnings of three letters that one pattern may hold."""
MAX_HELD_NAME = 128
"""Characters of an unfinished name that are held back."""
_ONE_WORD = re.compile(r"[\w.-]+\Z").match


class LineHeads:
    """The line heads among the heads of a plan, by their scanner groups."""

    def __init__(self, heads: Mapping[str, tuple[Dialect, Head]]) -> None:
        self._heads = {group: head for group, (_, head) in heads.items() if head.at_line_start}
        labels = (label for head in self._heads.values() for label in (*head.literals, *head.first_words))
        self._labels = {*NAMESPACES, *labels}
        branches = "|".join(f"(?P<{group}>{head.pattern})" for group, head in self._heads.items())
        self._first = re.compile(branches or r"(?!)")
        self._patterns = {group: re.compile(head.pattern) for group, head in self._heads.items()}

    def match(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of each head that may begin at `text[at]`, the first word of a line."""
        match = self._first.match(text, at)
        if match is None:
            return
        later = False
        for group, pattern in self._patterns.items():
            if group == match.lastgroup:
                later = True
                yield group, match.end()
            elif later:
                later_match = pattern.match(text, at)
                if later_match is not None:
                    yield group, later_match.end()

    def markers(self) -> LineStartMarkers | None:
        """Return the markers of the heads that may occur outside of fences, for any tools; None: there are none."""
        prose = {group: head.pattern for group, head in self._heads.items() if _occurs_in_prose(head)}
        return LineStartMarkers(self.gate(None), prose) if prose else None

    def gate(self, names: tuple[str, ...] | None) -> str:
        """Return the pattern of the beginning of such a line: of an offered tool's name, three letters in any case."""
        gates = dict.fromkeys(head.gate for head in self._heads.values() if _occurs_in_prose(head))
        if names is not None:
            firsts = {beginning.casefold() for beginning in _name_prefixes(names)}
            words = sorted({*firsts, *NAMESPACES, *self._first_words(NAME_GATE)})
            begins = "".join(f"{word[0]}{word[0].lower()}{word[0].upper()}" for word in words)
            tags = sorted({*firsts, *self._first_words(TAG_GATE)})
            whole = {
                NAME_GATE: f"{_lookahead(begins)}(?:{'|'.join(map(_in_any_case, words))})",
                TAG_GATE: f"{_lookahead('<')}</?(?:{'|'.join(map(_in_any_case, tags))})",
            }
            gates = dict.fromkeys(whole.get(gate, gate) for gate in gates)
        looks = [_first_characters(gate) for gate in gates]
        every = "|".join(gates)
        return every if None in looks or not looks else f"(?=[{''.join(filter(None, looks))}])(?:{every})"

    def unfinished_word(self, names: tuple[str, ...]) -> str:
        """Return the pattern of a suffix of the text that may become the first word of such a line."""
        prefixes = any_of(*map(re.escape, sorted({*NAMESPACES, *self._first_words(NAME_GATE)})))
        many = len(names) > MAX_SPELLED_NAMES
        spelled = _name_prefixes(names) if many else names
        beginnings = {name[:size] for name in spelled for size in range(min(len(name), MAX_HELD_NAME) + 1)}
        labels = {label[:size] for label in self._labels for size in range(1, len(label) + 1)}
        spellings = map(re.escape, sorted(beginnings | labels))
        pattern = "|".join(re.sub(r"(?:\\[-.]|_)", r"[-_.]?", spelling) for spelling in spellings)
        if many:
            rest = r"[\w.-]*" if all(map(_ONE_WORD, names)) else r"[\w.:/ -]*"
            pattern += "".join(f"|{re.escape(prefix)}{rest}" for prefix in sorted(spelled))
        return rf"(?=\S)(?=[</]{{0,2}}[\w.:/ -]{{0,{MAX_HELD_NAME}}}\Z)[</]{{0,2}}(?i:{prefixes}*(?:{pattern}))\Z"

    def _first_words(self, gate: str) -> set[str]:
        """Return the words besides names that heads with this gate may begin with."""
        return {word for head in self._heads.values() if head.gate == gate for word in head.first_words}


def _occurs_in_prose(head: Head) -> bool:
    """Whether a head may occur outside of a fence."""
    return not head.fence_labels or None in head.fence_labels


_LOOKAHEAD = re.compile(r"\(\?=\[((?:[^]\\^]|\\.)++)\]\)")


def _lookahead(characters: str) -> str:
    return f"(?=[{''.join(map(re.escape, dict.fromkeys(characters)))}])"


def _first_characters(gate: str) -> str | None:
    """Return the first characters that a gate admits, for a character class; None: the gate does not show them.

    It does if it begins with a lookahead, or is an alternation of plain words.
    """
    lookahead = _LOOKAHEAD.match(gate)
    if lookahead is not None:
        return lookahead[1]
    words = gate.split("|")
    return "".join(word[0] for word in words) if all(re.escape(word) == word for word in words) else None


def _in_any_case(word: str) -> str:
    """Return the pattern of a word in any case; faster than a flag, since `re` sees its first characters."""
    cases = ({letter, letter.lower(), letter.upper()} for letter in word)
    return "".join(
        f"(?:{'|'.join(map(re.escape, sorted(case)))})" if len(case) > 1 else re.escape(*case) for case in cases
    )


def _name_prefixes(names: tuple[str, ...]) -> set[str]:
    """Return the first three letters of each name, or one letter if there are very many names.

    Models may change the separators in a name, so a beginning never goes past the first one.
    """
    for size in (3, 1):
        firsts = {re.split(r"[\W_]", name[:size])[0] or name[:1] for name in names}
        if len(firsts) <= MAX_NAME_PREFIXES:
            break
    return firsts
