r"""Build patterns that also match a prefix of their text at the end of the buffer, so that the prefix can be held back.

A pattern consists of steps, such as the characters of a literal. After each step but the last, `\Z` is an alternative
to the remaining steps: so the pattern of `<tool_call>` also matches `<tool` at the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache


def sequence(*steps: str) -> str:
    r"""Return the pattern of consecutive steps; at the end of the text, a prefix of them matches too."""
    *before, last = steps
    pattern = last
    for step in reversed(before):
        pattern = rf"{step}(?:\Z|{pattern})"
    return pattern


def literal_text(text: str) -> str:
    """Return the pattern of a literal, whole or cut off by the end of the text.

    A whole literal matches in one step.
    """
    if len(text) < 2:
        return re.escape(text)
    cut = sequence(*map(_escape_character, text[:-1])) + r"\Z"
    return f"(?>{re.escape(text)}|{cut})"


@cache  # called thousands of times, with a hundred different characters
def _escape_character(character: str) -> str:
    return re.escape(character)


def any_of(*patterns: str) -> str:
    """Return a pattern that matches what any of the given patterns matches."""
    return f"(?:{'|'.join(patterns)})"


def optional_steps(*steps: str) -> str:
    """Return the pattern of consecutive steps that are optional as a group."""
    return f"(?:{sequence(*steps)})?"


def any_literal_text(texts: Iterable[str]) -> str:
    """Return the pattern of any of several literals, whole or cut off by the end of the text."""
    return any_of(*map(literal_text, texts))


def beginnings(texts: Iterable[str]) -> frozenset[str]:
    """Return all beginnings of texts, from their first character up to all but their last."""
    return frozenset(text[:end] for text in texts for end in range(1, len(text)))


def label_gate(label: str) -> str:
    """Return the gate of a head that begins a line with `label`.

    The gate is the label itself if it is plain text, else a pattern with a lookahead.
    """
    escaped = re.escape(label)
    return label if escaped == label else f"(?=[{re.escape(label[0])}]){escaped}"
