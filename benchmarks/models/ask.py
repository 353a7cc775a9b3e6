"""Ask a server one question in one way, and return the result."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai

import promptools
from benchmarks.models.question import Question
from benchmarks.models.score import CallMade, Outcome, judge
from promptools.profiles.config import Config

MOST_TOKENS = 200
"""Maximum number of tokens of an answer; a longer answer would be an endless repetition."""
SECONDS = 600.0
SHOWN = 300
"""Maximum number of characters of an answer in a row."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a question is asked."""

    name: str
    options: Mapping[str, Any] | None
    """The `promptools` key of the request; None bypasses promptools."""


ALONE = Way("server alone", None)
AS_IT_COMES = Way("as it comes", {})
NATIVE = Way("native", {"mode": "native"})
PROMPT = Way("prompt mode", {"mode": "prompt"})
RAW = Way("raw mode", {"mode": "raw"})
REPEATS_ANSWERED = Way('on_repeat="answer"', {"on_repeat": "answer"})


def prompted(dialect: str) -> Way:
    """Return the way for prompt mode with a dialect."""
    return Way(f"prompt, {dialect}", {"mode": "prompt", "dialect": dialect})


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one question."""

    model: str
    way: str
    question: str
    digest: str
    outcome: Outcome
    calls: list[CallMade] = field(default_factory=list[CallMade])
    content: str = ""
    modes: list[str] = field(default_factory=list[str])
    """The mode of each request that promptools sent."""
    prompt_tokens: int = 0
    """Prompt tokens of the first request."""
    seconds: float = 0.0
    printed: bool = False
    """Whether promptools finds a call in the content that the server left there."""


@contextmanager
def client_of(base_url: str, way: Way) -> Iterator[openai.OpenAI]:
    """Open the client for a way."""
    keys: dict[str, Any] = {"base_url": base_url, "api_key": "none", "max_retries": 0, "timeout": SECONDS}
    with openai.OpenAI(**keys) if way.options is None else promptools.OpenAI(**keys, config=Config()) as client:
        yield client


def extra_body(way: Way) -> dict[str, Any]:
    """Return what a way adds to a request."""
    return {} if way.options is None else {"extra_body": {"promptools": {**way.options, "trace": True}}}


def ask(client: openai.OpenAI, model: str, question: Question, way: Way) -> Row:
    """Send one request, at temperature 0; an error of the server is an outcome."""
    began = time.monotonic()
    messages: Any = question.messages
    tools: Any = question.offered()
    try:
        reply = client.chat.completions.create(
            model=model, messages=messages, tools=tools, temperature=0, max_tokens=MOST_TOKENS, **extra_body(way)
        )
    except openai.APIError as error:
        return Row(model, way.name, question.name, question.digest, "error", content=str(error)[:500])
    message = reply.choices[0].message
    calls = [_made(call.function) for call in message.tool_calls or []]
    content = message.content or ""
    attempts = (reply.model_extra or {}).get("promptools", {}).get("attempts", [])
    usage = (attempts[0]["usage"] if attempts else None) or (reply.usage.model_dump() if reply.usage else {})
    return Row(
        model,
        way.name,
        question.name,
        question.digest,
        judge(question, calls, content),
        calls,
        content[:SHOWN],
        [attempt["mode"] for attempt in attempts],
        usage.get("prompt_tokens", 0),
        round(time.monotonic() - began, 2),
        bool(content and promptools.parse(content, tools).calls),
    )


def _made(function: Any) -> CallMade:
    try:
        arguments = json.loads(function.arguments)
    except ValueError:
        arguments = function.arguments
    return {"name": function.name, "arguments": arguments}
