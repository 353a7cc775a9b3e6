r"""The tags of `call(name) / parameter(key) value / end` markup, found in text that comes in pieces.

`TagNames` reads one tag; here the text is split at them. A tag has at most `TAG_LIMIT` characters, so no character is
looked at more often than that.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from promptools.dialects.readers.markup.tag_names import DSML, SHARED_NAMES, TAG_LIMIT, Tag, TagNames
from promptools.dialects.reply_markers import reply_markers

_OPENING, _CLOSING_DATA = "<![CDATA[", "]]>"
_QUOTED = re.compile(r'"[^"]*(?:"|\Z)')
_ELEMENT = re.compile(r"<(/?)\s{0,4}([A-Za-z_][\w.:-]{0,63})\s{0,4}(/?)>")

_UNFINISHED = re.compile(
    r"<\s{0,8}/?\s{0,8}(?:[|｜]{1,4}\s{0,4}(?:D(?:S(?:M?)?)?|G(?:C(?:M?)?)?)?\Z"
    rf"|(?:{DSML})?(?P<word>[A-Za-z_][\w.:-]*)?(?P<after>[\s\S]?))"
)


class TagTokenizer:
    """Splits text into tags and the text between them. O(n) in characters, `TAG_LIMIT` times at worst."""

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
        if len(text) - at <= TAG_LIMIT and self._unfinished(text[at:]):
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
        names = self._names
        short = len(tail) < max(self._markers.longest_turn_end, names.longest_token)
        if short and any(literal.startswith(tail) for literal in (*self._markers.turn_ends, *names.tokens)):
            return True
        begun = _UNFINISHED.match(tail)
        if begun is None:
            return False
        if begun["word"] is None:
            return begun.end() == len(tail) and not begun["after"]
        if not begun["after"]:
            return self._may_begin(begun["word"], (*names.words, *names.spaces, *names.marks))
        word = begun["word"].rpartition(":")[2] if begun["word"].startswith(names.spaces) else begun["word"]
        relevant = word.startswith(names.words) or word in names.marks or self.elements is None or word in self.elements
        inside = tail[begun.start("after") :]
        return relevant and _in_open_quote(inside)

    def _may_begin(self, word: str, known: Collection[str]) -> bool:
        if self.elements is None:
            return True
        word = word.rpartition(":")[2] if word.startswith(self._names.spaces) else word
        return any(name.startswith(word) or word.startswith(name) for name in (*known, *self.elements))


def _in_open_quote(inside: str) -> bool:
    """Return whether every bracket is inside the quotes of an attribute."""
    bare = _QUOTED.sub("", inside)
    return "<" not in bare and ">" not in bare
