"""Detection of Harmony in text of an unknown format: a whole header counts, the mention of a token does not."""

from __future__ import annotations

from promptools.harmony.parsing.header_text import HEADER_PARTS, MAX_HEADER, has_routing, may_continue
from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

_HEADER = lazy_pattern(r"(?:<\|(?:start|channel|constrain)\|>[^<{\n]{0,120}(?:\n\s{0,3})?)+<\|message\|>")
"""Tokens of a header, a few words after each, and `<|message|>`."""
_NAMED = lazy_pattern(
    r"<\|(?:start|channel|constrain)\|>"
    r"(?:system|developer|user|assistant|functions\.|analysis|commentary|final|json|code|to=|<\|message\|>)"
)
"""A token of a header, and right after it what it introduces; a sentence about tokens goes on differently."""
_SPACED = lazy_pattern(
    r"(?:<\|start\|> (?:assistant(?: to=[^\s<]{1,128})?|functions\.[^\s<]{1,128}))?"
    r"<\|channel\|> (?:analysis|commentary|final)"
    r"(?: to=[^\s<]{1,128})?(?: ?<\|constrain\|> \w{1,16}| (?:json|code))?<\|message\|>"
)
"""A whole header with a space after each token, and no others: what LLM-jp's tokenizer makes of one. A sentence about
tokens has spaces before them, too."""
_HALF_TOKEN = lazy_pattern(r"<(?:\|\w{0,9}\|?)?\Z")
_UNFINISHED = lazy_pattern(
    rf"(?:<\|(?:start|channel|constrain)\|>[^<{{\n]{{0,120}}(?:\n\s{{0,3}})?)+(?:{_HALF_TOKEN.pattern}|\Z)|{_HALF_TOKEN.pattern}"
)
_SPEAKS = lazy_pattern(r"<\|start\|>\s?(?:system|developer|user|assistant|functions\.)")
_SPEAKER = "assistant<|channel|>"
_ENDED = lazy_pattern(r"<\|end\|>\s{0,4}")
_ENDS = lazy_pattern(r"<\|(?:end|return|call)\|>")


def harmony_header_begins(text: str, at: int, *, first: bool, final: bool) -> bool | NeedMore:
    """Whether a header begins with the token at `text[at]`.

    `first`: no text precedes it; `final`: no more text will come.
    """
    ended = _ENDED.match(text, at)
    if ended is not None:  # the prompt began the message that this ends
        if ended.end() == len(text):
            return False if final else NEED_MORE
        at = ended.end()
    window = text[at : at + MAX_HEADER]
    more = not final and len(text) - at <= MAX_HEADER
    header = _HEADER.match(window)
    if header is not None:
        junk = (first or ended is not None) and not header[0][header[0].index(">") + 1].isspace()
        return junk or _NAMED.search(header[0]) is not None or _SPACED.match(window) is not None
    if window.startswith("<|message|>"):
        return first
    if ended is not None and not window.startswith("<"):
        return NEED_MORE if more and _SPEAKER.startswith(window) else window.startswith(_SPEAKER)
    if more and _UNFINISHED.match(window):
        return NEED_MORE
    parts = HEADER_PARTS.match(window)
    end = parts.end() if parts is not None else 0
    head, rest = window[:end], window[end:]
    if more and (may_continue(rest) or _HALF_TOKEN.match(rest)):
        return NEED_MORE
    if not has_routing(head):
        return bool(_SPEAKS.match(window)) and rest.startswith("<|")
    if not rest:  # a header, and nothing else
        return True
    if rest[0] in "{[" or rest.startswith("<|message|>"):
        return "to=" in head or "<|channel|>" in head
    if more and not _ENDS.search(rest):
        return NEED_MORE
    return bool(_ENDS.search(rest))
