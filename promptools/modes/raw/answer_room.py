"""How many tokens are left for an answer, where a raw endpoint has to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.modes.requests.tool_request import ToolRequest

MIN_ANSWER_TOKENS = 4_096
"""Tokens for an answer where it is not known how many are left: enough for a call after some reasoning."""
BYTES_PER_TOKEN = 2
"""Bytes per token, where there is no vocabulary to count with: fewer than in any text except runs of symbols. Prose has
four, so the prompt is overestimated, and the answer gets less than there is room for."""


def text_tokens(text: str) -> int:
    """Return an upper bound of the tokens of a text."""
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN


def answer_tokens(request: ToolRequest, prompt_tokens: int, context: int | None = None) -> int:
    """Return how many tokens are left for the answer; `prompt_tokens` is an upper bound of the prompt's.

    `context` is what the server states, in tokens; without it the profile's counts.
    """
    if request.tokens_left is not None:
        return request.tokens_left
    context = context or request.profile.context
    return MIN_ANSWER_TOKENS if context is None else max(MIN_ANSWER_TOKENS, context - prompt_tokens)
