r"""Patterns of names in Python calls as models write them: `book\_seat` where a model escapes Markdown's characters."""

from __future__ import annotations

from typing import Final

from promptools.patterns import lazy_pattern

PROGRAM_LABELS: Final = ("python", "py", "python3")
"""Labels of a fence around a program, which is calls only if it is the whole reply and holds nothing else."""
ESCAPE_PATTERN: Final = r"\\(?:[_.-]|\Z)"
"""An escaped character of a name, or the beginning of one at the end of the text."""
CONTINUED_LINE: Final = r"\\\r?\n"
"""A backslash at the end of a line: the next line continues it."""
SPACE: Final = lazy_pattern(rf"(?:[\s\ufeff\u200b]|{CONTINUED_LINE})*+")
"""White space between the parts of a call."""
_MAX_ESCAPES = "{0,16}+"


def may_continue_line(text: str, at: int) -> bool:
    """Whether the text ends at `at` in the beginning of a continued line. O(1): this is asked before each part."""
    return len(text) - at <= 2 and text[at:] in ("\\", "\\\r")


def name_pattern(first: str, rest: str, most: int) -> str:
    """Return the pattern of a name: `first`, then up to `most` of `rest`, some of them escaped."""
    more = f"{rest}{{0,{most}}}+"
    return rf"{first}{more}(?:{ESCAPE_PATTERN}{rest}{{0,32}}+){_MAX_ESCAPES}"
