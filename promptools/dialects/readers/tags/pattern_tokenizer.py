"""A tokenizer whose tags are the matches of one pattern; everything between is text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from promptools.dialects.readers.tags.tag_names import Tag

_WINDOW = 2048
"""Characters that are searched for a tag: what follows a short call in a long text is not copied."""


@dataclass(frozen=True, slots=True)
class PatternTokenizer:
    """Splits text at the matches of a pattern."""

    pattern: re.Pattern[str]
    """Matches any tag, whole."""
    unfinished: re.Pattern[str]
    r"""Matches what may become a tag, up to the end of the text (`\Z`)."""
    longest: int
    """The length of the longest tag, less than the window."""
    make_tag: Callable[[re.Match[str]], Tag]

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, or the text up to the next one; None if more text is needed."""
        match = self.pattern.search(text, at, at + _WINDOW)
        if match is not None:
            return self.make_tag(match) if match.start() == at else text[at : match.start()]
        if len(text) - at > _WINDOW:
            return text[at : at + _WINDOW - self.longest]
        cut = self.unfinished.search(text, max(at, len(text) - self.longest))
        if cut is None or cut.start() > at:
            return text[at:] if cut is None else text[at : cut.start()]
        return Tag(cut[0], "cut") if final else None
