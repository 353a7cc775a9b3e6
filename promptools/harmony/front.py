"""What stands at the front of a text: a header, a piece of one, or words. Known parts tell it, not tokens alone."""

from __future__ import annotations

import re

from promptools.harmony.tokens import CHANNELS

LIMIT = 256
"""Characters of a header: what is longer has lost its `<|message|>`, or is none."""
SPEAKER = "assistant"
WORDS = (SPEAKER, *CHANNELS, "json", "code")
"""The words of a header that are the same in every one."""
STRAY = ".,:;!?"
"""What a model lets drop between two messages."""
BRACKET = re.compile(r"[{\[]")
PARTS = re.compile(rf"(?:<\|(?:start|channel|constrain)\|>|\s+|{'|'.join(WORDS)}|to=\s?[^\s<{{\[]+)*")
"""The parts of a header that are known for such, from its beginning."""
DEBRIS = re.compile(rf"(?:[\s{STRAY}]|assistant|analysis|commentary|final|json)*")
"""What is left of a header that did not come."""

_TOKENS = ("<|channel|>", "<|constrain|>", "<|start|>")
_ADDRESS = re.compile(r"to=\s?[^\s<{\[]")
_TO = re.compile(r"to=\s?[^\s<{\[]*")


def names_much(raw: str) -> bool:
    """Tell whether a header says more than who speaks: a channel, or a recipient."""
    return "to=" in raw or any(channel in raw for channel in CHANNELS)


def may_go_on(rest: str) -> bool:
    """Tell whether this is the beginning of one more part; nothing is, too."""
    return any(each.startswith(rest) for each in (*WORDS, "to= "))


def end_of_header(raw: str) -> int:
    """Give where a header ends that begins at the front of `raw`: its length while it may go on, -1 if it is none."""
    at = len(raw) - len(raw.lstrip(STRAY))
    while True:
        rest = raw[at:].lstrip()
        at = len(raw) - len(rest)
        if not rest or rest[0] in "{[":
            return at
        known = next((each for each in (*_TOKENS, *WORDS) if rest.startswith(each)), None)
        to = _TO.match(rest)
        if known is not None:
            at += len(known)
        elif to is not None:
            at += to.end()
        else:
            return len(raw) if may_go_on(rest) else -1


def address_ends(raw: str) -> int | None:
    """Give where a header that names a recipient ends without its `<|message|>`; None: it may go on; -1: it is none."""
    end = end_of_header(raw)
    if end == len(raw) <= LIMIT:
        return None
    return end if 0 <= end <= LIMIT and _ADDRESS.search(raw[:end]) else -1
