"""Random answers of a server, whole and streamed: odd fields, loose JSON, odd framing around a model's words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from fuzz.framing import FRAMING, HARMLESS, WHOLE, odd_fields
from fuzz.grammar import rendered
from fuzz.mutations import mutate
from fuzz.replies import DIALECTS

WORDS, THOUGHT = "Kolibri", "Pelikan"
"""What the model says, and thinks, whatever else: neither may be lost."""


@dataclass(frozen=True, slots=True)
class ExchangeInput:
    """One request of a client, and what the server answers to every send."""

    body: dict[str, Any]
    answer: str
    """Half surrogates stand for bytes that are no UTF-8."""
    dialect: str
    type: str = "application/json"
    cut: int = 0
    """Bytes of a piece; 0: one piece."""
    words: tuple[str, ...] = ()
    """What must reach the client."""
    mutations: tuple[str, ...] = ()

    odd_request: bool = False
    """Not the answer but the request is odd."""

    @property
    def text(self) -> str:
        """What a report shows of it."""
        return self.answer

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExchangeInput:
        """Read what `to_json` wrote."""
        return cls(**{**data, "words": tuple(data["words"]), "mutations": tuple(data["mutations"])})


def make(seed: str, dialect: str = "") -> ExchangeInput:
    """Return the input of a seed; the dialect is any where none is named."""
    random = Random(f"{seed} upstream {dialect}")
    dialect = dialect or random.choice(DIALECTS)
    sample = rendered(random, dialect)
    text = sample.text if random.random() < 0.5 else mutate(random, sample.text)[0]
    thought = f"{THOUGHT}." if random.random() < 0.3 else ""
    body = _request(random, sample.tools or [], stream=random.random() < 0.6)
    given = _message(random, f"{WORDS}.\n{text}", thought, sample.calls)
    mutated = _stream(random, given) if body["stream"] else _whole(random, given)
    answer, kept, mutations = mutated
    words = (WORDS, *([THOUGHT] if thought else [])) if kept else ()
    kind = "text/event-stream" if body["stream"] else "application/json"
    return ExchangeInput(body, answer, dialect, kind, random.choice((0, 0, 1, 7, 64)), words, mutations)


def make_request(seed: str) -> ExchangeInput:
    """Return the input of a seed: a sound answer to an odd request."""
    random = Random(f"{seed} request")
    dialect = random.choice(DIALECTS)
    sample = rendered(random, dialect)
    body = _request(random, sample.tools or [], stream=random.random() < 0.5)
    message = {"role": "assistant", "content": sample.text}
    answer = _sound_stream(message) if body["stream"] else _sound(message)
    body = deepcopy(body)  # the tools are shared
    odd_fields(random, body)
    _, done = odd_fields(random, body)
    streamed = answer.startswith("data")
    kind = "text/event-stream" if streamed else "application/json"
    return ExchangeInput(body, answer, dialect, kind, mutations=tuple(done), odd_request=True)


def _sound(message: dict[str, Any]) -> str:
    return json.dumps(_envelope("chat.completion", {"index": 0, "message": message, "finish_reason": "stop"}))


def _sound_stream(message: dict[str, Any]) -> str:
    chunks = [
        _envelope("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish})
        for delta, finish in ((message, None), ({}, "stop"))
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _request(random: Random, tools: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"corrections": 0}
    for key, choices in (
        ("mode", ("native", "prompt")),
        ("arguments", ("live", "whole")),
        ("on_malformed", ("call", "content")),
        ("hold", ("auto", "all")),
    ):
        if random.random() < 0.5:
            options[key] = random.choice(choices)
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "stream": stream,
        "promptools": options,
    }


def _message(random: Random, text: str, thought: str, calls: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thought:
        message[random.choice(("reasoning_content", "reasoning"))] = thought
    if random.random() < 0.3:
        message["tool_calls"] = [
            {"id": f"call{at:05}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(calls)
        ]
    return message


def _envelope(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "c1", "object": kind, "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _finish(random: Random, message: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else random.choice(("stop", "stop", "length"))


def _whole(random: Random, message: dict[str, Any]) -> tuple[str, bool, tuple[str, ...]]:
    choice = {"index": 0, "message": message, "finish_reason": _finish(random, message)}
    tree = _envelope("chat.completion", choice)
    kept, done = odd_fields(random, tree)
    text = json.dumps(tree, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.25:
        damage = random.choice(WHOLE)
        text, kept, done = damage(random, text), kept and damage in HARMLESS, [*done, damage.__name__]
    return text, kept, tuple(done)


def _stream(random: Random, message: dict[str, Any]) -> tuple[str, bool, tuple[str, ...]]:
    kept, done = True, []
    lines: list[str] = []
    for delta, finish in _deltas(random, message):
        tree = _envelope("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish})
        if random.random() < 0.15:
            fine, names = odd_fields(random, tree)
            kept, done = kept and fine, [*done, *names]
        lines.append(f"data: {json.dumps(tree, ensure_ascii=False)}\n\n")
    if random.random() < 0.9:
        lines.append("data: [DONE]\n\n")
    for _ in range(random.choice((0, 0, 1, 2))):
        damage = random.choice(FRAMING)
        lines = damage(random, lines)
        kept, done = kept and damage in HARMLESS, [*done, damage.__name__]
    return "".join(lines), kept, tuple(done)


def _deltas(random: Random, message: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": random.choice(("", None))}, None
    for key in ("reasoning_content", "reasoning", "content"):
        for piece in _pieces(random, message.get(key, "")):
            yield {key: piece}, None
    for at, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": at, "function": {"name": function["name"], "arguments": ""}}]}, None
        for piece in _pieces(random, function["arguments"]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}, None
    yield {}, _finish(random, message)


def _pieces(random: Random, text: str) -> Iterator[str]:
    places = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        if start < end:
            yield text[start:end]
