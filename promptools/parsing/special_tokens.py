"""Recognize special tokens that are meant for the server, and decide whether a text only quotes such a token.

An example is the token that ends a turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Final

from promptools.parsing.parts import SPACE, Part
from promptools.patterns import lazy_pattern

RESERVED_TOKEN_PREFIXES: Final = ("<|reserved_", "<|unused_", "<|extra_", "<|dummy_", "<SPECIAL_")
RESERVED_TOKEN: Final = (
    rf"(?:{'|'.join(map(re.escape, RESERVED_TOKEN_PREFIXES))})[a-z_]{{0,24}}+(?:\Z|\d{{1,7}}+(?:\Z|>|\|(?:\Z|>)))"
)
"""The pattern of a reserved token of a vocabulary (`<|reserved_special_token_5|>`, `<SPECIAL_5>`).

A model may end its reply with such a token. The pattern also matches the beginning of one at the end of the text.
"""
SPECIAL_TOKEN: Final = lazy_pattern(r"<[|｜]([^<>\s]{1,64})[|｜]>")
"""Matches any text that looks like a special token, even if no dialect declares it; the group is the token's name."""
CONTROL_TOKEN: Final = r"<[|｜][^<>\s]{0,64}(?:>|\Z)"
"""The pattern of text that may be a special token, or the beginning of one at the end of the text."""
QUOTE_CONTEXT: Final = 256
"""Number of characters before a token that are examined to see whether the token is quoted."""

_SENTENCE_ENDS = lazy_pattern(r"[.!?:…。！？：][\"'”’»)\]*_]{0,4}\Z")
_ONE = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\]|\]<\]\w+\[>\[)"
_TOKENS = lazy_pattern(rf"(?:{_ONE}\s*+)++")
_LIST_ITEM = lazy_pattern(r"\s*(?:[-*+>#|]+|\d{1,3}[.)])\Z")
_QUOTES = "\"'`“”„‘’«»‹›「」『』([{*_=,/|"


def is_quoted_token(before: str, gap: str, following: str) -> bool:
    """Return whether a token inside text is quoted: it is part of a sentence, or in quotation marks.

    `before` is the text before the token, `gap` the white space after it, `following` the text after the gap. A token
    that directly follows the text before it, or is between two sentences, is not quoted but leaked into the text. If
    `before` contains special tokens, these were taken as text, so this token is text too.
    """
    if SPECIAL_TOKEN.search(before):
        return True
    line = before[before.rfind("\n") + 1 :]
    stripped = line.rstrip()
    if stripped and stripped == line:
        continues = gap != "" and "\n" not in gap and following[:1].islower()
        return continues or stripped[-1] in _QUOTES or _LIST_ITEM.match(stripped) is not None
    if stripped and (_LIST_ITEM.match(stripped) or not _SENTENCE_ENDS.search(stripped)):
        return True
    return "\n" not in gap and following[:1] != "" and _sentence_continues(gap, following[0])


def count_quoted_tokens(tokens: Sequence[Part], before: str, following: str, before_text: Set[str]) -> int:
    """Return how many of `tokens`, from the first on, are text; `tokens` include the white space after each token.

    `before` and `following` are the texts before and after all tokens; `following` is empty at the end of the reply.
    `before_text` contains those special tokens that are text if any text, such as a program or a name, follows them.
    """
    last = len(tokens)
    if not following:
        while last and tokens[last - 1].kind != "markup":
            last -= 1
    if not last:
        return len(tokens) if _is_html_closer(tokens[0].raw, before) else 0
    if all(part.kind != "markup" for part in tokens):
        return last
    bare = following.lstrip(SPACE)
    space = following[: len(following) - len(bare)]
    for part in reversed(tokens):
        if part.kind != "space":
            free = part.raw in before_text and following != ""
            return last if free or is_quoted_token(before, space, bare) else 0
        space = part.raw + space
    raise AssertionError("no token is held")


def is_only_tokens(text: str) -> bool:
    """Return whether `text` consists of special tokens and white space."""
    return _TOKENS.fullmatch(text) is not None


def ends_sentence(line: str) -> bool:
    """Return whether `line` ends with punctuation that ends a sentence; white space after it is not allowed."""
    return _SENTENCE_ENDS.search(line) is not None


def _sentence_continues(gap: str, first: str) -> bool:
    """Return whether a sentence that begins with a token continues after the token.

    `first` is the first character after the white space `gap`.
    """
    return first.islower() if gap else first in ",;:.!?)\"'`”’»/|<"


def _is_html_closer(token: str, before: str) -> bool:
    """Return whether a token that looks like an end token is the closing tag of an HTML element, `</s>` after `<s>`."""
    return token == "</s>" and before.rfind("<s>") > before.rfind("</s>")
