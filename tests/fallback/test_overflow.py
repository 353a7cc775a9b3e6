"""Prompts that are longer than the context: what servers say, and the context that would hold them."""

import tomllib
from pathlib import Path

import pytest

from promptools.fallback import classify
from promptools.fallback.overflow import (
    CONTEXT_STEP,
    DEFAULT_ANSWER_TOKENS,
    MIN_ANSWER_TOKENS,
    Overflow,
    fitting_context,
    read_overflow,
)

SAID = tomllib.loads((Path(__file__).parent / "overflow.toml").read_text(encoding="utf-8"))["said"]


@pytest.mark.parametrize("said", SAID, ids=[f"{place} {each['source']}" for place, each in enumerate(SAID)])
def test_the_words_of_servers(said):
    assert classify(said["text"]) == "overflow"
    numbers = read_overflow(said["text"])
    told = {key: said[key] for key in ("prompt", "context", "answer", "at_least") if key in said}
    assert numbers == Overflow(**told)
    assert str(numbers) == said["words"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The model `nope` does not exist.",
        "error parsing tool call: raw='request (9 tokens) exceeds the available context size (2 tokens)', err=x",
        "max_tokens must be at least 1",
    ],
)
def test_other_words_are_not_an_overflow(text):
    assert classify(text) != "overflow"


@pytest.mark.parametrize(
    ("prompt", "answer", "limit", "size"),
    [
        (30352, None, 131072, 34 * CONTEXT_STEP),
        (30352, 100, 131072, 30 * CONTEXT_STEP),
        (4 * CONTEXT_STEP - DEFAULT_ANSWER_TOKENS, None, 131072, 4 * CONTEXT_STEP),
        (4 * CONTEXT_STEP - DEFAULT_ANSWER_TOKENS + 1, None, 131072, 5 * CONTEXT_STEP),
        (1000, -1, 131072, 5 * CONTEXT_STEP),
        (1000, 0, 131072, 5 * CONTEXT_STEP),
        # the answer gets what the limit leaves
        (7000, None, 8000, 8000),
        (7000, 100_000, 8000, 8000),
        (8000 - MIN_ANSWER_TOKENS, None, 8000, 8000),
        (7900, 100, 8000, 8000),
        # as long as that is worth it
        (8001 - MIN_ANSWER_TOKENS, None, 8000, None),
        (7901, 100, 8000, None),
        (9000, None, 8000, None),
    ],
)
def test_the_context_that_holds_a_prompt(prompt, answer, limit, size):
    assert fitting_context(prompt, answer=answer, limit=limit) == size
