"""Heads that begin only at the beginning of a line: the name of an offered tool, perhaps in a namespace or a tag.

Which lines may begin one depends on the tools: `FirstWords` knows, for each list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from promptools.dialects.contract import NAME_GATE, TAG_GATE
from promptools.engine.first_words import (
    FirstWordPatterns,
    FirstWords,
    first_characters,
    fold,
    in_any_case,
)
from promptools.parsing.scanner import LineStartMarkers
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import NAMESPACES

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect, Head


class LineHeads:
    """The line heads among the heads of a plan, by their scanner groups."""

    def __init__(self, heads: Mapping[str, tuple[Dialect, Head]]) -> None:
        self._heads = {group: head for group, (_, head) in heads.items() if head.at_line_start}
        labels = (label for head in self._heads.values() for label in (*head.literals, *head.first_words))
        self._labels = {*NAMESPACES, *labels}
        self._first = _first_pattern(self._heads)
        self._first_in_code = _first_pattern(
            {group: head for group, head in self._heads.items() if head.fence_labels != (None,)}
        )
        self._patterns = {group: lazy_pattern(head.pattern) for group, head in self._heads.items()}

    def match(self, text: str, at: int, *, in_code: bool = False) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of each head that may begin at `text[at]`, the first word of a line."""
        match = (self._first_in_code if in_code else self._first).match(text, at)
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

    def markers(self, first_words: FirstWords) -> LineStartMarkers | None:
        """Return the markers of the heads that may occur outside of fences; None: there are none."""
        prose = {group: head.pattern for group, head in self._heads.items() if _occurs_in_prose(head)}
        return LineStartMarkers(first_words, prose) if prose else None

    def first_word_patterns(self) -> FirstWordPatterns:
        """Return the patterns of the first words of such lines, which are the same for any tools."""
        gates = dict.fromkeys(head.gate for head in self._heads.values() if _occurs_in_prose(head))
        names, tags = ({*self._first_words(gate)} if gate in gates else None for gate in (NAME_GATE, TAG_GATE))
        before = {*NAMESPACES, *(names or ())}
        fixed = [gate for gate in gates if gate not in (NAME_GATE, TAG_GATE)]
        if names is not None:
            fixed.append(f"(?=[{first_characters(sorted(before))}]){in_any_case(before)}")
        if tags:
            fixed.append(f"(?=[<])</?{in_any_case(tags)}")
        looks = [_first_characters(gate) for gate in fixed]
        characters = None if None in looks else "".join(filter(None, looks))
        every = "|".join(fixed)
        return FirstWordPatterns(
            fixed=f"(?=[{characters}])(?:{every})" if characters else every,
            fixed_characters=characters,
            names=names is not None,
            tags=tags is not None,
            before_names=lazy_pattern("|".join(map(re.escape, sorted(before))), re.IGNORECASE),
            labels=tuple(sorted({fold(label) for label in self._labels if label[0] != "<"})),
        )

    def _first_words(self, gate: str) -> set[str]:
        """Return the words besides names that heads with this gate may begin with."""
        return {word for head in self._heads.values() if head.gate == gate for word in head.first_words}


def _first_pattern(heads: Mapping[str, Head]) -> re.Pattern[str]:
    """Compile the pattern of the first head that matches, in a group of its name."""
    return lazy_pattern("|".join(f"(?P<{group}>{head.pattern})" for group, head in heads.items()) or r"(?!)")


def _occurs_in_prose(head: Head) -> bool:
    """Whether a head may occur outside of a fence."""
    return not head.fence_labels or None in head.fence_labels


_LOOKAHEAD = lazy_pattern(r"\(\?=\[((?:[^]\\^]|\\.)++)\]\)")


def _first_characters(gate: str) -> str | None:
    """Return the first characters that a gate admits, for a character class; None: the gate does not show them.

    It does if it begins with a lookahead, or is an alternation of plain words.
    """
    lookahead = _LOOKAHEAD.match(gate)
    if lookahead is not None:
        return lookahead[1]
    words = gate.split("|")
    return "".join(word[0] for word in words) if all(re.escape(word) == word for word in words) else None
