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

from promptools.dialects.calls.envelope import NotACall, read_node
from promptools.dialects.calls.json_body import read_calls
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.reply_markers import reply_markers
from promptools.jsontext.read import Unreadable
from promptools.patterns import lazy_pattern

MAX_OPENERS: Final = 8
"""Openers that are tried, the last ones of the text: each attempt is O(n) in its characters."""

_NAME = lazy_pattern(r"([^\W\d][\w.:/-]{0,127}+)")
_FENCE = lazy_pattern(r"\s*+(?:```[\w+-]{0,16}\s*+)?")


def find_trailing_blocks(
    raw: str, closers: Closers, rules: ParseOptions, place: Evidence, keys: tuple[str, str] | None
) -> int:
    """Return where in `raw`, the text of a broken block, nothing but whole blocks follows; -1 if nowhere."""
    for at in _opener_offsets(raw, closers, place)[-MAX_OPENERS:]:
        if _only_whole_blocks(raw, at, closers, rules, place, keys):
            return at
    return -1


def _opener_offsets(raw: str, closers: Closers, place: Evidence) -> list[int]:
    """Return the offsets of openers; of tags that prose may hold, only those at the beginning of a line."""
    pattern = _opener_pattern(closers.openers) if place.sentinel else _line_opener_pattern(closers.openers)
    return [match.start("opener") for match in pattern.finditer(raw)]


def _only_whole_blocks(
    raw: str, at: int, closers: Closers, rules: ParseOptions, place: Evidence, keys: tuple[str, str] | None
) -> bool:
    """Return whether `raw[at:]` is nothing but blocks, each with a call of an offered tool."""
    opener, end = _opener_pattern(closers.openers), _end_pattern(closers.right, reply_markers().end_tokens)
    while at < len(raw):
        opened = opener.match(raw, at)
        if opened is None:
            return False
        at = _skip_match(_FENCE, raw, opened.end())
        named = (closers.next_name.match(raw, at) or _NAME.match(raw, at)) if closers.next_name is not None else None
        if named is not None:
            at = _skip_match(_FENCE, raw, named.end())
        if at >= len(raw) or raw[at] not in "{[":
            return False
        try:
            node, _, _ = read_node(raw, at, len(raw), rules.anchors)
            name = named[1] if named is not None else None
            parts = read_calls(raw[at : node.end], rules, place, name=name, keys=keys)
        except (Unreadable, NotACall):
            return False
        if not node.exact or not any(part.call for part in parts) or any(part.malformed for part in parts):
            return False
        at = _skip_match(end, raw, node.end)
    return True


def _skip_match(pattern: re.Pattern[str], raw: str, at: int) -> int:
    match = pattern.match(raw, at)
    assert match is not None
    return match.end()


@lru_cache(maxsize=64)
def _opener_pattern(openers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?P<opener>{_any_literal(openers)})")


@lru_cache(maxsize=64)
def _line_opener_pattern(openers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\n[ \t]{{0,16}}+(?P<opener>{_any_literal(openers)})")


@lru_cache(maxsize=64)
def _end_pattern(right: tuple[str, ...], end_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a fence's end, a closer and end-of-turn tokens, any of which may be missing."""
    return re.compile(rf"\s*+(?:```\s*+)?(?:(?:{_any_literal(right)})\s*+)?(?:(?:{_any_literal(end_tokens)})\s*+)*+")


def _any_literal(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)"
