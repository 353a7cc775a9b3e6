r"""Patterns of what a call begins with, which match as well where the text ends inside: by that it is held back.

Every junction has `\Z` as its first alternative: `<tool` at the end of the text may become `<tool_call>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def then(*steps: str) -> str:
    r"""Write the pattern of steps that follow one another, of which the text may have only the first ones."""
    *before, last = steps
    pattern = last
    for step in reversed(before):
        pattern = rf"{step}(?:\Z|{pattern})"
    return pattern


def token(text: str) -> str:
    """Write the pattern of a literal text, whole or cut off by the end: one that is whole is found in one step."""
    if len(text) < 2:
        return re.escape(text)
    cut = then(*map(re.escape, text[:-1])) + r"\Z"
    return f"(?>{re.escape(text)}|{cut})"


def either(*patterns: str) -> str:
    """Write the pattern of one of these."""
    return f"(?:{'|'.join(patterns)})"


def perhaps(*steps: str) -> str:
    """Write the pattern of steps that may be left out together."""
    return f"(?:{then(*steps)})?"


def tokens(texts: Iterable[str]) -> str:
    """Write the pattern of one of several literal texts, whole or cut off by the end."""
    return either(*map(token, texts))
