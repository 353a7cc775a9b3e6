"""Where Harmony begins in text of which nobody said that it is Harmony: a whole header, not the mention of a token."""

from __future__ import annotations

import re

from promptools.harmony.front import LIMIT, PARTS, may_go_on, names_much

_HEADER = re.compile(r"(?:<\|(?:start|channel|constrain)\|>[^<{\n]{0,120}(?:\n\s{0,3})?)+<\|message\|>")
"""Tokens of a header, a few words behind each, and `<|message|>`."""
_NAMED = re.compile(
    r"<\|(?:start|channel|constrain)\|>"
    r"(?:system|developer|user|assistant|functions\.|analysis|commentary|final|json|code|to=|<\|message\|>)"
)
"""A token of a header, and what it is there for right behind it; a sentence about tokens goes on otherwise."""
_UNFINISHED = re.compile(
    r"(?:<\|(?:start|channel|constrain)\|>[^<{\n]{0,120}(?:\n\s{0,3})?)+(?:<(?:\|\w{0,9}\|?)?)?\Z|<(?:\|\w{0,9}\|?)?\Z"
)
_SPEAKS = re.compile(r"<\|start\|>\s?(?:system|developer|user|assistant|functions\.)")
_SPEAKER = "assistant<|channel|>"
_ENDED = re.compile(r"<\|end\|>\s{0,4}")
_ENDS = re.compile(r"<\|(?:end|return|call)\|>")


def token_begins(text: str, at: int, *, first: bool, final: bool) -> bool | None:
    """Tell whether a header begins at `text[at]`, where a token of one stands; None: more text must tell.

    `first`: nothing was said before it; `final`: no more text will come.
    """
    ended = _ENDED.match(text, at)
    if ended is not None:  # the message before was begun by the prompt
        if ended.end() == len(text):
            return False if final else None
        at = ended.end()
    window = text[at : at + LIMIT]
    more = not final and len(text) - at <= LIMIT
    header = _HEADER.match(window)
    if header is not None:
        junk = (first or ended is not None) and not header[0][header[0].index(">") + 1].isspace()
        return junk or _NAMED.search(header[0]) is not None
    if window.startswith("<|message|>"):
        return first
    if ended is not None and not window.startswith("<"):
        return None if more and _SPEAKER.startswith(window) else window.startswith(_SPEAKER)
    if more and _UNFINISHED.match(window):
        return None
    parts = PARTS.match(window)
    end = parts.end() if parts is not None else 0
    head, rest = window[:end], window[end:]
    if more and may_go_on(rest):
        return None
    if not names_much(head):
        return bool(_SPEAKS.match(window)) and rest.startswith("<|")
    if not rest:  # a header, and nothing else
        return True
    if rest[0] in "{[":
        return "to=" in head or "<|channel|>" in head
    if more and not _ENDS.search(rest):
        return None
    return bool(_ENDS.search(rest))
