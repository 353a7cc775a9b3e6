"""The tokens that close a block of Gemma's, and what they show of a call that was not closed before them.

Where such a token stands nothing was cut off: a last string, and the brackets around it, end before it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

TOKENS: Final = ("<tool_call|>", "<end_function_call>")

_NEXT_BLOCK = re.compile(r"<tool_call\|>\s{0,64}+<\|tool_call>|<end_function_call>\s{0,64}+<start_function_call>")
_BLOCK_ENDS = re.compile(
    r"(?:<tool_call\|>\s*+(?:\Z|<\|tool_call>|<turn\|>)|<end_function_call>\s*+(?:\Z|<start_function_call>))"
)
_BARS = re.compile(r"<\||\|>")


class LastString(NamedTuple):
    """A string that was not closed before the token."""

    words: str
    after: str
    """The token, and what follows it."""
    bracketed: bool
    """The missing brackets stood at the end of the string."""


def token_at(text: str, at: int, *, final: bool) -> bool | None:
    """Whether one of the tokens stands at `text[at]`; None: more text must tell."""
    if text.startswith(TOKENS, at):
        return True
    rest = text[at : at + max(map(len, TOKENS))]
    return None if not final and any(each.startswith(rest) for each in TOKENS) else False


def next_block(body: str) -> int:
    """Return where in what looks like a string the token is that the next block follows; -1: nowhere."""
    found = _NEXT_BLOCK.search(body)
    return found.start() if found is not None else -1


def last_string(body: str, missing: str) -> LastString | None:
    """Return the words of a string without its end; `missing`: the brackets that are open around it. O(n).

    The brackets belong to the object if the words are balanced without them, to the words if they are so with them.
    None: no token ends it behind which nothing but another block follows, or its end is in doubt. What is left of a
    damaged delimiter leaves it in doubt.
    """
    end = _BLOCK_ENDS.search(body)
    if end is None or _BARS.search(body, 0, end.start()):
        return None
    words, after = body[: end.start()], body[end.start() :]
    brackets = re.search(r"\s*+".join(map(re.escape, missing)) + r"\s*+\Z", words)
    if brackets is not None and _is_balanced(words[: brackets.start()]):
        return LastString(words[: brackets.start()], after, bracketed=True)
    return LastString(words, after, bracketed=False) if _is_balanced(words) else None


def _is_balanced(words: str) -> bool:
    """Whether brackets of each kind open and close equally often."""
    return words.count("{") == words.count("}") and words.count("[") == words.count("]")
