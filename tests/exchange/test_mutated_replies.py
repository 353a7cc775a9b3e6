"""What a server writes in fields that are not ours never costs the reply: good replies, with each field made odd."""

import json
from itertools import product, repeat

import pytest
from scripted import JSON, SSE, WEATHER, Answer, ask, play, target

from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API
from promptools.exchange.ollama_api import OLLAMA_API

NDJSON = (("content-type", "application/x-ndjson"),)
WORDS = "It is warm in Paris."
MARK = "@@"
"""Stands where raw JSON text is put in."""

LOGPROBS = {"content": [{"token": "It", "logprob": -0.1, "bytes": [73], "top_logprobs": []}], "refusal": None}
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 7,
    "total_tokens": 16,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": None,
}
AROUND = {
    "id": "chatcmpl-1",
    "created": 7,
    "model": "m",
    "system_fingerprint": "fp",
    "service_tier": None,
    "timings": {"prompt_ms": 1.5, "predicted_ms": 2.5, "prompt_n": 9},
    "error": None,
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}


def whole(**message):
    said = {"role": "assistant", "content": WORDS, "reasoning_content": "Hm.", "refusal": None, **message}
    choice = {"index": 0, "message": said, "logprobs": LOGPROBS, "finish_reason": "stop", "stop_reason": None}
    return {**AROUND, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "logprobs": LOGPROBS, "finish_reason": finish, "token_ids": None, **more}
    return {**AROUND, "object": "chat.completion.chunk", "choices": [choice]}


def streamed(*deltas, finish="stop"):
    first = {"role": "assistant", "content": ""}
    end = chunk({}, finish, stop_reason=None)
    return [chunk(first), *map(chunk, deltas), end, {**chunk({}), "choices": [], "usage": USAGE}]


LINE = {"model": "m", "created_at": "2026-11-22T10:00:00.5Z", "logprobs": LOGPROBS["content"], "done": False}
ENDED = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 5,
    "load_duration": 4,
    "prompt_eval_count": 9,
    "prompt_eval_duration": 3,
    "eval_count": 7,
    "eval_duration": 2,
    "context": [1, 2],
}
LLAMACPP = {
    "index": 0,
    "content": WORDS,
    "tokens": [],
    "id_slot": 0,
    "stop": False,
    "model": "m",
    "tokens_predicted": 7,
    "tokens_evaluated": 9,
    "generation_settings": {"seed": 1},
    "stop_type": "eos",
    "stopping_word": "",
    "timings": AROUND["timings"],
}
TEXT = {**AROUND, "object": "text_completion", "usage": USAGE}
TEXT["choices"] = [
    {"index": 0, "text": WORDS, "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": None}
]
HARMONY = {"modes": ("harmony",), "family": "gpt-oss", "context": 131_072}

OLLAMAS = {"wire": "ollama"}
MESSAGE = {"role": "assistant", "content": WORDS, "thinking": "Hm."}
LAST = {**LINE, "message": {"role": "assistant", "content": ""}, **ENDED}
GENERATE = {**HARMONY, "wire": "ollama", "raw": "generate"}
CALLED = {"content": None, "tool_calls": [CALL], "function_call": None, "annotations": []}

REPLIES = {
    # name: (the bodies, how they are written, facts of the profile)
    "chat": ([whole()], "json", {}),
    "chat, streamed": (streamed({"content": WORDS}, {"reasoning": "Hm."}), "sse", {}),
    "call": ([whole(**CALLED)], "json", {}),
    "call, streamed": (streamed({"tool_calls": [{"index": 0, **CALL}]}, finish="tool_calls"), "sse", {}),
    "ollama": ([{**LINE, "message": MESSAGE, **ENDED}], "json", OLLAMAS),
    "ollama, streamed": ([{**LINE, "message": MESSAGE}, LAST], "ndjson", OLLAMAS),
    "completions": ([TEXT], "json", {**HARMONY, "raw": "completions"}),
    "completions, streamed": ([TEXT], "sse", {**HARMONY, "raw": "completions"}),
    "llamacpp": ([{**LLAMACPP, "stop": True}], "json", {**HARMONY, "raw": "llamacpp"}),
    "llamacpp, streamed": (
        [LLAMACPP, {**LLAMACPP, "content": "", "stop": True}], "sse", {**HARMONY, "raw": "llamacpp"}
    ),
    "generate": ([{**LINE, "response": WORDS, **ENDED}], "json", GENERATE),
    "generate, streamed": ([{**LINE, "response": WORDS}, {**LINE, "response": "", **ENDED}], "ndjson", GENERATE),
}  # fmt: skip

DEEP = "[" * 400 + "]" * 400
NOTHING = ("null", '""', "0", "false", "[]", "{}", '{"message": ""}')
ODD = (
    *NOTHING, '"x"', "-1", "7.5", "1e400", "NaN", "9" * 400, "9" * 5000, "true", "[null]", '[[["x"]]]', '{"a": [null]}',
    DEEP, json.dumps("long " * 2_000), '"\\ud800"',
    '{"prompt_tokens": null, "completion_tokens": "x"}', "DELETED", "TWICE",
)  # fmt: skip
"""What is put in place of a field, as JSON text."""


def places(value, path=()):
    """Every place inside a JSON value, as a path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(value, path, odd):
    """The text of a JSON value with one place changed."""
    copy = json.loads(json.dumps(value))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    last = path[-1]
    was = inside[last]
    if odd == "DELETED":
        del inside[last]
        return json.dumps(copy)
    if odd == "TWICE":
        again = json.dumps(was)
        odd = f"{again}, {json.dumps(last)}: {again}" if isinstance(inside, dict) else f"{again}, {again}"
    inside[last] = MARK
    return json.dumps(copy).replace(json.dumps(MARK), odd)


def written(texts, how):
    if how == "sse":
        return Answer(200, b"".join(b"data: %b\n\n" % each.encode() for each in (*texts, "[DONE]")), SSE)
    if how == "ndjson":
        return Answer(200, b"".join(each.encode() + b"\n" for each in texts), NDJSON)
    return Answer(200, "".join(texts).encode(), JSON)


SAYS = {"content", "text", "response", "arguments", "name"}
"""Keys whose values are the reply itself."""
ENDS = {"finish_reason", "done", "done_reason", "stop", "stop_type"}
"""Keys that say how the reply ended: `length`, or no end at all, are other replies."""


def is_of_the_reply(body, path, odd):
    """Does the place hold what the model said, or its end, or does it tell of an error now?"""
    inside = body
    for key in path:
        inside = inside[key]
    text = json.dumps(inside)
    if path[-1] == "error":
        return odd not in (*NOTHING, "DELETED", "TWICE")
    return any(word in text for word in (WORDS, "get_weather", "Paris")) or path[-1] in SAYS | ENDS


def said_in(seen):
    """Everything that the client got, as text; an error's words where there was one."""
    if seen.head.status != 200 or b"event: error" in seen.body:
        return f"error: {seen.body.decode()[:200]}"
    if seen.lines[-1] == "data: [DONE]":
        joined = seen.choice()
        return joined.content + json.dumps(joined.calls)
    if "event: message_stop" in seen.lines:
        deltas = [event["delta"] for event in seen.events if "delta" in event]
        return "".join(delta.get("text", "") + delta.get("partial_json", "") for delta in deltas)
    return json.dumps(seen.json)


def troubles(name, number, share, **how):
    """Play mutations of a reply, and tell of those that lost what the model said, or raised.

    Each place has every second value, the next place the others: a field is in many bodies, and in each API.
    """
    bodies, written_as, facts = REPLIES[name]
    wanted = "Paris" if "call" in name else WORDS
    mutations = [
        (path, odd)
        for at, path in enumerate(places(bodies[number]))
        for which, odd in enumerate(ODD)
        if (at + which + number) % 2 == 0
    ]
    for path, odd in share(mutations):
        texts = [json.dumps(each) for each in bodies]
        texts[number] = changed(bodies[number], path, odd)
        request = ask(*how.get("tools", [WEATHER]), stream="streamed" in name)
        answer = written(texts, written_as)
        try:
            seen = play(request, repeat(answer), spare=True, target=target(**facts), front=how.get("front", CHAT_API))
            said = said_in(seen)
        except Exception as error:  # noqa: BLE001 - that it raises is what is looked for
            yield f"{'.'.join(map(str, path))} = {odd[:40]}: {type(error).__name__}: {error}"[:200]
            continue
        if wanted not in said and not is_of_the_reply(bodies[number], path, odd):
            yield f"{'.'.join(map(str, path))} = {odd[:40]}: {said[:200]}"


CASES = [
    (name, number)
    for name, (bodies, *_) in REPLIES.items()
    for number, body in enumerate(bodies)
    if len(bodies) < 3 or number in {1, len(bodies) - 2, len(bodies) - 1}
]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_an_odd_field_never_breaks_a_reply(name, number, share):
    assert list(troubles(name, number, share)) == []


@pytest.mark.parametrize(("name", "number"), [case for case in CASES if case[0] in {"chat", "chat, streamed"}])
def test_a_reply_with_an_odd_field_passes_untouched(name, number, share):
    bodies, written_as, _ = REPLIES[name]
    for path, odd in share(product(places(bodies[number]), ODD)):
        texts = [json.dumps(each) for each in bodies]
        texts[number] = changed(bodies[number], path, odd)
        answer = written(texts, written_as)
        seen = play(ask(stream="streamed" in name), repeat(answer), spare=True)
        assert seen.head.status == 200
        assert seen.body == answer.body or is_of_the_reply(bodies[number], path, odd)


@pytest.mark.parametrize("name", ["chat", "call", "ollama"])
def test_an_odd_field_never_breaks_a_reply_for_a_client_of_ollama(name, share):
    assert list(troubles(name, 0, share, front=OLLAMA_API)) == []


@pytest.mark.parametrize("name", REPLIES)
def test_an_odd_field_never_breaks_a_reply_for_a_client_of_anthropic(name, share):
    assert list(troubles(name, 0, share, front=MESSAGES_API)) == []
