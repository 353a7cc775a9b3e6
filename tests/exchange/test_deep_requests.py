"""Values nested deeper than anyone reads, anywhere in a request, on every API: passed on, or a clear 400, no crash.

What Chat Completions can pass on unread goes to the server as it came: it may take it.
"""

import json

import pytest
from scripted import JSON, URL, WEATHER, Answer, ask, play, reply, target

from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API, count_message_tokens, serve_message
from promptools.exchange.ollama_api import OLLAMA_API, serve_ollama_chat
from promptools.exchange.responses_api import RESPONSES_API, count_input_tokens, serve_response
from promptools.exchange.runner import run
from promptools.wire.json_body import MAX_LEVELS

FRONTS = {
    "chat": (CHAT_API, URL, run),
    "ollama": (OLLAMA_API, "http://server/api/chat", serve_ollama_chat),
    "messages": (MESSAGES_API, "http://server/v1/messages", serve_message),
    "responses": (RESPONSES_API, "http://server/v1/responses", serve_response),
    "messages count": (MESSAGES_API, "http://server/v1/messages/count_tokens", count_message_tokens),
    "responses count": (RESPONSES_API, "http://server/v1/responses/input_tokens", count_input_tokens),
}
HARMONY = target(raw="completions", modes=("harmony",), family="gpt-oss", context=131_072)
TARGETS = {
    "native": target(modes=("native",)),
    "prompt": target(modes=("prompt",)),
    "harmony": HARMONY,
    "ollama": target(wire="ollama"),
}
SHAPES = {
    "objects": lambda levels: '{"a":' * levels + "1" + "}" * levels,
    "lists": lambda levels: "[" * levels + "]" * levels,
    "schema": lambda levels: '{"type":"object","properties":{"a":' * (levels // 2) + "{}" + "}}" * (levels // 2),
    "any of": lambda levels: '{"anyOf":[' * (levels // 2) + "{}" + "]}" * (levels // 2),
}
DEEP = "DEEP"
USER = {"role": "user", "content": "Hi"}


def called(**function):
    call = {"id": "x", "type": "function", "function": {"name": "get_weather", "arguments": "{}", **function}}
    return [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]


PLACES = {
    "parameters": {"tools": [{"type": "function", "function": {"name": "t", "parameters": DEEP}}]},
    "tool": {"tools": [DEEP]},
    "tools": {"tools": DEEP},
    "content": {"messages": [{"role": "user", "content": DEEP}]},
    "message": {"messages": [DEEP]},
    "messages": {"messages": DEEP},
    "arguments": {"messages": [*called(arguments=DEEP), {"role": "tool", "tool_call_id": "x", "content": "y"}]},
    "result": {"messages": [*called(), {"role": "tool", "tool_call_id": "x", "content": DEEP}]},
    "response_format": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": DEEP}}},
    "format": {"format": DEEP},
    "tool_choice": {"tool_choice": DEEP},
    "promptools": {"promptools": DEEP},
    "stop": {"stop": DEEP},
    "model": {"model": DEEP},
    "template": {"chat_template_kwargs": DEEP},
    "images": {"messages": [{**USER, "images": DEEP}]},
    "options": {"options": DEEP},
    "unknown": {"unknown": DEEP},
}


def request(front, place, tools, deep):
    """Return a body with a deep value at a place, in the form of an API."""
    body = json.loads(json.dumps(ask(*([WEATHER] if tools else []), **PLACES[place])))
    offered = body.get("tools")
    functions = [tool["function"] for tool in offered if tool != DEEP] if isinstance(offered, list) else []
    if front.startswith("messages"):
        body["max_tokens"] = 10
        if functions:
            body["tools"] = [{"name": each["name"], "input_schema": each["parameters"]} for each in functions]
    elif front.startswith("responses"):
        body["input"] = body.pop("messages")
        if functions:
            body["tools"] = [{"type": "function", **each} for each in functions]
    return json.dumps(body).replace(f'"{DEEP}"', deep).encode()


def answer(place):
    """An answer that is one in each API of servers."""
    if place == "harmony":
        said = "<|channel|>final<|message|>Hello.<|return|>"
        choice = {"index": 0, "text": said, "finish_reason": "stop", "stop_reason": 200002}
        return Answer(200, json.dumps({"id": "c", "created": 7, "model": "m", "choices": [choice]}).encode())
    if place == "ollama":
        message = {"role": "assistant", "content": "Hello."}
        said = {"model": "m", "created_at": "2026-11-21T08:02:00Z", "message": message, "done": True}
        return Answer(200, json.dumps({**said, "done_reason": "stop"}).encode(), JSON)
    return reply("Hello.")


def said(seen):
    """Return the message of an error, in any API."""
    error = seen.json["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "plain"])
@pytest.mark.parametrize("place", TARGETS)
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("levels", [150, MAX_LEVELS - 10, MAX_LEVELS + 10, 990, 100_000])
def test_no_depth_breaks_a_request(front, place, tools, levels):
    api, url, begin = FRONTS[front]
    """Each place has two of the shapes with tools, and the two others without."""
    unread = levels > MAX_LEVELS
    passed_on = front == "chat" or (front == "ollama" and place == "ollama")
    for number, where in enumerate(PLACES):
        for shape, nest in [*SHAPES.items()][(number + tools) % 2 :: 2]:
            body = request(front, where, tools, nest(levels))
            answers = [answer(place) if tools else reply("Hello.")] * 4
            seen = play(body, answers, spare=True, front=api, url=url, begin=begin, target=TARGETS[place])
            assert seen.head.status in {200, 400, 502}, (where, shape, seen.body)
            if unread and not passed_on:
                assert (seen.head.status, seen.sent) == (400, [])
                assert said(seen) == "the request's body is nested more than 500 levels deep; flatten it"
            elif unread:
                assert [sent.body for sent in seen.sent] == [body], (where, shape)
                assert seen.head.status == 200
            elif seen.head.status == 502:  # a form that the answer does not have, or another API's answer
                assert b"promptools_bug" not in seen.body
            elif seen.head.status == 400:
                assert len(said(seen)) < 1000, (where, shape)


def test_what_goes_on_unread_is_logged():
    seen = play(request("chat", "parameters", True, SHAPES["schema"](5_000)), [reply("Hello.")])
    assert (seen.head.status, seen.message["content"]) == (200, "Hello.")
    (line,) = seen.log
    assert line.startswith(
        "a request was forwarded unread, and its reply is not searched for calls: the request's body is nested"
    )


@pytest.mark.parametrize("levels", [300, MAX_LEVELS - 10, 990, 5_000, 100_000])
@pytest.mark.parametrize("place", ["native", "prompt", "ollama"])
def test_no_depth_breaks_a_reply(place, levels):
    """In a call's arguments and its text, in what is not read, and in an error.

    Every other shape is in a success, and the others in an error; in the next body they are exchanged.
    """
    nested = [nest(levels) for nest in SHAPES.values()]
    written = json.dumps("<tool_call>" + json.dumps({"name": "get_weather", "arguments": DEEP}) + "</tool_call>")
    for shape, deep in enumerate(nested):
        text = json.dumps(deep)[1:-1]
        bodies = (
            b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "tool_calls":'
            b' [{"id": "x", "function": {"name": "get_weather", "arguments": %b}}]}}]}' % deep.encode(),
            b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "tool_calls":'
            b' [{"id": "x", "function": {"name": "get_weather", "arguments": "%b"}}]}}]}' % text.encode(),
            b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": %b}}]}'
            % written.replace(f'\\"{DEEP}\\"', text).encode(),
            b'{"message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather",'
            b' "arguments": %b}}]}, "done": true, "done_reason": "stop"}' % deep.encode(),
            b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}],'
            b' "extra": %b}' % deep.encode(),
            b'{"error": %b}' % deep.encode(),
            deep.encode(),
        )
        for number, body in enumerate(bodies):
            answers = [Answer((200, 500)[(shape + number) % 2], body, JSON)] * 6
            seen = play(ask(WEATHER), answers, spare=True, target=TARGETS[place])
            assert seen.head.status in {200, 400, 500, 502}
            assert b"promptools_bug" not in seen.body
