"""The tokens that close Gemma's blocks, and how they end a call that was not closed before them.

Where such a token comes, nothing was cut off: a last string, and the brackets around it, end before it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from promptools.parsing.parts import NEED_MORE, NeedMore
from promptools.patterns import lazy_pattern

CLOSING_TOKENS: Final = ("<tool_call|>", "<end_function_call>")

_NEXT_BLOCK = lazy_pattern(r"<tool_call\|>\s{0,64}+<\|tool_call>|<end_function_call>\s{0,64}+<start_function_call>")
_BLOCK_ENDS = lazy_pattern(
    r"(?:<tool_call\|>\s*+(?:\Z|<\|tool_call>|<turn\|>)|<end_function_call>\s*+(?:\Z|<start_function_call>))"
)
_BARS = lazy_pattern(r"<\||\|>")


class UnclosedString(NamedTuple):
    """A string that was not closed before the token."""

    text: str
    after: str
    """The token, and what follows it."""
    bracketed: bool
    """The missing brackets were at the end of the string."""


def closing_token_at(text: str, at: int, *, final: bool) -> bool | NeedMore:
    """Return whether one of the tokens is at `text[at]`."""
    if text.startswith(CLOSING_TOKENS, at):
        return True
    rest = text[at : at + max(map(len, CLOSING_TOKENS))]
    return NEED_MORE if not final and any(token.startswith(rest) for token in CLOSING_TOKENS) else False


def find_next_block(body: str) -> int:
    """Return the offset in what looks like a string of the token before the next block; -1 if there is none."""
    match = _NEXT_BLOCK.search(body)
    return match.start() if match is not None else -1


def read_unclosed_string(body: str, missing: str) -> UnclosedString | None:
    """Return the text of a string without its end; `missing`: the brackets that are open around it. O(n).

    The brackets belong to the object if the text is balanced without them, to the text if it is balanced with them.
    None if no token followed by another block, or by nothing, ends it, or if its end is uncertain, as it is where
    something is left of a damaged delimiter.
    """
    end = _BLOCK_ENDS.search(body)
    if end is None or _BARS.search(body, 0, end.start()):
        return None
    text, after = body[: end.start()], body[end.start() :]
    brackets = re.search(r"\s*+".join(map(re.escape, missing)) + r"\s*+\Z", text)
    if brackets is not None and _is_balanced(text[: brackets.start()]):
        return UnclosedString(text[: brackets.start()], after, bracketed=True)
    return UnclosedString(text, after, bracketed=False) if _is_balanced(text) else None


def _is_balanced(text: str) -> bool:
    """Return whether brackets of each kind open and close equally often."""
    return text.count("{") == text.count("}") and text.count("[") == text.count("]")
