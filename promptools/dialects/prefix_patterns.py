r"""Build regular expressions that also match an incomplete marker at the end of the text, so that it can be held back.

A pattern consists of steps, such as the characters of a literal. After each step but the last, `\Z` is an alternative
to the remaining steps. So the pattern of `<tool_call>` also matches `<tool` at the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache


def sequence(*steps: str) -> str:
    r"""Return a pattern that matches all steps in order or, at the end of the text, only the first few of them."""
    *before, last = steps
    pattern = last
    for step in reversed(before):
        pattern = rf"{step}(?:\Z|{pattern})"
    return pattern


def literal_text(text: str) -> str:
    """Return a pattern that matches a literal, or the beginning of the literal at the end of the text.

    The whole literal is tried first, since this is fast.
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
    """Return the pattern of `sequence(*steps)`, made optional as a whole."""
    return f"(?:{sequence(*steps)})?"


def any_literal_text(texts: Iterable[str]) -> str:
    """Return a pattern that matches any of the literals, or the beginning of one at the end of the text."""
    return any_of(*map(literal_text, texts))


def beginnings(texts: Iterable[str]) -> frozenset[str]:
    """Return all proper prefixes of the texts, such as `a` and `ab` for `abc`."""
    return frozenset(text[:end] for text in texts for end in range(1, len(text)))


def label_gate(label: str) -> str:
    """Return the `Head.gate` for calls whose line begins with `label`.

    The result is the label itself if it contains no special characters, else a pattern with a lookahead.
    """
    escaped = re.escape(label)
    return label if escaped == label else f"(?=[{re.escape(label[0])}]){escaped}"
