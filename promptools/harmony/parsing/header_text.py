"""Recognition of a header at the beginning of a text, by its known parts rather than by tokens alone.

Models drop `<|message|>`, `<|start|>` or other tokens. A header is then the longest prefix of known parts: tokens,
`assistant`, channels, content types, and `to=` with a recipient. It ends at a bracket, or at other text.
"""

from __future__ import annotations

from promptools.harmony.control_tokens import CHANNELS
from promptools.patterns import lazy_pattern

MAX_HEADER = 256
"""Most characters of a header: a longer one has lost its `<|message|>`, or is none."""
ASSISTANT = "assistant"
HEADER_WORDS = (ASSISTANT, *CHANNELS, "json", "code")
"""The fixed words of headers."""
STRAY_PUNCTUATION = ".,:;!?"
"""Punctuation that models leave between two messages."""
HEADER_PARTS = lazy_pattern(rf"(?:<\|(?:start|channel|constrain)\|>|\s+|{'|'.join(HEADER_WORDS)}|to=\s?[^\s<{{\[]+)*")
"""The known parts of a header, from its beginning."""
HEADER_DEBRIS = lazy_pattern(rf"(?:[\s{STRAY_PUNCTUATION}]|assistant|analysis|commentary|final|json)*")
"""The remains of a header that was not written out."""

_TOKENS = ("<|channel|>", "<|constrain|>", "<|start|>")
_ADDRESS = lazy_pattern(r"to=\s?[^\s<{\[]")
_SPEAKER = lazy_pattern(f"(?:{'|'.join(ASSISTANT[:size] for size in range(len(ASSISTANT), 0, -1))})\\Z")
"""The first word of a header, or its beginning, at the end of a text."""
_OPENING_BRACKET = lazy_pattern(r"[{\[]")
_TAGGED = lazy_pattern(r"(?<!\|)>[{\[]")
"""A bracket right after a tag does not begin the content: more of the header follows."""
_TO = lazy_pattern(r"to=\s?[^\s<{\[]*")


def has_routing(raw: str) -> bool:
    """Whether a header names more than a role: a channel, or a recipient."""
    return "to=" in raw or any(channel in raw for channel in CHANNELS)


def header_end(raw: str) -> int | None:
    """Return the end of the header at the beginning of `raw`, which is `len(raw)` if it may go on; None: it is none."""
    at = len(raw) - len(raw.lstrip(STRAY_PUNCTUATION))
    while True:
        rest = raw[at:].lstrip()
        at = len(raw) - len(rest)
        if not rest or rest[0] in "{[":
            return at
        part = next((part for part in (*_TOKENS, *HEADER_WORDS) if rest.startswith(part)), None)
        address = _TO.match(rest)
        if part is not None:
            at += len(part)
        elif address is not None:
            at += address.end()
        else:
            return len(raw) if may_continue(rest) else None


def may_continue(rest: str) -> bool:
    """Whether `rest`, which may be empty, is a prefix of another part."""
    return any(part.startswith(rest) for part in (*HEADER_WORDS, "to= "))


def may_be_header(raw: str) -> bool:
    """Whether all of `raw` may be a header that goes on."""
    return len(raw) <= MAX_HEADER and header_end(raw) == len(raw)


def addressed_header_end(raw: str) -> int | None:
    """Return the end of a header with a recipient but no `<|message|>`, None if there is none."""
    end = header_end(raw)
    return end if end is not None and end <= MAX_HEADER and _ADDRESS.search(raw[:end]) else None


def opening_bracket(raw: str, start: int) -> int:
    """Return the offset in `raw[start:]` of the bracket that begins the content after a header; -1 if there is none."""
    bracket = _OPENING_BRACKET.search(raw, start)
    if bracket is None or _TAGGED.search(raw, 0, bracket.end()) is not None:
        return -1
    return bracket.start()


def speaker_start(text: str) -> int:
    """Return the offset of the end of `text` that may be the first word of a header; its length if there is none."""
    speaker = _SPEAKER.search(text, max(0, len(text) - len(ASSISTANT)))
    return speaker.start() if speaker is not None else len(text)
