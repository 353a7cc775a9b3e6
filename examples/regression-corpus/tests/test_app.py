"""The app against a server that answers what a model might."""

import pytest
from weather_app import TOOLS, ask

from promptools import OpenAI, parse
from promptools.testing import ModelReply, assert_calls, calls_as_text, http_error

PARIS = ("get_weather", {"city": "Paris"})


@pytest.fixture
def client(scripted_server):
    with OpenAI(base_url=scripted_server.url, api_key="none", detect=False) as client:
        yield client


@pytest.mark.parametrize("dialect", ["hermes", "json", "qwen3_coder"])
def test_a_call_that_the_server_left_in_the_text(client, scripted_server, dialect):
    scripted_server.play(calls_as_text(dialect, [PARIS]))
    assert_calls(ask(client, "What is the weather in Paris?"), [PARIS])


def test_a_server_without_tools(client, scripted_server):
    scripted_server.play(
        http_error(400, '"auto" tool choice requires --enable-auto-tool-choice'), calls_as_text("json", [PARIS])
    )
    assert_calls(ask(client, "What is the weather in Paris?"), [PARIS])
    first, second = scripted_server.requests
    assert "tools" in first.json
    assert "tools" not in second.json


def test_an_answer_without_calls(client, scripted_server):
    scripted_server.play(ModelReply("It is sunny.", reasoning="No tool is needed."))
    completion = ask(client, "Is it sunny?")
    assert_calls(completion, [])
    assert completion.choices[0].message.content == "It is sunny."


def test_how_a_sloppy_reply_is_read(reply_snapshot):
    text = "Let me look.\n<tool_call>{'name': 'getWeather', 'arguments': {'city': 'Oslo', 'days': '3',}}</tool_call>"
    assert parse(text, TOOLS) == reply_snapshot
