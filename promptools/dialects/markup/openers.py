"""The beginning of a block of markup: the first tags decide whether it may be one."""

from __future__ import annotations

from typing import NamedTuple

from promptools.dialects.markup.tags import Tag, Tags
from promptools.dialects.settle import PLAUSIBLE_NAME, Rules

LOOK = 400
"""Characters within which a block must show what it is."""
WITHIN = rf"[\s\S]{{0,{LOOK}}}"
"""The end of a head's pattern, so that the scanner waits for as many characters."""


class First(NamedTuple):
    """The first tags of a block, the text after each, and whether more text may add to them."""

    tags: list[Tag]
    words: list[str]
    more: bool


def first_tags(text: str, start: int, end: int, rules: Rules) -> First:
    """Read the first two tags in `text[start:end]`."""
    tags = Tags()
    tags.spaced = rules.tools.spaced_keys if rules.tools is not None else ()
    tags.words = None
    first = First([], [], more=True)
    window = text[start:end]
    at = 0
    while at < len(window):
        token = tags.next(window, at, final=False)
        if token is None:
            break
        if isinstance(token, str):
            if not first.tags:
                return first._replace(more=False)
            first.words[-1] += token
            at += len(token)
        else:
            if len(first.tags) == 2:
                return first._replace(more=False)
            first.tags.append(token)
            first.words.append("")
            at += len(token.raw)
    return first


def offered(name: str | None, rules: Rules) -> bool:
    """Return whether a name is an offered tool's, or a plausible one if the tools are unknown."""
    if name is None:
        return False
    if rules.tools is None:
        return PLAUSIBLE_NAME.match(name) is not None
    return rules.tools.find(name) is not None


def at_once(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Return whether a marker that prose does not hold begins here: a wrapper, or a call with a name."""
    del fresh
    first = first_tags(text, start, end, rules)
    if not first.tags:
        return None if first.more else False
    tag = first.tags[0]
    return not tag.close and (tag.kind == "wrap" or (tag.kind == "call" and tag.name is not None))
