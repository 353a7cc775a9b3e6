"""What promptools does on real llama.cpp servers that no single case of the table shows.

A test with `connect` and `ask` runs four times: with our transport inside the official client and with the proxy before
the server, the answer whole and streamed.
"""

import json

import openai
import pytest
from configs import default_config
from scenes import QUESTION, WEATHER, WORDS

from promptools.client import OpenAI
from promptools.dialects.calls.argument_stream import MIN_STREAMED

CALL = ("get_weather", '{"city": "Paris"}')


def test_a_mode_that_keeps_failing_is_left_out_for_a_while(connect, ask, harmony_server):
    client = connect(harmony_server, fresh=True)
    told = [ask(client, harmony_server.name, "Break in Paris?", tools=[WEATHER]) for _ in range(6)]
    assert [got.calls for got in told] == [[CALL]] * 6
    assert len(told[0].attempts) == 2
    assert told[-1].attempts == [("harmony", "answered")]


def test_a_swallowed_call_is_healed(ask, harmony_server):
    # prompted, this model calls natively all the same, and the server drops it: then native mode is tried
    overrides = {"modes": ["prompt", "native"]}
    with OpenAI(config=default_config(harmony_server), overrides=overrides, max_retries=0, timeout=300) as client:
        got = ask(client, harmony_server.name, "Swallow in Paris?", tools=[WEATHER])
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")
    assert got.attempts == [("prompt", "swallowed"), ("native", "answered")]


def test_a_call_without_tools_is_what_the_model_wrote(connect, ask, harmony_server):
    """The server swallows it: an empty answer by itself (`test_llamacpp_alone`)."""
    got = ask(connect(harmony_server), harmony_server.name, "Swallow in Paris?")
    assert (got.calls, got.content, got.finish_reason) == ([], '{"city": "Paris"}', "stop")
    assert got.attempts == [("native", "swallowed"), ("harmony", "answered")]


def pieces(client, model, **keys):
    """Ask for a call with a long argument, streamed; return its arguments piece by piece, and how the reply ended."""
    asked = [{"role": "user", "content": "Cut in Paris?"}]
    shown, finish = [], None
    for chunk in client.chat.completions.create(model=model, messages=asked, tools=[WEATHER], stream=True, **keys):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            shown += [call.function.arguments for call in choice.delta.tool_calls or () if call.function.arguments]
    return shown, finish


def test_a_call_of_the_servers_comes_in_pieces_as_without_us(connect, hermes_server):
    with openai.OpenAI(base_url=hermes_server.base_url, api_key="none", max_retries=0) as bare:
        alone, _ = pieces(bare, hermes_server.name)
    ours, finish = pieces(connect(hermes_server), hermes_server.name)
    assert json.loads("".join(ours)) == json.loads("".join(alone))
    assert len(alone) - MIN_STREAMED <= len(ours) <= len(alone) + 2
    assert len(ours) > 3
    assert finish == "tool_calls"
    whole, _ = pieces(connect(hermes_server), hermes_server.name, extra_body={"promptools": {"arguments": "whole"}})
    assert len(whole) == 1


def test_a_call_that_was_cut_stays_open_as_without_us(connect, hermes_server):
    ours, finish = pieces(connect(hermes_server), hermes_server.name, max_tokens=60)
    assert finish == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads("".join(ours))


def test_while_a_call_is_written_in_the_text_there_are_comments(connect, hermes_server):
    keys = {"extra_body": {"promptools": {"mode": "prompt", "heartbeat": 1e-9}}}
    client = connect(hermes_server)
    assert json.loads("".join(pieces(client, hermes_server.name, **keys)[0]))["city"].startswith("Paris")
    asked = [{"role": "user", "content": "Cut in Paris?"}]
    with client.chat.completions.with_streaming_response.create(
        model=hermes_server.name, messages=asked, tools=[WEATHER], stream=True, **keys
    ) as raw:
        lines = list(raw.iter_lines())
    assert lines[0] == ": keep-alive"
    assert lines.count(": keep-alive") > 3


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("options", [{"arguments": "live"}, {"hold": "all"}])
def test_however_it_is_handed_over_it_is_the_same_call(connect, ask, hermes_server, mode, options):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], options={"mode": mode, **options})
    assert (got.calls, got.finish_reason) == ([CALL], "tool_calls")


def test_the_headers_tell_the_mode(connect, ask, hermes_server):
    got = ask(connect(hermes_server), hermes_server.name, QUESTION, tools=[WEATHER], options={"mode": "prompt"})
    assert got.headers["x-promptools-mode"] == "prompt"
    assert got.headers["x-promptools-attempts"] == "1"


def test_a_request_without_tools_passes_untouched(connect, hermes_server):
    client = connect(hermes_server)
    raw = client.chat.completions.with_raw_response.create(
        model=hermes_server.name, messages=[{"role": "user", "content": "Say words"}]
    )
    assert raw.parse().choices[0].message.content == WORDS
    assert "x-promptools-mode" not in raw.headers
    assert [model.id for model in client.models.list()] == [hermes_server.name]
