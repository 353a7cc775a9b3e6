"""The head of a call that has lost the token before its name: the name begins a line, and the token after it follows.

    get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>

A server strips the token that it knows, or its parser splits the text at it, and the rest of the call stays.
"""

from __future__ import annotations

from typing import Final

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.prefix_patterns import sequence
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

LOST_OPENER: Final = "the token before its name is missing"
_NAME = r"[^\W\d][\w./-]{0,127}+"
_FIRST_NAME = lazy_pattern(rf"({_NAME})(?::\d{{1,4}})?\s*(\S?)")
_NUMBER = r"(?::\d{1,4})?"
"""Kimi K2 numbers its calls."""


def unopened_head(*steps: str) -> Head:
    """Return the head of an offered tool's name, then `steps`: patterns of the tokens between it and the arguments."""
    return Head(
        (),
        sequence(_NAME, _NUMBER, r"\s{0,16}", *steps),
        body_starts="{",
        gate=NAME_GATE,
        begins=_begins,
        at_line_start=True,
        fence_labels=(None,),
    )


def unopened_name(head: str) -> str:
    """Return the name in such a head, empty if the head begins with a token."""
    name = _FIRST_NAME.match(head)
    return name[1] if name is not None else ""


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Whether the name is an offered tool's, and a token and the arguments follow it."""
    del fresh
    name = _FIRST_NAME.match(text, start, end)
    if name is None or rules.tools is None:
        return False
    if not name[2]:
        return NEED_MORE if end == len(text) else False
    if rules.tools.get(name[1]) is None:
        return False
    return text[end] == "{" if end < len(text) else NEED_MORE
