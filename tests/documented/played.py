"""A server that plays a documented case: it refuses what the real one refuses, and says what the real one said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from upstream import Answer, Upstream, few_certificates, sse, unary

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'

Body = dict[str, Any]


def _contents(body: Body, role: str) -> list[Any]:
    return [each.get("content") for each in body["messages"] if each["role"] == role]


def _schemas(value: Any) -> Iterator[Any]:
    """Every value below `properties` of any tool."""
    if isinstance(value, dict):
        yield from value.get("properties", {}).values()
        for each in value.values():
            yield from _schemas(each)
    elif isinstance(value, list):
        for each in value:
            yield from _schemas(each)


WHEN: dict[str, Callable[[Body], bool]] = {
    "tools": lambda body: "tools" in body,
    "object tool_choice": lambda body: isinstance(body.get("tool_choice"), dict),
    "reasoning_effort": lambda body: "reasoning_effort" in body,
    "late system": lambda body: any(each["role"] == "system" for each in body["messages"][1:]),
    "developer": lambda body: bool(_contents(body, "developer")),
    "forced choice": lambda body: body.get("tool_choice", "auto") not in ("auto", "none"),
    "strict": lambda body: any("strict" in tool["function"] for tool in body.get("tools", ())),
    "store": lambda body: "store" in body,
    "max_tokens": lambda body: "max_tokens" in body,
    "tool role": lambda body: bool(_contents(body, "tool")),
    "parts in a result": lambda body: any(isinstance(each, list) for each in _contents(body, "tool")),
    "neighbours of one role": lambda body: any(
        one["role"] == other["role"] for one, other in zip(body["messages"], body["messages"][1:], strict=False)
    ),
    "boolean schema": lambda body: any(isinstance(each, bool) for each in _schemas(body.get("tools"))),
    "unanchored pattern": lambda body: any(
        not each.get("pattern", "^$").startswith("^") for each in _schemas(body.get("tools")) if isinstance(each, dict)
    ),
    "reference": lambda body: "$ref" in json.dumps(body.get("tools")),
}


class Played(Upstream):
    """The server of one case; `sent` holds the bodies that it was sent."""

    def __init__(self, case: Body) -> None:
        super().__init__()
        self.case = case
        self.sent_bodies: list[Body] = []

    def answer(self, seen: Any) -> Answer:
        self.sent_bodies.append(seen.json)
        return raw_answer(self.case, seen.path, seen.json) or answer(self.case, seen.json)


def answer(case: Body, body: Body) -> Answer:
    """Answer one request as the case says."""
    for refusal in case.get("refuses", ()):
        if WHEN[refusal["when"]](body):
            return unary(refusal["body"], status=refusal["status"])
    native = "tools" in body
    message = _message(case["says"]) if native else {"role": "assistant", "content": case.get("prompted", FENCED)}
    finish = case.get("finish") or ("tool_calls" if message.get("tool_calls") else "stop")
    if not body.get("stream"):
        return unary({**_around("chat.completion"), "choices": [_choice("message", message, finish)], "usage": USAGE})
    deltas = [json.loads(each) for each in case["chunks"]] if native and "chunks" in case else list(_deltas(message))
    chunks = [{**_around("chat.completion.chunk"), "choices": [_choice("delta", each, None)]} for each in deltas]
    last = {**_around("chat.completion.chunk"), "choices": [_choice("delta", {}, finish)]}
    spent = {**_around("chat.completion.chunk"), "choices": [], "usage": USAGE}
    return sse(*chunks, last, spent)


def raw_answer(case: Body, path: str, body: Body) -> Answer | None:
    """Answer a request of raw mode, which no parser of the server sees; None for any other."""
    if path == "/tokenize":
        strings = [word for tool in body["tools"] for word in ("Tool:Ġ", tool["function"]["name"])]
        return unary({"tokens": [*range(len(strings))], "token_strs": strings, "max_model_len": 8192})
    if path != "/v1/completions":
        return None
    text = case.get("prompted", FENCED)
    if not body.get("stream"):
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        return unary({**_around("text_completion"), "choices": [choice], "usage": USAGE})
    pieces = [{"index": 0, "text": piece, "finish_reason": None} for piece in _cut(text)]
    chunks = [{**_around("text_completion"), "choices": [piece]} for piece in pieces]
    last = {**_around("text_completion"), "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    return sse(*chunks, last, {**_around("text_completion"), "choices": [], "usage": USAGE})


USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


def _around(kind: str) -> Body:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "m"}


def _choice(key: str, said: Body, finish: str | None) -> Body:
    return {"index": 0, key: said, "logprobs": None, "finish_reason": finish}


def _message(says: Body) -> Body:
    """Write a whole message; `calls` are the arguments of calls of the one tool."""
    said = {key: value for key, value in says.items() if key != "calls"}
    if "calls" in says:
        said["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            for n, arguments in enumerate(says["calls"])
        ]
    return {"role": "assistant", "content": None, **said}


def _deltas(message: Body) -> Iterator[Body]:
    """Cut a message into deltas: text and arguments in pieces of seven characters."""
    yield {"role": "assistant", "content": ""}
    for key in ("reasoning", "content"):
        for piece in _cut(message.get(key) or ""):
            yield {key: piece}
    for place, call in enumerate(message.get("tool_calls") or ()):
        head = {**call, "index": place, "function": {**call["function"], "arguments": ""}}
        yield {"tool_calls": [head]}
        for piece in _cut(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _cut(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


@contextmanager
def playing(case: Body) -> Iterator[Played]:
    """Run the server of a case."""
    server = Played(case)
    try:
        with few_certificates():
            yield server
    finally:
        server.close()
