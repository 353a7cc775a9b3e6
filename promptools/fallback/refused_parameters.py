"""Which parameters an error text says that the server does not take, and which of them may be left out.

Left out is only what changes no answer, or what is enforced here instead (`strict`, `parallel_tool_calls`). What the
answer depends on is not in the list: `response_format`, `stop`, `tools`, sampling. The limit of the answer has two
names, and a server that knows one of them gets that one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from promptools.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

REASONING_PARAMETERS = ("reasoning_effort", "reasoning", "include_reasoning", "enable_thinking", "chat_template_kwargs")
BUDGET_PARAMETERS = ("thinking_token_budget", "thinking_budget_tokens")
"""A budget of thinking tokens, in vLLM's and in llama.cpp's name."""
MESSAGE_PARAMETERS = ("reasoning_content", "refusal", "annotations")
"""Keys of an assistant's message that come back from a reply: servers that do not know them refuse the history."""
HARMLESS_PARAMETERS = (
    "strict",
    "store",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    *BUDGET_PARAMETERS,
    *MESSAGE_PARAMETERS,
)
LIMIT_PARAMETERS = ("max_completion_tokens", "max_tokens")
"""Two names for one thing."""
COMPANION_PARAMETERS = ("parallel_tool_calls", "stream_options", *REASONING_PARAMETERS)
"""Parameters that have rules of their own, for texts that name nothing else."""

# pydantic and FastAPI: `extra_forbidden` (vLLM before 0.6, Mistral, Fireworks); OpenAI: `Unknown parameter`,
# `Unrecognized request argument`; Go and Rust: `unknown field`; Google: `Unknown name`; Groq: `property ... is
# unsupported`; Python: `unexpected keyword argument`; vLLM 0.32: `thinking_token_budget is set but ...`
_NOT_TAKEN = (
    r"(?:extra_forbidden|extra inputs are not permitted|additional properties are not allowed"
    r"|unexpected keyword argument"
    r"|(?:unknown|unrecognized|unsupported) (?:request )?(?:field|name|param(?:eter)?|argument|key|property)s?"
    r"|(?:is|are|was) (?:not (?:supported|permitted|allowed|recognized)|unsupported|unexpected|only allowed)"
    r"|does not support|cannot find field|is set but)"
)
_NEAR = r"[\s\S]{0,80}?"
"""How far a name may be from the words that refuse it."""


def refusal_of(names: Iterable[str]) -> str:
    """Return the pattern of a text which says that one of these parameters is not taken."""
    named = rf"\b(?:{'|'.join(names)})\b"
    return f"{_NOT_TAKEN}{_NEAR}{named}|{named}{_NEAR}{_NOT_TAKEN}"


_COMPILED = tuple(
    (name, lazy_pattern(refusal_of((name,)), re.IGNORECASE))
    for name in (*HARMLESS_PARAMETERS, *LIMIT_PARAMETERS, *COMPANION_PARAMETERS)
)


def refused_parameters(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the parameters, of those that may be left out or renamed, that an error text refuses."""
    texts = tuple(parts)
    return tuple(name for name, pattern in _COMPILED if any(pattern.search(text) for text in texts))
