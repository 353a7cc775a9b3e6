"""Answers in the form of `response_format`: which fit, which are calls, and which are asked for again."""

import json

import pytest

from promptools.modes.native_mode import prepare_native
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.response_format import format_error, without_tools
from promptools.modes.tool_request import parse_request
from promptools.modes.verdict import judge_reply
from promptools.profiles import Profile
from promptools.types import Reply
from promptools.wire.chat_decoder import Delta

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
SKY = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"], "additionalProperties": False}
OBJECT = {"type": "json_object"}
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
OSLO = [("get_weather", {"city": "Oslo"})]


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def ask(wanted, profile=None, **keys):
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER, PING], "response_format": wanted}
    return parse_request({**body, **keys}, profile or Profile())


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (form(SKY), '{"sky": "grey"}'),
        (form(SKY), ' {"sky": "grey"}\n'),
        (form({"type": "array", "items": {"type": "integer"}}), "[1, 2]"),
        (form({"enum": ["a", 1]}), "1"),
        (form({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}), "null"),
        (form({"type": "str", "properties": []}), '"an odd schema is read as far as it can be"'),
        (form({"$ref": "#/nowhere"}), "[]"),
        (form({}), '{"any": "object"}'),
        (OBJECT, "{}"),
        (OBJECT, '{"name": "get_weather"}'),
    ],
)
def test_answers_that_fit(wanted, text):
    assert format_error(ask(wanted), text) == ""


@pytest.mark.parametrize(
    ("wanted", "text", "why"),
    [
        (form(SKY), "It is grey.", "not JSON"),
        (form(SKY), "", "not JSON"),
        (form(SKY), '{"sky": "gr', "not JSON"),
        (form(SKY), '```json\n{"sky": "grey"}\n```', "not JSON"),
        (form(SKY), '{"sky": "grey"}{"sky": "grey"}', "not JSON"),
        (form(SKY), '{"sky": NaN}', "not JSON"),
        (form(SKY), '{"sky": 1}', "/sky"),
        (form(SKY), '{"sky": "grey", "more": 1}', "more"),
        (form(SKY), "{}", "sky"),
        (form(SKY), "[" * 100_000, "not JSON"),
        (form({"type": "string", "pattern": "^a"}), '"b"', "pattern"),
        (OBJECT, "[]", "not a JSON object"),
        (OBJECT, '"grey"', "not a JSON object"),
    ],
)
def test_answers_that_do_not(wanted, text, why):
    assert why in format_error(ask(wanted), text)


# --- calls in place of an answer


def read(request, text, finish="stop", cut=None):
    reader = ReplyReader(request, prepare_native(request), iter("abcdefgh").__next__)
    for start in range(0, len(text), cut or len(text)):
        reader.feed(Delta(content=text[start : start + (cut or len(text))]))
    reader.close(finish)
    return reader.reply


@pytest.mark.parametrize("cut", [None, 1, 5])
@pytest.mark.parametrize(
    ("wanted", "text", "rest"),
    [
        (OBJECT, CALL, ""),
        (OBJECT, f"\n{CALL}\n", ""),
        (OBJECT, f"[{CALL}]", ""),
        (OBJECT, f"```json\n{CALL}\n```", ""),
        (OBJECT, f"Let me look.\n```json\n{CALL}\n```", "Let me look."),
        (OBJECT, f"<tool_call>{CALL}</tool_call>", ""),
        (form(SKY), CALL, ""),
        (form(SKY), f"```json\n{CALL}\n```", ""),
        (form(SKY), CALL.replace("name", "tool"), ""),
        (form(SKY), f"<tool_call>{CALL}</tool_call>", ""),
    ],
)
def test_calls_by_the_names_of_offered_tools(wanted, text, rest, cut):
    reply = read(ask(wanted), text, cut=cut)
    assert [(call.name, call.arguments) for call in reply.calls] == OSLO
    assert (reply.content.strip(), reply.malformed) == (rest, ())


NAMED = {"type": "object", "properties": {"name": {}, "arguments": {}}}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (OBJECT, '{"city": "Oslo"}'),
        (OBJECT, '{"name": "get_weather"}'),
        (OBJECT, '{"name": "get_weather", "city": "Oslo"}'),
        (OBJECT, '{"name": "get_rain", "arguments": {"city": "Oslo"}}'),
        (OBJECT, '{"name": "get_weather", "arguments": {"town": "Oslo"}}'),
        (OBJECT, '{"plan": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}'),
        (OBJECT, '{"answer": "It is grey."}'),
        (OBJECT, "It is grey."),
        (form(SKY), '{"city": "Oslo"}'),
        (form(SKY), '{"sky": "grey"}'),
        (form(NAMED), '{"name": "no tool", "arguments": {"city": "Oslo"}}'),
    ],
)
def test_answers_are_not_calls(wanted, text):
    reply = read(ask(wanted), text)
    assert (reply.calls, reply.content, reply.malformed) == ((), text, ())


def test_an_envelope_that_fits_the_answers_own_schema_is_the_answer():
    assert read(ask(form(NAMED)), CALL).content == CALL


@pytest.mark.parametrize("keys", [{"tool_choice": "none"}, {"tools": []}])
def test_where_nothing_may_be_called_nothing_is(keys):
    assert read(ask(OBJECT, **keys), CALL).content == CALL


def test_what_the_server_holds_to_the_form_itself_is_left_to_it():
    request = ask(OBJECT, Profile(format_beside_tools=True))
    assert read(request, CALL).content == CALL
    verdict = judge_reply(request, Reply(content="It is grey.", finish_reason="stop"))
    assert (verdict.kind, verdict.retry_with_feedback) == ("format", False), "prose passes"


def test_a_call_that_was_cut_is_none():
    reply = read(ask(form(SKY)), CALL[:-10], "length")
    assert (reply.calls, [each.reason for each in reply.malformed]) in (((), []), ((), ["truncated"]))


# --- the verdict


def judge(content, wanted=None, finish="stop", **keys):
    return judge_reply(ask(wanted or form(SKY), **keys), Reply(content=content, finish_reason=finish), raw=content)


def test_an_answer_that_fits_is_one():
    assert judge('{"sky": "grey"}').ok


def test_one_that_does_not_is_asked_for_again_in_its_form_alone():
    verdict = judge("It is grey.")
    assert (verdict.kind, verdict.reply.content, verdict.retry_with_feedback, verdict.retry_elsewhere) == (
        "format",
        "It is grey.",
        True,
        False,
    )
    said, wish = verdict.feedback
    assert said == {"role": "assistant", "content": "It is grey."}
    assert json.dumps(SKY) in wish["content"]
    again = without_tools(ask(form(SKY)), verdict.feedback)
    body = prepare_native(again).body
    assert (body["response_format"], "tools" in body) == (form(SKY), False)
    assert body["messages"][1:] == [said, wish]
    answer = Reply(content='```\n{"sky": "grey"}\n```', finish_reason="stop")
    assert judge_reply(again, answer).reply.content == '{"sky": "grey"}'


def test_where_grammars_garble_the_model_words_alone_ask():
    harmony = Profile(constrained_ok=False)
    request = ask(form(SKY), harmony)
    verdict = judge_reply(request, Reply(content="It is grey.", finish_reason="stop"), raw="It is grey.")
    body = prepare_native(without_tools(request, verdict.feedback)).body
    assert not {"response_format", "tools"} & body.keys()
    assert json.dumps(SKY) in body["messages"][-1]["content"]
    again = without_tools(request, verdict.feedback)
    assert not judge_reply(again, Reply(content="{}", finish_reason="stop")).ok, "the form is known all the same"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_one_that_was_cut_would_be_cut_again(finish):
    assert judge('{"sky": "gr', finish=finish).ok


@pytest.mark.parametrize("keys", [{"tool_choice": "none"}, {"tools": []}, {"response_format": {"type": "text"}}])
def test_nothing_is_checked_where_no_call_may_come_or_no_form_is_asked_for(keys):
    assert judge("It is grey.", promptools={"heal_format": False}, **keys).ok
