"""The failures are real: what llama.cpp's own server does with these models when nothing stands before it.

Facts of llama.cpp as in xllamacpp 2026.10.11549. A test that fails here after an update says that the server changed.
"""

import json

import httpx
import pytest
from scenes import ANSWER, FENCED_CALL, QUESTION, RESULT, WEATHER, WORDS

from promptools.lab.server_process import Server

PEG = "The model produced output that does not match the expected peg-native format"


def post(http: httpx.Client, server: Server, *messages: str | dict, **keys) -> httpx.Response:
    said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    body = {"model": server.name, "messages": said, **keys}
    return http.post(f"{server.base_url}/chat/completions", json=body)


def choice(reply: httpx.Response) -> dict:
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def data_lines(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("question", ["Break in Paris?", "Break at once?", "Break always?"])
def test_a_broken_header_is_a_500(http, harmony_server, question):
    reply = post(http, harmony_server, question, tools=[WEATHER])
    assert reply.status_code == 500
    assert reply.json()["error"] == {"code": 500, "message": PEG, "type": "server_error"}


def test_streamed_the_error_comes_in_band_and_done_never(http, harmony_server):
    lines = data_lines(post(http, harmony_server, "Break in Paris?", tools=[WEATHER], stream=True))
    assert json.loads(lines[-1]) == {"error": {"code": 500, "message": PEG, "type": "server_error"}}
    assert "[DONE]" not in lines
    assert not any('finish_reason":"' in line for line in lines)


def test_a_call_without_offered_tools_is_swallowed(http, harmony_server):
    got = choice(post(http, harmony_server, "Swallow in Paris?"))
    assert got["finish_reason"] == "stop"
    assert got["message"]["content"] == ""
    assert "tool_calls" not in got["message"]


def test_a_call_cut_by_max_tokens_is_handed_over_broken(http, hermes_server):
    got = choice(post(http, hermes_server, "Cut in Paris?", tools=[WEATHER], max_tokens=30))
    assert got["finish_reason"] == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(got["message"]["tool_calls"][0]["function"]["arguments"])


def test_a_call_in_another_dialect_stays_text(http, hermes_server):
    got = choice(post(http, hermes_server, "Leak in Paris?", tools=[WEATHER]))
    assert got == {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": f"Let me look.\n{FENCED_CALL}"},
    }


def test_a_template_without_tools_drops_them_silently(http, plain_server):
    got = choice(post(http, plain_server, QUESTION, tools=[WEATHER]))
    assert got["finish_reason"] == "stop"
    assert "<tool_call>" in got["message"]["content"]


def test_broken_arguments_in_the_history_brick_the_conversation(http, hermes_server):
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Par'}}
    history = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": RESULT},
    ]
    reply = post(http, hermes_server, *history, tools=[WEATHER])
    assert reply.status_code == 500
    assert "Failed to parse tool call arguments as JSON" in reply.text


@pytest.mark.parametrize("kind", ["hermes_server", "harmony_server"])
def test_where_nothing_breaks_the_server_is_right(http, request, kind):
    server = request.getfixturevalue(kind)
    got = choice(post(http, server, QUESTION, tools=[WEATHER]))
    assert got["finish_reason"] == "tool_calls"
    (call,) = got["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    history = [
        QUESTION,
        got["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": RESULT},
    ]
    assert choice(post(http, server, *history, tools=[WEATHER]))["message"]["content"] == ANSWER


def test_long_texts_come_out_exactly(http, hermes_server):
    assert choice(post(http, hermes_server, "Say words"))["message"]["content"] == WORDS
    lines = data_lines(post(http, hermes_server, "Say words", stream=True))
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-1]]
    assert "".join(deltas) == WORDS
