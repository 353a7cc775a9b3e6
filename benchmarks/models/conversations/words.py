"""A digest of the words that a way of asking sends for a sample conversation.

The sample is sent in several states: a question alone; a call with its result, or with its error; what another tool
finds after this error, alone or together with the same call again; and a call that was made twice. Each reply is a
malformed call, so that corrections are sent too. The page uses the digest to show which transcripts were made with
today's words.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import httpx2
import openai

from benchmarks.models.ask import MOST_TOKENS, Way, extra_body
from benchmarks.models.conversations.app import client_of
from benchmarks.models.conversations.conversation import world

_PROPS = {"build_info": "b0-unknown", "total_slots": 1, "default_generation_settings": {"n_ctx": 8192}}
_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "llamacpp"}]}
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
}
_SAMPLE = [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call00001", "content": '{"temperature": 9}'},
]
_FAILED = [*_SAMPLE[:2], {**_SAMPLE[2], "content": '{"error": "no such city; did you mean Oslo, Norway?"}'}]
_FOUND = {
    "id": "call00002",
    "type": "function",
    "function": {"name": "get_population", "arguments": '{"city": "Oslo"}'},
}
_MENDING = [
    *_FAILED,
    {"role": "assistant", "content": "", "tool_calls": [_FOUND]},
    {"role": "tool", "tool_call_id": "call00002", "content": '{"city": "Oslo, Norway"}'},
]
_AGAIN = [
    *_FAILED,
    {"role": "assistant", "content": "", "tool_calls": [_FOUND, {**_CALL, "id": "call00003"}]},
    _MENDING[-1],
    {**_FAILED[-1], "tool_call_id": "call00003"},
]
_REPEATED = [*_SAMPLE, *_SAMPLE[1:]]
_BAD = '```json\n[{"tool": "get_weather", "arguments": {"city": Oslo", "x"]}\n```'
"""A call that is malformed in every dialect."""


def words_of(way: Way, served: str) -> str:
    """Return the digest for a model that the server calls `served`; empty if promptools has no part in it."""
    return "" if way.options is None else _digest(json.dumps(way.options), served)


@cache
def _digest(options: str, served: str) -> str:
    way = Way("", json.loads(options))
    sent: list[Any] = []
    tools = [{"type": "function", "function": tool} for tool in world("city").tools.values()]
    with client_of(way, httpx2.MockTransport(lambda request: _answer(request, sent))) as client:
        for messages in (_SAMPLE, _SAMPLE[:1], _FAILED, _MENDING, _AGAIN, _REPEATED):
            try:
                client.chat.completions.create(
                    model=served,
                    messages=messages,  # type: ignore[arg-type]
                    tools=tools,  # type: ignore[arg-type]
                    temperature=0,
                    max_tokens=MOST_TOKENS,
                    **extra_body(way),
                )
            except openai.APIError as error:
                sent.append(str(error))
    return hashlib.sha256(json.dumps(sent).encode()).hexdigest()[:12]


def _answer(request: httpx2.Request, sent: list[Any]) -> httpx2.Response:
    """Answer as a llama.cpp that renders a template by listing the messages, and whose model makes a bad call."""
    path = request.url.path
    if request.method == "GET":
        known = {"/props": _PROPS, "/v1/models": _MODELS}
        return httpx2.Response(200, json=known[path]) if path in known else httpx2.Response(404, json={})
    body = json.loads(request.content)
    if _SAMPLE[0]["content"] in json.dumps(body):  # others only render to learn a format, as time allows
        sent.append([body.get(key) for key in ("messages", "prompt", "tools")])
    if path.endswith("/apply-template"):
        return httpx2.Response(200, json={"prompt": json.dumps(body)})
    if "messages" not in body:
        return httpx2.Response(200, json={"content": _BAD, "stop": True, "stop_type": "eos", "tokens_predicted": 2})
    message = {"role": "assistant", "content": _BAD}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return httpx2.Response(200, json={"id": "c", "object": "chat.completion", "created": 1, "choices": [choice]})
