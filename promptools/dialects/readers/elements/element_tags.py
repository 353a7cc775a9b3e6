"""The tags of a call that is an element named after its tool: the tool's own, and those of its parameters."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

_LONGEST = 400
"""Longest tag in characters, with its attributes."""
_UNFINISHED_TAG = re.compile(r"<[\s/]{0,4}(?:[\w.:-]{1,80}(?:\s[^<>]{0,300})?)?/?\Z")
_SPACE = re.compile(r"\s{0,256}+")
ATTRIBUTE: Final = re.compile(r"""\s([\w.:-]{1,80})\s{0,4}=\s{0,4}(?:"([^"\n]*)"|'([^'\n]*)')""")

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


class ElementTags:
    """The tags that count inside one call; all others are text."""

    def __init__(self, root: str, keys: Collection[str]) -> None:
        names = "|".join(map(re.escape, sorted({root, *keys}, key=len, reverse=True)))
        self.pattern = re.compile(
            rf"<\s{{0,2}}(?P<close>/?)\s{{0,2}}(?P<name>{names})(?P<said>\s[^<>]{{0,300}}?)?\s{{0,2}}(?P<empty>/?)>"
        )
        self.call_end = re.compile(rf"\s{{0,256}}<\s{{0,2}}/\s{{0,2}}{re.escape(root)}\s{{0,2}}>\s{{0,256}}")
        """Matches the tool's closing tag with the white space on both sides of it."""

    def kind_of(self, match: re.Match[str]) -> str:
        """Return the kind of a match: `open`, `close` or `empty`."""
        return "close" if match["close"] else "empty" if match["empty"] else "open"

    def hold_from(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of a tag; `len(text)` if it cannot."""
        last = text.rfind("<", max(0, len(text) - _LONGEST))
        return last if last >= 0 and _UNFINISHED_TAG.match(text, last) else len(text)

    def next_name(self, text: str, at: int) -> str | None:
        """Return the name of the tag at `text[at]` after white space, with "/" before a closing tag's.

        "" if there is no tag; None if more text is needed.
        """
        gap = _SPACE.match(text, at)
        assert gap is not None
        at = gap.end()
        match = self.pattern.match(text, at)
        if match is not None:
            return f"/{match['name']}" if match["close"] else match["name"]
        return None if at == len(text) or (text[at] == "<" and _UNFINISHED_TAG.match(text, at)) else ""


@lru_cache(maxsize=256)
def element_tags(root: str, keys: frozenset[str]) -> ElementTags:
    """Return the tags of a tool, cached."""
    return ElementTags(root, keys)
