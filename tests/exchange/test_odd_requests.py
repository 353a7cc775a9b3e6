"""Requests with odd tools, the whole way: none is refused, each call comes back, and the trace says what was odd."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema.odd_schemas import odd_json, odd_schemas
from schema.odd_tools import ODD
from scripted import WEATHER, Answer, ask, play, reply, stream, target

from promptools.schema.documents import URIS

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
HARMONY = target(raw="completions", modes=("harmony",), family="gpt-oss", context=131_072)
PLACES = {"native": target(modes=("native",)), "prompt": target(modes=("prompt",)), "harmony": HARMONY}
TRACED = {"promptools": {"trace": True}}


def tool(parameters, **more):
    return {"type": "function", "function": {"name": "t", "description": "d", "parameters": parameters, **more}}


def answer(mode, arguments):
    """What a server says in a mode when the model calls the tool."""
    text = json.dumps(arguments)
    if mode == "native":
        return reply(calls=[("t", arguments)], finish="tool_calls")
    if mode == "prompt":
        return reply(f'```json\n{{"tool": "t", "arguments": {text}}}\n```')
    said = f"<|channel|>commentary to=functions.t <|constrain|>json<|message|>{text}<|call|>"
    choice = {"index": 0, "text": said, "finish_reason": "stop", "stop_reason": 200012}
    return Answer(200, json.dumps({"id": "c", "created": 7, "model": "m", "choices": [choice]}).encode())


def called(seen):
    assert seen.head.status == 200, seen.body
    (call,) = seen.message["tool_calls"]
    assert call["function"]["name"] == "t"
    return json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("mode", PLACES)
@pytest.mark.parametrize("row", ODD, ids=lambda row: row.name)
def test_a_call_of_an_odd_tool_comes_back_in_every_mode(row, mode):
    for arguments, becomes in row.takes:
        seen = play(ask(tool(row.schema), **TRACED), [answer(mode, arguments)], target=PLACES[mode])
        assert called(seen) == (arguments if becomes is None else becomes)
        assert seen.json["promptools"]["notes"][: len(row.notes)] == [f"the tool 't': {each}" for each in row.notes]
        if mode == "native" and row.schema is not None:
            assert seen.bodies[0]["tools"] == [tool(row.schema)]


@pytest.mark.parametrize("row", [row for row in ODD if row.refuses], ids=lambda row: row.name)
def test_what_does_not_fit_an_odd_tool_is_asked_again(row):
    seen = play(ask(tool(row.schema)), [answer("native", row.refuses[0]), reply("No.")], target=PLACES["native"])
    assert len(seen.sent) == 2
    assert seen.message["content"] == "No."


@pytest.mark.parametrize("mode", PLACES)
@MANY
@given(schema=odd_schemas | odd_json, uri=st.sampled_from([None, *URIS.values()]))
def test_whatever_the_parameters_are_the_request_goes_through_and_a_call_comes_back(mode, schema, uri):
    if isinstance(schema, dict) and uri:
        schema = {**schema, "$schema": uri}
    body = ask(tool(schema))
    seen = play(body, [answer(mode, {})] * 2, target=PLACES[mode], spare=True)
    assert seen.head.status == 200
    assert seen.message.get("tool_calls") or len(seen.sent) == 2  # it may well not fit what it was asked for
    text = json.dumps(body)
    if mode == "native" and schema is not None and "Infinity" not in text and "NaN" not in text:
        assert json.dumps(seen.bodies[0]["tools"]) == json.dumps(body["tools"])


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return {"type": "object", "properties": {"a": schema}}


@pytest.mark.parametrize("mode", PLACES)
@pytest.mark.parametrize("levels", [200, 390, 450])
def test_a_tool_that_is_too_deep_to_be_read_goes_on_as_it_came(mode, levels):
    given = tool(nested(levels))
    seen = play(ask(given, **TRACED), [answer(mode, {"a": 5})], target=PLACES[mode])
    assert called(seen) == {"a": 5}
    (note,) = [note for note in seen.json["promptools"]["notes"] if "too deeply" in note]
    assert note.startswith("the tool 't': ")
    if mode == "native":
        assert seen.bodies[0]["tools"] == [given]


def test_of_an_unread_tool_only_well_formed_json_is_a_call():
    broken = reply(calls=[("t", '{"a": ')], finish="tool_calls")
    seen = play(ask(tool(nested(450))), [broken], target=PLACES["native"])
    assert seen.message.get("tool_calls") is None


@pytest.mark.parametrize("mode", PLACES)
@pytest.mark.parametrize(
    "odd",
    ["a", None, 5, [], {}, {"type": "function"}, {"type": "function", "function": {"description": "no name"}},
     {"type": "function", "function": "t"}, {"name": ""}, tool({"properties": {"x": {"type": "integer"}}})],
)  # fmt: skip
def test_what_is_not_a_tool_or_one_too_many_hinders_no_call_of_the_others(odd, mode):
    body = ask(odd, tool({"properties": {"a": {"type": "integer"}}}), **TRACED)
    seen = play(body, [answer(mode, {"a": "5"})], target=PLACES[mode])
    assert called(seen) == {"a": 5}
    assert any("tools[0]" in note or "more than once" in note for note in seen.json["promptools"]["notes"])
    if mode == "native":
        assert odd in seen.bodies[0]["tools"]


def test_streamed_it_is_the_same():
    made = '```json\n{"tool": "t", "arguments": {"a": "5"}}\n```'
    body = ask(tool({"properties": {"a": "int"}, "required": None}), stream=True, **TRACED)
    seen = play(body, [stream(made, cut=7)], target=PLACES["prompt"])
    assert seen.choice().calls[0]["arguments"] == '{"a": 5}'
    assert "the tool 't': /required: None was left out" in seen.events[-1]["promptools"]["notes"]


def test_functions_of_the_old_form_beside_tools_are_left_out():
    body = {**ask(WEATHER, **TRACED), "functions": [{"name": "old"}]}
    seen = play(body, [reply("Hi.")], target=PLACES["native"])
    assert (seen.message["content"], "functions" in seen.bodies[0]) == ("Hi.", False)
    assert "'functions' was left out: it is the old form of 'tools'" in seen.json["promptools"]["notes"]


def test_an_odd_form_for_the_answer_is_no_reason_to_refuse():
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "str", "properties": []}}}
    place = target(modes=("prompt",), constrained="json_schema", constrained_ok=True)
    seen = play(ask(WEATHER, response_format=form), [reply('"hi"')], target=place)
    assert seen.head.status == 200


@pytest.mark.parametrize("choice", ["required", "none", "bogus", {"type": "function", "function": {"name": "t"}}])
@pytest.mark.parametrize("history", [False, True], ids=["chat", "results"])
def test_a_choice_among_no_tools_is_left_out(choice, history):
    """As llama.cpp and Ollama leave it out."""
    result = [{"role": "tool", "tool_call_id": "a", "content": "Sunny."}] if history else []
    body = ask(tool_choice=choice, **TRACED)
    seen = play({**body, "messages": [*body["messages"], *result]}, [reply("ok")])
    assert seen.message["content"] == "ok"
    assert "tool_choice" not in seen.bodies[0]
    assert any("no tool is offered" in note for note in seen.reply.trace.notes)
