"""The scripted server speaks Chat Completions to the official SDK."""

import pytest
from openai import OpenAI

from promptools import parse
from promptools.testing import HttpAnswer, ModelReply, assert_calls, calls_as_text, http_error

PARIS = ("get_weather", {"city": "Paris"})
ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]}
BOTH = ModelReply("It is raining in Paris.", [PARIS, ("ping", "{}")], reasoning="Hm, rain.")


@pytest.fixture
def client(scripted_server):
    with OpenAI(base_url=scripted_server.url, api_key="k", max_retries=0) as client:
        yield client


def test_a_reply(client, scripted_server):
    scripted_server.play(BOTH)
    done = client.chat.completions.create(**ASK)
    assert_calls(done, [PARIS, ("ping", {})])
    message = done.choices[0].message
    assert (message.content, message.model_extra["reasoning_content"]) == ("It is raining in Paris.", "Hm, rain.")
    assert (done.choices[0].finish_reason, done.usage.completion_tokens) == ("tool_calls", 20)
    (seen,) = scripted_server.requests
    assert (seen.method, seen.path, seen.json["model"]) == ("POST", "/v1/chat/completions", "m")


def test_the_same_reply_streamed(client, scripted_server):
    scripted_server.play(BOTH)
    with client.chat.completions.stream(**ASK) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        done = stream.get_final_completion()
    assert_calls(done, [PARIS, ("ping", {})])
    assert done.choices[0].message.content == "It is raining in Paris."
    assert done.choices[0].finish_reason == "tool_calls"
    assert sum(bool(c.choices and c.choices[0].delta.content) for c in chunks) == 3
    assert (
        "".join(c.choices[0].delta.model_extra.get("reasoning_content", "") for c in chunks if c.choices) == "Hm, rain."
    )


def test_replies_are_played_in_order_and_the_last_again(client, scripted_server):
    scripted_server.play(
        "one", {"choices": [{"index": 0, "message": {"role": "assistant", "content": "two"}}]}, "three"
    )
    said = [client.chat.completions.create(**ASK).choices[0].message.content for _ in range(4)]
    assert said == ["one", "two", "three", "three"]
    scripted_server.play("new")
    assert scripted_server.requests == []


def test_errors_and_broken_streams(client, scripted_server):
    scripted_server.play(http_error(503, "busy", code="full"))
    with pytest.raises(Exception, match="busy") as error:
        client.chat.completions.create(**ASK)
    assert (error.value.status_code, error.value.code) == (503, "full")
    scripted_server.play(HttpAnswer(pieces=(b"data: {}\n\n",), type="text/event-stream", then="cut"))
    with pytest.raises(Exception, match="error"), client.chat.completions.stream(**ASK) as stream:
        list(stream)


def test_nothing_is_scripted(client):
    with pytest.raises(Exception, match="nothing is scripted"):
        client.chat.completions.create(**ASK)


def test_calls_as_text_are_read_as_calls():
    for dialect in ("hermes", "json", "qwen3_coder", "pythonic"):
        assert_calls(parse(calls_as_text(dialect, [PARIS])), [PARIS])
