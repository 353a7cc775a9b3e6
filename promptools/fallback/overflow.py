"""Handle context overflow: read the token counts in servers' error texts, and find a context size that is large enough.

The size that an earlier request needed, or that a server reported, is kept and used again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from promptools.fallback.rules import searched_parts
from promptools.patterns import lazy_pattern

DEFAULT_ANSWER_TOKENS = 4_096
"""Tokens reserved for an answer whose request sets no `max_tokens`: enough for a call after some reasoning."""
MIN_ANSWER_TOKENS = 512
"""Minimum number of tokens left for the answer in a further attempt; fewer suffice if the request asks for fewer."""
CONTEXT_STEP = 1_024
"""Context sizes are rounded up to a multiple of this number of tokens.

A server reloads the model for each new size, so it is better to request few different sizes.
"""

# each text is also matched by a rule of the failure table, of kind "overflow"; `more` marks a lower bound
_PATTERNS = (
    # llama.cpp b10500 and later, and Ollama 0.32 over it
    r"request \((?P<prompt>\d+) tokens\) exceeds the available context size \((?P<context>\d+) tokens\)",
    # vLLM 0.28 to 0.32
    r"maximum context length is (?P<context>\d+) tokens.{0,40}your prompt contains (?P<more>at least )?(?P<prompt>\d+)",
    # OpenAI, vLLM before 0.12, llama-cpp-python
    r"length is (?P<context>\d+) tokens.{0,40}\((?P<prompt>\d+) in the messages, (?P<answer>\d+) in the completion",
    r"maximum context length is (?P<context>\d+) tokens.{0,80}requested (?P<prompt>\d+) tokens",
    # vLLM from 0.10 on, when the prompt alone would fit
    r"too large: (?P<answer>\d+).{0,40}length is (?P<context>\d+) tokens and your request has (?P<prompt>\d+) input",
    # vLLM on /v1/completions, before it has counted the prompt; 0.28 writes two names for one number
    r"max_tokens=(?P<answer>\d+) cannot be greater than max_model_len=(?:max_total_tokens=)?(?P<context>\d+)",
    # SGLang 0.5
    r"input length \((?P<prompt>\d+) tokens\) exceeds the maximum allowed length \((?P<context>\d+) tokens\)",
    r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<context>\d+) tokens\)",
    r"length of (?P<context>\d+) tokens\..{0,60}: (?P<prompt>\d+) tokens from the input.{0,20} (?P<answer>\d+) tokens",
    # Ollama 0.32, its MLX runner
    r"input length \((?P<prompt>\d+) tokens\) exceeds the model's maximum context length \((?P<context>\d+) tokens\)",
    # LM Studio 0.3
    r"keep the first (?P<prompt>\d+) tokens when context the overflows.{0,80}only (?P<context>\d+) tokens",
)
_COMPILED = tuple(lazy_pattern(text, re.IGNORECASE | re.DOTALL) for text in _PATTERNS)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The token counts that a server reports if a request does not fit the model's context; a missing count is None."""

    prompt: int | None = None
    context: int | None = None
    answer: int | None = None
    """Number of tokens requested for the answer, if the server states it.

    Servers state it if the prompt and the answer together exceed the context.
    """
    at_least: bool = False
    """Whether `prompt` is only a lower bound, because the server stopped counting the prompt's tokens."""

    def __str__(self) -> str:
        """Describe the overflow in words, such as "the prompt has 9000 tokens, and the context holds 8192"."""
        holds = "" if self.context is None else f", and the context holds {self.context}"
        if self.prompt is None and self.answer is not None:
            return f"{self.answer} tokens are asked for the answer{holds}"
        prompt = "the prompt is longer than the model's context"
        if self.prompt is not None:
            prompt = f"the prompt has {'at least ' if self.at_least else ''}{self.prompt} tokens"
        asked = f", {self.answer} more are asked for the answer" if self.answer else ""
        return f"{prompt}{asked}{holds}"


def read_overflow(text: str, *, prompt: int | None = None, context: int | None = None) -> Overflow:
    """Parse the token counts in a server's error text.

    If the text has no counts, `prompt` and `context` are used. These come from separate fields of the error. Like the
    failure rules, this function searches only the start and the end of the text, so the cost of a long text is limited.
    """
    parts = searched_parts(text)
    match = next((match for part in parts for pattern in _COMPILED if (match := pattern.search(part))), None)
    if match is None:
        return Overflow(prompt, context)
    named = match.groupdict()
    numbers = {key: int(named[key]) for key in ("prompt", "context", "answer") if named.get(key)}
    return Overflow(**numbers, at_least=bool(named.get("more")))


def fitting_context(prompt: int, *, answer: int | None, limit: int) -> int | None:
    """Return a context size for a prompt of `prompt` and an answer of `answer` tokens; None if `limit` is too low.

    If `answer` is None, `DEFAULT_ANSWER_TOKENS` are reserved. If the size would exceed `limit`, `limit` is returned,
    provided that it leaves enough tokens for the answer: `MIN_ANSWER_TOKENS`, or `answer` if that is less.
    """
    wanted = DEFAULT_ANSWER_TOKENS if answer is None or answer < 1 else answer
    size = -(-(prompt + wanted) // CONTEXT_STEP) * CONTEXT_STEP
    if size <= limit:
        return size
    return limit if limit - prompt >= min(wanted, MIN_ANSWER_TOKENS) else None


# The sizes that are kept.


class _ContextSize(NamedTuple):
    size: int
    last_used: float


class ContextSizes:
    """Caches, by provider and model, the context size that a request needed or that the server reported, in tokens.

    Ollama reloads a model for each change of the context, so going back to the smaller context would cause two reloads
    per turn. Entries expire after `idle` seconds without a request: by then Ollama has unloaded the model anyway (its
    `keep_alive` is five minutes by default). Thread-safe: each step is a single operation of a dict.
    """

    def __init__(self, *, idle: float = 300.0, limit: int = 1024) -> None:
        self.idle = idle
        self.limit = limit
        self._sizes: dict[tuple[str, str], _ContextSize] = {}

    def get(self, provider_model: tuple[str, str], at: float) -> int | None:
        """Return the context size to request, if known; this counts as a use and restarts the expiry."""
        entry = self._sizes.get(provider_model)
        if entry is None:
            return None
        if at - entry.last_used >= self.idle:
            self._sizes.pop(provider_model, None)
            return None
        self._sizes[provider_model] = entry._replace(last_used=at)
        return entry.size

    def put(self, provider_model: tuple[str, str], size: int, at: float) -> None:
        """Record a context size that a request needed, or that the server reported."""
        self._sizes[provider_model] = _ContextSize(size, at)
        if len(self._sizes) > self.limit:
            self._evict()

    def _evict(self) -> None:
        """Evict the least recently used entries."""
        entries = sorted(self._sizes.copy().items(), key=lambda item: item[1].last_used)
        for provider_model, _ in entries[: len(entries) - self.limit]:
            self._sizes.pop(provider_model, None)
