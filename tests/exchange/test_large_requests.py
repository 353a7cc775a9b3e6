"""Requests with very many tools: prepared aside, and refused above the operator's limit."""

import json

import pytest
from scripted import WEATHER, Answer, call, play, reply

from promptools.exchange.state import LARGE_WORK

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def tools(number, description=""):
    function = {"description": description, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    return [{"type": "function", "function": {"name": f"tool_{n}", **function}} for n in range(number)]


def test_a_small_request_is_prepared_at_once():
    assert play({**HELLO, "tools": [WEATHER]}, [reply("hello")]).computed == 0


def test_all_that_a_large_request_costs_is_left_to_the_shell():
    seen = play({**HELLO, "tools": tools(500, "d" * 200)}, [reply("hello")])
    assert seen.reply.content == "hello"
    assert len(seen.sent[0].body) > LARGE_WORK
    assert seen.computed == 4  # read, prepared, written, encoded


def test_what_is_wrong_with_a_large_request_is_told_as_with_a_small_one():
    gone = {"type": "function", "function": {"name": "gone"}}
    seen = play({**HELLO, "tools": tools(500, "d" * 200), "tool_choice": gone}, [])
    assert seen.head.status == 400
    assert "tool_choice names 'gone'" in seen.json["error"]["message"]


def test_a_large_body_that_is_not_json_goes_on_as_it_is():
    body = b"{" * (LARGE_WORK + 1)
    seen = play(body, [Answer(400, b"{}")])
    assert seen.sent[0].body == body


@pytest.mark.parametrize("key", ["tools", "functions"])
def test_more_tools_than_the_operator_takes_are_refused(key):
    offered = tools(3)
    body = {**HELLO, key: [each["function"] for each in offered] if key == "functions" else offered}
    seen = play(body, [], max_tools=2)
    assert seen.head.status == 400
    assert seen.json["error"]["type"] == "UsageError"
    assert f"'{key}' holds 3 tools; at most 2" in seen.json["error"]["message"]
    assert "--max-tools" in seen.json["error"]["message"]
    assert play(body, [reply("hello")], max_tools=3).head.status == 200


def test_without_a_limit_any_number_is_taken():
    assert play({**HELLO, "tools": tools(5000)}, [reply("hello")]).head.status == 200


def test_tools_that_are_not_a_list_have_no_number():
    assert "must be a list" in json.dumps(play({**HELLO, "tools": {"a": 1}}, [], max_tools=0).json)


def test_a_call_whose_schema_explodes_is_handed_over_and_says_that_it_was_not_validated():
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    parameters = {"type": "object", "properties": {"v": {"$ref": "#/$defs/d0"}}, "$defs": doubling | {"d60": {}}}
    offered = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    for mode in ("native", "prompt"):
        said = (
            reply(calls=[call("f", '{"v": 5}')]) if mode == "native" else reply('{"tool": "f", "arguments": {"v": 5}}')
        )
        seen = play({**HELLO, "tools": offered, "promptools": {"mode": mode}}, [said])
        (found,) = seen.reply.calls
        assert (found.name, found.arguments_json) == ("f", '{"v": 5}')
        assert [fix.kind for fix in found.fixes] == ["unchecked"]
        assert len(seen.sent) == 1
    text = '{"name": "f", "parameters": {"v": 5}} it was'
    assert play({**HELLO, "tools": offered}, [reply(text)]).reply.content == text
