r"""The tags of `call(name) / parameter(key) value / end` markup, found in text that comes in pieces.

`TagNames` reads one tag; here the text is split at them. A tag has at most `TagNames.tag_limit` characters, so no
character is looked at more often than that.
"""

from __future__ import annotations

from collections.abc import Collection

from promptools.dialects.readers.tags.tag_names import SHARED_NAMES, Tag, TagNames
from promptools.dialects.reply_markers import reply_markers
from promptools.patterns import lazy_pattern

_OPENING, _CLOSING_DATA = "<![CDATA[", "]]>"
_ELEMENT = lazy_pattern(r"<(/?)\s{0,4}([A-Za-z_][\w.:-]{0,63})\s{0,4}(/?)>")


class TagTokenizer:
    """Splits text into tags and the text between them. O(n) in characters, `TagNames.tag_limit` times at worst."""

    def __init__(self, names: TagNames = SHARED_NAMES) -> None:
        self._names = names
        self._markers = reply_markers()
        self.elements: Collection[str] | None = ()
        """Other elements that count as tags; None for all."""
        self.spaced_keys: Collection[str] = ()
        """Names of parameters that hold white space."""
        self.splits_cdata = False
        """CDATA sections are tokenized."""
        self._in_cdata = False

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`: a tag, or the text up to the next one; None if more text is needed."""
        if self._in_cdata:
            return self._cdata_content(text, at, final=final)
        if self.splits_cdata and text.startswith(_OPENING[: len(text) - at], at):
            return self._cdata_start(text, at, final=final)
        if text[at] != "<":
            end = text.find("<", at)
            return text[at:] if end < 0 else text[at:end]
        tag = self._names.read_tag(text, at, self.spaced_keys) or self._element(text, at)
        if tag is not None:
            return tag
        if len(text) - at <= self._names.tag_limit and self._unfinished(text[at:]):
            return Tag(text[at:], "cut") if final else None
        end = text.find("<", at + 1)
        return text[at:] if end < 0 else text[at:end]

    def _cdata_start(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        if len(text) - at < len(_OPENING):
            return text[at:] if final else None
        self._in_cdata = True
        return Tag(_OPENING, "cdata")

    def _cdata_content(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the rest of a CDATA section, or its end."""
        end = text.find(_CLOSING_DATA, at)
        if end == at:
            self._in_cdata = False
            return Tag(_CLOSING_DATA, "cdata", close=True)
        if end > 0 or final:
            return text[at:end] if end > 0 else text[at:]
        held = 2 if text.endswith("]]") else 1 if text.endswith("]") else 0
        return text[at : len(text) - held] or None

    def _element(self, text: str, at: int) -> Tag | None:
        match = self._markers.turn_end.match(text, at)
        if match is not None:
            return Tag(match[0], "end")
        token = self._names.read_token(text, at)
        if token is not None:
            return token
        match = _ELEMENT.match(text, at)
        if match is None or (self.elements is not None and match[2] not in self.elements):
            return None
        return Tag(match[0], "element", bool(match[1]), match[2], bool(match[3]))

    def _unfinished(self, tail: str) -> bool:
        """Return whether more text may turn `tail` into a tag."""
        short = len(tail) < max(self._markers.longest_turn_end, self._names.longest_token)
        literals = (*self._markers.turn_ends, *self._names.tokens) if short else ()
        return any(literal.startswith(tail) for literal in literals) or self._names.may_become_tag(tail, self.elements)
