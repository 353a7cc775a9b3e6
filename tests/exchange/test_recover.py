"""Calls read out of a server's error text, with no second generation."""

import json

import pytest
from scripted import NOW, WEATHER, ask, error, event, play, reply, stream

TEMPERATURE = {
    "type": "function",
    "function": {
        "name": "set_temperature",
        "parameters": {
            "type": "object",
            "properties": {"degrees": {"type": "number"}},
            "required": ["degrees"],
            "additionalProperties": False,
        },
    },
}
DANGEROUS = {"type": "function", "x-promptools": {"dangerous": True}, "function": WEATHER["function"]}


def raw(text, tail="invalid character 'P' looking for beginning of value"):
    return error(f"error parsing tool call: raw='{text}', err={tail}")


def given(seen):
    (one,) = seen.message["tool_calls"]
    return one["function"]["name"], one["function"]["arguments"]


def test_the_only_tool_gets_the_arguments():
    seen = play(ask(WEATHER), [raw('{"city": "Paris",}')])
    assert given(seen) == ("get_weather", '{"city": "Paris"}')
    assert seen.json["choices"][0]["finish_reason"] == "tool_calls"
    assert len(seen.sent) == 1
    assert {fix.kind for fix in seen.reply.calls[0].fixes} == {"json", "infer"}
    assert "the call was read out of the server's error text" in seen.reply.trace.notes
    assert seen.reply.trace.attempts[0].outcome == "server_parser"
    assert seen.headers["x-promptools-mode"] == "native"


def test_the_named_tool_gets_them():
    named = {"type": "function", "function": {"name": "get_weather"}}
    seen = play(ask(WEATHER, NOW, tool_choice=named), [raw('{"city": "Paris"}')])
    assert given(seen) == ("get_weather", '{"city": "Paris"}')
    assert [fix.kind for fix in seen.reply.calls[0].fixes] == ["infer"]


def test_the_only_tool_that_fits_gets_them():
    seen = play(ask(WEATHER, TEMPERATURE), [raw('{"degrees": 21}')])
    assert given(seen) == ("set_temperature", '{"degrees": 21}')


def test_a_stray_bracket_after_them_is_a_fix():
    seen = play(ask(WEATHER), [raw('{"city": "Paris"}]')])
    assert given(seen) == ("get_weather", '{"city": "Paris"}')
    assert {fix.kind for fix in seen.reply.calls[0].fixes} == {"closer", "infer"}


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ([DANGEROUS], '{"city": "Paris"}'),
        ([DANGEROUS, NOW], '{"city": "Paris"}'),
        ([WEATHER, NOW], '{"town": "Paris"}'),
        ([WEATHER], '{"days": 3}'),
        ([WEATHER], '{"city": "Par'),
        ([WEATHER], '{"city": Paris}'),
        ([WEATHER], "ls -R"),
        ([WEATHER], '["Paris"]'),
        ([WEATHER], '{"city": "Paris"} and more'),
        ([WEATHER], ""),
    ],
    ids=["dangerous", "dangerous fits", "fits none", "invalid", "cut", "no JSON", "words", "a list", "more", "empty"],
)
def test_what_is_not_certain_is_not_used(tools, text):
    seen = play(ask(*tools), [raw(text), reply("ok")])
    assert seen.message["content"] == "ok"
    assert [each.mode for each in seen.reply.trace.attempts] == ["native", "prompt"]


def test_never_under_tool_choice_none():
    seen = play(ask(WEATHER, tool_choice="none"), [raw('{"city": "Paris"}'), reply("ok")])
    assert "tool_calls" not in seen.message


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def test_a_reply_inside_the_error_is_read_as_a_reply():
    seen = play(ask(WEATHER), [error(f"Failed to parse input at pos 0: Let me look.\n{CALL}")])
    assert given(seen) == ("get_weather", '{"city": "Paris"}')
    assert seen.message["content"] == "Let me look."


def test_a_reply_without_a_call_is_not_an_answer():
    seen = play(ask(WEATHER), [error("Failed to parse input at pos 5: hello"), reply("ok")])
    assert seen.message["content"] == "ok"


def test_an_error_without_the_models_words():
    text = "The model produced output that does not match the expected peg-native format"
    seen = play(ask(WEATHER), [error(text), reply("ok")])
    assert seen.message["content"] == "ok"


def test_in_a_stream_what_came_before_the_error_stands():
    failure = event({"error": {"message": f"Failed to parse input at pos 13: {CALL}", "code": 500}})
    seen = play(ask(WEATHER, stream=True), [stream({"reasoning": "Hm."}, "Let me look.\n", failure, finish=None)])
    said = seen.choice()
    assert said.reasoning == "Hm."
    assert said.content.strip() == "Let me look."
    assert json.loads(said.calls[0]["arguments"]) == {"city": "Paris"}
    assert said.finish == ["tool_calls"]
    assert seen.done
    assert seen.reply.reasoning == "Hm."
    assert seen.comments == ["promptools mode=native attempts=1"]


def test_in_a_stream_after_thoughts_alone():
    line = json.dumps({"error": 'error parsing tool call: raw=\'{"city": "Paris",}\', err=x'}).encode()
    seen = play(ask(WEATHER, stream=True), [stream({"reasoning": "Hm."}, line + b"\n\n", finish=None, done=False)])
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert seen.choice().reasoning == "Hm."


def test_one_call_without_parallel_tool_calls():
    failure = error(f"Failed to parse input at pos 0: {CALL}\n{CALL.replace('Paris', 'Rome')}")
    seen = play(ask(WEATHER, parallel_tool_calls=False), [failure])
    assert given(seen) == ("get_weather", '{"city": "Paris"}')


def test_a_call_of_another_tool_than_the_named_one_is_not_used():
    named = {"type": "function", "function": {"name": "now"}}
    failure = error(f"Failed to parse input at pos 0: {CALL}")
    seen = play(
        ask(WEATHER, NOW, tool_choice=named), [failure, reply('```json\n{"tool": "now", "arguments": {}}\n```')]
    )
    assert given(seen)[0] == "now"
