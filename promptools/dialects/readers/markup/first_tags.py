"""The beginning of a block of markup: the first tags decide whether it may be one."""

from __future__ import annotations

from typing import NamedTuple

from promptools.dialects.calls.resolve import PLAUSIBLE_NAME, ParseOptions
from promptools.dialects.readers.markup.tag_names import SHARED_NAMES, Tag, TagNames
from promptools.dialects.readers.markup.tag_tokenizer import TagTokenizer

LOOKAHEAD = 400
"""Characters within which a block must show what it is."""
LOOKAHEAD_PATTERN = rf"[\s\S]{{0,{LOOKAHEAD}}}"
"""The end of a head's pattern, so that the scanner waits for as many characters."""


class FirstTags(NamedTuple):
    """The first tags of a block, the text after each, and whether more text may add to them."""

    tags: list[Tag]
    texts: list[str]
    incomplete: bool


def read_first_tags(text: str, start: int, end: int, rules: ParseOptions, names: TagNames = SHARED_NAMES) -> FirstTags:
    """Read the first two tags in `text[start:end]`."""
    tags = TagTokenizer(names)
    tags.spaced_keys = rules.tools.spaced_keys if rules.tools is not None else ()
    tags.elements = None
    first = FirstTags([], [], incomplete=True)
    window = text[start:end]
    at = 0
    while at < len(window):
        token = tags.next(window, at, final=False)
        if token is None:
            break
        if isinstance(token, str):
            if not first.tags:
                return first._replace(incomplete=False)
            first.texts[-1] += token
            at += len(token)
        else:
            if len(first.tags) == 2:
                return first._replace(incomplete=False)
            first.tags.append(token)
            first.texts.append("")
            at += len(token.raw)
    return first


def may_be_tool(name: str | None, rules: ParseOptions) -> bool:
    """Return whether a name is an offered tool's, or a plausible one if the tools are unknown."""
    if name is None:
        return False
    if rules.tools is None:
        return PLAUSIBLE_NAME.match(name) is not None
    return rules.tools.find(name) is not None


def begins_block(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Return whether a marker that prose does not hold begins here: a wrapper, or a call with a name."""
    del fresh
    first = read_first_tags(text, start, end, rules)
    if not first.tags:
        return None if first.incomplete else False
    tag = first.tags[0]
    return not tag.close and (tag.kind == "wrap" or (tag.kind == "call" and tag.name is not None))
