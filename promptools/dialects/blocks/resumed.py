"""Find the whole blocks at the end of a text that a broken block of the same family has swallowed.

A string without its closing quote runs over everything that follows it. The text is read again from an opening marker
on if a block there holds strict JSON that is a call, and if nothing but such blocks follows up to the end of the text.
A block that a document quotes inside its string is thus left alone: the rest of the string follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from promptools.dialects.blocks.markers import Closers
from promptools.dialects.body import read_calls
from promptools.dialects.envelope import NoCall, node_of
from promptools.dialects.settle import Place, Rules
from promptools.parsing.tokens import END_TOKENS
from promptools.parsing.tolerant import Unreadable

TRIED: Final = 8
"""Openers that are tried, the last ones of the text: each attempt is O(n) in its characters."""

_NAME = re.compile(r"([^\W\d][\w.:/-]{0,127}+)")
_FENCE = re.compile(r"\s*+(?:```[\w+-]{0,16}\s*+)?")


def next_block(raw: str, closers: Closers, rules: Rules, place: Place, keys: tuple[str, str] | None) -> int:
    """Return where in `raw`, the text of a broken block, nothing but whole blocks follows; -1 if nowhere."""
    for at in _begins(raw, closers, place)[-TRIED:]:
        if _are_whole(raw, at, closers, rules, place, keys):
            return at
    return -1


def _begins(raw: str, closers: Closers, place: Place) -> list[int]:
    """Return the offsets of openers; of tags that prose may hold, only those at the beginning of a line."""
    pattern = _opener(closers.openers) if place.sentinel else _line_opener(closers.openers)
    return [match.start("opener") for match in pattern.finditer(raw)]


def _are_whole(raw: str, at: int, closers: Closers, rules: Rules, place: Place, keys: tuple[str, str] | None) -> bool:
    """Return whether `raw[at:]` is nothing but blocks, each with a call of an offered tool."""
    opener, end = _opener(closers.openers), _end(closers.right)
    while at < len(raw):
        opened = opener.match(raw, at)
        if opened is None:
            return False
        at = _skip(_FENCE, raw, opened.end())
        named = (closers.again.match(raw, at) or _NAME.match(raw, at)) if closers.again is not None else None
        if named is not None:
            at = _skip(_FENCE, raw, named.end())
        if at >= len(raw) or raw[at] not in "{[":
            return False
        try:
            node, _, _ = node_of(raw, at, len(raw), rules.anchors)
            name = named[1] if named is not None else None
            parts = read_calls(raw[at : node.end], rules, place, name=name, keys=keys)
        except (Unreadable, NoCall):
            return False
        if not node.exact or not any(part.call for part in parts) or any(part.malformed for part in parts):
            return False
        at = _skip(end, raw, node.end)
    return True


def _skip(pattern: re.Pattern[str], raw: str, at: int) -> int:
    match = pattern.match(raw, at)
    assert match is not None
    return match.end()


@lru_cache(maxsize=64)
def _opener(openers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?P<opener>{_any(openers)})")


@lru_cache(maxsize=64)
def _line_opener(openers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\n[ \t]{{0,16}}+(?P<opener>{_any(openers)})")


@lru_cache(maxsize=64)
def _end(right: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a fence's end, a closer and end-of-turn tokens, any of which may be missing."""
    return re.compile(rf"\s*+(?:```\s*+)?(?:(?:{_any(right)})\s*+)?(?:(?:{_any(END_TOKENS)})\s*+)*+")


def _any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"
