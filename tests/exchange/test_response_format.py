"""`response_format` beside tools: calls stay possible, and what is no call comes in its form."""

import json

import pytest
from scripted import WEATHER, ask, error, play, reply, stream, target

from promptools.exchange.ollama_api import OLLAMA_API

SKY = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SKY}}
PROSE, FITS = "It is grey.", '{"sky": "grey"}'
ENVELOPE = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
MADE = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [MADE]}
HISTORY = [{"role": "user", "content": "hi"}, CALLED, {"role": "tool", "tool_call_id": "a", "content": "grey"}]


def asked(*, streamed=False, **keys):
    return ask(WEATHER, response_format=FORM, stream=streamed, **keys)


def answer(text, *, streamed, **keys):
    return stream(*text, **keys) if streamed else reply(text, **keys)


def content(seen, *, streamed):
    return seen.choice().content if streamed else seen.message["content"]


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_fits_is_asked_for_once(streamed, mode):
    seen = play(asked(streamed=streamed), [answer(FITS, streamed=streamed)], target=target(modes=(mode,)))
    assert content(seen, streamed=streamed) == FITS
    (sent,) = seen.bodies
    assert "response_format" not in sent
    assert json.dumps(SKY) in sent["messages"][0]["content"]


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("streamed", [False, True])
def test_one_that_does_not_is_asked_for_again_without_tools(streamed, mode):
    replies = [answer(text, streamed=streamed) for text in (PROSE, FITS)]
    body = {**asked(streamed=streamed), "messages": HISTORY}
    seen = play(body, replies, target=target(modes=(mode,)))
    assert content(seen, streamed=streamed) == FITS, "nothing of the first answer has gone out"
    first, again = seen.bodies
    assert (first.get("tools") is not None, "tools" in again) == (mode == "native", False)
    assert ("response_format" in first, again["response_format"]) == (False, FORM)
    assert again["messages"][-2] == {"role": "assistant", "content": PROSE}
    assert [(each.mode, each.outcome) for each in seen.reply.trace.attempts] == [(mode, "format"), (mode, "answered")]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_needs_no_form(streamed):
    words = f"Let me look.\n<tool_call>{ENVELOPE}</tool_call>"
    seen = play(asked(streamed=streamed), [answer(words, streamed=streamed)])
    assert [call.name for call in seen.reply.calls] == ["get_weather"]
    assert content(seen, streamed=streamed).strip() == "Let me look."
    assert seen.reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("form", [FORM, {"type": "json_object"}])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_envelope_is_a_call_and_its_text_does_not_go_out(streamed, form):
    body = {**asked(streamed=streamed), "response_format": form}
    seen = play(body, [answer(ENVELOPE, streamed=streamed)])
    assert [call.arguments for call in seen.reply.calls] == [{"city": "Paris"}]
    if streamed:
        assert (seen.choice().content, seen.choice().calls[0]["arguments"]) == ("", '{"city": "Paris"}')
        assert seen.choice().finish == ["tool_calls"]
    else:
        assert (seen.message["content"], len(seen.message["tool_calls"])) == (None, 1)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("second", [reply(PROSE), error("response_format is not supported", 400)])
def test_where_no_answer_fits_one_goes_out_all_the_same(second, streamed):
    second = stream(PROSE) if streamed and second.status == 200 else second
    seen = play(asked(streamed=streamed), [answer(PROSE, streamed=streamed), second])
    assert (seen.head.status, content(seen, streamed=streamed)) == (200, PROSE)


def test_thoughts_stream_on_while_the_answer_is_held():
    first = stream({"reasoning": "Hm."}, PROSE)
    seen = play(asked(streamed=True), [first, stream({"reasoning": "JSON."}, FITS)])
    assert (seen.choice().reasoning, seen.choice().content) == ("Hm.JSON.", FITS)


def test_each_choice_is_asked_for_by_itself():
    body = {**asked(), "n": 2}
    both = json.loads(reply(FITS).body)
    both["choices"].append({**both["choices"][0], "index": 1, "message": {"role": "assistant", "content": PROSE}})
    seen = play(body, [_of(both), reply(FITS)])
    assert [each["message"]["content"] for each in seen.json["choices"]] == [FITS, FITS]
    assert [each.get("n") for each in seen.bodies] == [2, None]


def _of(body):
    made = reply("")
    made.body = json.dumps(body).encode()
    return made


def test_a_server_that_holds_both_is_asked_for_both_at_once():
    seen = play(asked(), [reply(PROSE)] * 2, target=target(format_beside_tools=True))
    assert seen.message["content"] == PROSE
    assert "response_format" in seen.bodies[1], "asked for again as it was asked for"
    assert (seen.bodies[0]["response_format"], "tools" in seen.bodies[0]) == (FORM, True)


def test_ollama_gets_the_form_as_its_own():
    def line(text):
        made = reply("")
        told = {"model": "m", "message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop"}
        made.body = json.dumps(told).encode()
        return made

    body = {"model": "m", "messages": HISTORY[:1], "tools": [WEATHER], "format": SKY, "stream": False}
    seen = play(body, [line(PROSE), line(FITS)], target=target(wire="ollama"), front=OLLAMA_API)
    assert seen.json["message"]["content"] == FITS
    assert ("format" in seen.bodies[0], seen.bodies[1]["format"]) == (False, SKY)
