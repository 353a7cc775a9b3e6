"""The tags of a call that is an element named after its tool: the tool's own, and those of its parameters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from promptools.dialects.readers.tags.pattern_tokenizer import PatternTokenizer
from promptools.dialects.readers.tags.tag_names import Tag
from promptools.patterns import lazy_pattern

_LONGEST = 400
"""Longest tag in characters, with its attributes."""
_UNFINISHED_TAG = lazy_pattern(r"<[\s/]{0,4}(?:[\w.:-]{1,80}(?:\s[^<>]{0,300})?)?/?\Z")
ATTRIBUTE: Final = lazy_pattern(r"""\s([\w.:-]{1,80})\s{0,4}=\s{0,4}(?:"([^"\n]*)"|'([^'\n]*)')""")

_HTML: Final = (
    "a abbr address article aside audio b base blockquote body br button canvas caption cite code col data dd "
    "del details dfn dialog div dl dt em embed fieldset figure footer form h1 h2 h3 h4 h5 h6 head header hr "
    "html i iframe img input ins kbd label legend li link main map mark menu meta meter nav object ol option "
    "output p param picture pre progress q s samp script search section select slot small source span strong "
    "style sub summary sup svg table tbody td template text textarea tfoot th thead time title tr track u ul "
    "var video wbr"
)
HTML_ELEMENTS: Final = frozenset(re.findall(r"\w+", _HTML))
"""Elements of HTML. Text in one of them is not a call, even if a tool has its name."""


@lru_cache(maxsize=256)
def element_tokenizer(root: str, keys: frozenset[str]) -> PatternTokenizer:
    """Return what splits text at the tags of a tool and of its parameters, cached; all other tags are text."""
    names = "|".join(map(re.escape, sorted({root, *keys}, key=len, reverse=True)))
    pattern = rf"<\s{{0,2}}(?P<close>/?)\s{{0,2}}(?P<name>{names})(?:\s[^<>]{{0,300}}?)?\s{{0,2}}(?P<empty>/?)>"
    return PatternTokenizer(re.compile(pattern), _UNFINISHED_TAG, _LONGEST, _make_tag)


def _make_tag(match: re.Match[str]) -> Tag:
    return Tag(match[0], "element", bool(match["close"]), match["name"], empty=bool(match["empty"]))
