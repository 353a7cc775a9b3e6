"""What goes out of a stream when, and what a failure before and after the commit point looks like."""

import json
from dataclasses import replace

import pytest
from scripted import NOW, WEATHER, ask, error, event, play, stream

from promptools.exchange import Failed
from promptools.exchange.registry import MODES
from promptools.modes.mode import Upstream
from promptools.parsing.events import CallArgs, CallEnd, CallStart
from promptools.types import Call, Malformed, Reply, Span

PARIS = {"city": "Paris"}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
HARMONY = event({"error": {"message": "Unexpected token 12 while expecting start token 200006", "code": 500}})
HEAD = {"index": 0, "id": "abc", "type": "function", "function": {"name": "get_weather", "arguments": ""}}


def args(text, index=0):
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def start(name="get_weather", index=0, call_id="abc"):
    return {"tool_calls": [HEAD | {"index": index, "id": call_id, "function": {"name": name, "arguments": ""}}]}


def deltas(seen):
    return [c["delta"] for c in seen.choice().chunks]


def in_band(seen):
    """Give the error that ends a stream, which must have no clean end."""
    assert not seen.done
    assert seen.lines[-3] == "event: error"
    assert not seen.choice().finish
    return seen.events[-1]["error"]


def test_role_and_reasoning_do_not_commit_and_a_later_attempts_reasoning_follows():
    seen = play(
        ask(WEATHER, stream=True),
        [stream({"reasoning": "Need it. "}, HARMONY, finish=None), stream({"reasoning": "Again. "}, FENCED)],
    )
    said = seen.choice()
    assert said.reasoning == "Need it. Again. "
    assert said.roles == ["assistant"]
    assert said.calls[0]["name"] == "get_weather"
    assert said.finish == ["tool_calls"]
    assert seen.headers["x-promptools-mode"] == "native"
    assert seen.comments == ["promptools mode=prompt attempts=2"]
    assert seen.abandoned == 1


@pytest.mark.parametrize(
    ("said", "content"),
    [(["Hi"], ""), ([start(), args('{"city": "Paris"}')], None), ([{"reasoning": "Hm."}, "Hi"], None)],
)
def test_the_first_chunk_has_empty_content_only_where_text_follows(said, content):
    # an empty string begins a text part in Vercel's AI SDK, and an empty part is shown
    seen = play(ask(WEATHER, stream=True), [stream(*said)])
    assert deltas(seen)[0] == {"role": "assistant", "content": content}


def test_blank_content_does_not_commit():
    seen = play(ask(WEATHER, stream=True), [stream("\n", " \n", HARMONY, finish=None), stream("Hello")])
    assert seen.choice().content == "Hello"


def test_after_the_first_character_a_failure_is_an_error_event():
    seen = play(ask(WEATHER, stream=True), [stream("H", HARMONY, finish=None)])
    told = in_band(seen)
    assert told["code"] == "harmony"
    assert told["attempts"][0]["outcome"] == "harmony"
    assert seen.comments == ["promptools mode=native attempts=1"]
    assert seen.log == [
        "send 1 in native mode failed: harmony (HTTP 200); too much has gone to the client to begin again"
    ]
    assert seen.reply.content == "H"
    assert seen.reply.trace.attempts[0].outcome == "harmony"


def test_a_stream_that_is_cut_before_the_commit_is_asked_again():
    seen = play(ask(WEATHER, stream=True), [stream(finish=None, done=False), stream("Hello")])
    assert seen.choice().content == "Hello"
    assert seen.reply.trace.attempts[0].outcome == "cut"


def test_a_stream_that_is_cut_after_the_commit_never_ends_cleanly():
    seen = play(ask(WEATHER, stream=True), [stream("Hello", finish=None, done=False)])
    assert in_band(seen)["code"] == "cut"


def test_a_connection_that_breaks_after_the_commit():
    answer = stream("Hello", finish=None, done=False)
    answer.broken = Failed("closed", "peer closed", 0.0, ConnectionError("x"))
    seen = play(ask(WEATHER, stream=True), [answer])
    assert in_band(seen)["code"] == "cut"


def test_a_complete_valid_call_commits():
    answer = stream(start(), args('{"city": "Paris"}'), start("now", 1, "xyz"), args("{}", 1), HARMONY, finish=None)
    seen = play(ask(WEATHER, NOW, stream=True), [answer])
    assert seen.choice().calls == {0: {"id": "abc", "name": "get_weather", "arguments": '{"city": "Paris"}'}}
    assert in_band(seen)["code"] == "harmony"


def test_half_a_call_does_not_commit():
    seen = play(ask(WEATHER, stream=True), [stream(start(), args('{"ci'), HARMONY, finish=None), stream(FENCED)])
    assert seen.choice().calls == {0: {"id": "id0000000", "name": "get_weather", "arguments": '{"city": "Paris"}'}}


def test_calls_go_out_whole():
    pieces = [args(piece) for piece in ('{"ci', 'ty": "Pa', 'ris"}')]
    seen = play(ask(WEATHER, stream=True), [stream(start(), *pieces, finish="tool_calls")])
    assert [d for d in deltas(seen) if "tool_calls" in d] == [
        {"tool_calls": [HEAD | {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]}
    ]


# -- the swallow checks hold the finish chunk


@pytest.mark.parametrize(
    ("finish", "extra"),
    [("stop", {"stop_reason": 200012}), ("tool_calls", {}), ("stop", {})],
)
def test_a_swallowed_stream_is_asked_again(finish, extra):
    lost = stream({"reasoning": "Need the tool."}, finish=finish, **extra)
    seen = play(ask(WEATHER, stream=True), [lost, stream(FENCED)])
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert seen.choice().finish == ["tool_calls"]
    assert seen.reply.trace.attempts[0].outcome == "swallowed"


def test_a_call_that_is_lost_after_content_is_an_error():
    seen = play(ask(WEATHER, stream=True), [stream("I'll look.", stop_reason=200012)])
    assert in_band(seen)["code"] == "swallowed"


def test_calls_spoken_of_after_content_but_not_sent_end_as_content():
    seen = play(ask(WEATHER, stream=True), [stream("It is sunny.", finish="tool_calls")])
    assert seen.choice().finish == ["stop"]
    assert seen.done
    assert any("empty_calls" in note for note in seen.reply.trace.notes)


# -- required and named


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_content_is_held_while_a_call_is_required(choice):
    seen = play(
        ask(WEATHER, NOW, stream=True, tool_choice=choice),
        [stream("I would rather talk."), stream("Well: ", start(), args(json.dumps(PARIS)), finish="tool_calls")],
    )
    assert seen.choice().content == "Well: "
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert [each.outcome for each in seen.reply.trace.attempts] == ["choice", "answered"]
    feedback = seen.bodies[1]["messages"][-2:]
    assert feedback[0] == {"role": "assistant", "content": "I would rather talk."}
    assert "get_weather" in feedback[1]["content"]


def test_a_call_of_another_tool_than_the_named_one_is_not_handed_over():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    wrong = stream(start("now"), args("{}"), finish="tool_calls")
    right = stream(start(), args(json.dumps(PARIS)), finish="tool_calls")
    seen = play(ask(WEATHER, NOW, stream=True, tool_choice=choice), [wrong, right])
    assert [each["name"] for each in seen.choice().calls.values()] == ["get_weather"]


def test_required_and_never_met_ends_as_content():
    talk = [stream("No."), stream("No!"), stream("Never.")]
    seen = play(ask(WEATHER, stream=True, tool_choice="required"), talk)
    assert seen.choice().content == "Never."
    assert seen.choice().finish == ["stop"]
    assert seen.done
    assert [each.mode for each in seen.reply.trace.attempts] == ["native", "native", "prompt"]


# -- hold="all"


def test_hold_all_holds_everything():
    seen = play(
        ask(WEATHER, stream=True, promptools={"hold": "all"}),
        [stream({"reasoning": "Hm. "}, "Hello", HARMONY, finish=None), stream({"reasoning": "Oh. "}, "Look: ", FENCED)],
    )
    said = seen.choice()
    assert said.reasoning == "Oh. "
    assert said.content == "Look:"
    assert said.calls[0]["name"] == "get_weather"
    assert seen.headers["x-promptools-mode"] == "prompt"


# -- arguments="live"

LIVE = {"promptools": {"arguments": "live", "mode": "prompt"}}


class Scripted:
    """A mode whose reader says what it is told to, one list of events for each delta."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.reply = Reply()
        self.raw = ""

    def body(self, ask):
        return Upstream({})

    def reader(self, ask, upstream, new_id):
        return self

    def feed(self, delta):
        events = self.steps.pop(0)
        for each in events:
            if isinstance(each, CallEnd):
                self.reply = replace(self.reply, calls=(each.call,))
            if isinstance(each, Malformed):
                self.reply = replace(self.reply, malformed=(each,))
        return events

    def close(self, finish_reason):
        self.reply = replace(self.reply, finish_reason=finish_reason)
        return []


HERE = Span(0, 0)
STARTED = CallStart(0, "abc", "get_weather", HERE)
ENDED = CallEnd(0, Call("abc", "get_weather", PARIS, '{"city": "Paris"}'), HERE)


def test_live_arguments_go_out_as_they_come(monkeypatch):
    steps = [], [STARTED], [CallArgs(0, '{"city": ', HERE)], [CallArgs(0, '"Paris"}', HERE)], [ENDED], []
    monkeypatch.setitem(MODES, "prompt", Scripted(*steps))
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream("a", "b", "c", "d", finish="tool_calls")])
    assert [d["tool_calls"][0] for d in deltas(seen) if "tool_calls" in d] == [
        HEAD,
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Paris"}'}},
    ]
    assert seen.choice().finish == ["tool_calls"]
    assert seen.done


def test_a_live_call_that_fails_ends_in_an_error_with_its_json_left_open(monkeypatch):
    failed = Malformed(0, '{"city": 1', "invalid_json", "no", HERE, name="get_weather")
    steps = [], [STARTED], [CallArgs(0, '{"city": ', HERE)], [failed]
    monkeypatch.setitem(MODES, "prompt", Scripted(*steps))
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream("a", "b", "c", "never read", cut=200)])
    told = in_band(seen)
    assert told["type"] == "ModelError"
    assert "streamed" in told["message"]
    assert seen.choice().calls[0]["arguments"] == '{"city": '
    assert seen.abandoned == 1


def test_live_is_only_for_the_tool_that_was_named(monkeypatch):
    named = {"type": "function", "function": {"name": "now"}}
    monkeypatch.setitem(MODES, "prompt", Scripted([], [STARTED], [CallArgs(0, "{", HERE)], []))
    seen = play(ask(WEATHER, NOW, stream=True, tool_choice=named, **LIVE), [stream("a", "b", finish="length")])
    assert seen.choice().calls == {}


def test_live_arguments_of_the_real_parser():
    pieces = ['```json\n{"tool": "get_weather", "arguments": ', '{"city": "Par', 'is"}', "}\n```"]
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream(*pieces)])
    sent = [d["tool_calls"][0] for d in deltas(seen) if "tool_calls" in d]
    assert sent[0] == HEAD | {"id": "id0000000"}
    assert json.loads(seen.choice().calls[0]["arguments"]) == PARIS
    assert seen.choice().finish == ["tool_calls"]
    assert len(seen.reply.calls) == 1


def test_a_strict_tool_is_never_live():
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    pieces = ['```json\n{"tool": "get_weather", "arguments": ', '{"city": "Par', 'is"}', "}\n```"]
    seen = play(ask(strict, stream=True, **LIVE), [stream(*pieces)])
    assert len([d for d in deltas(seen) if "tool_calls" in d]) == 1
    assert seen.choice().calls[0]["name"] == "get_weather"


def test_live_and_the_old_form_give_one_whole_call():
    pieces = ['```json\n{"tool": "get_weather", "arguments": ', '{"city": "Par', 'is"}', "}\n```"]
    seen = play(ask(functions=[WEATHER["function"]], stream=True, **LIVE), [stream(*pieces)])
    assert [d["function_call"] for d in deltas(seen) if "function_call" in d] == [
        {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    ]
    assert seen.choice().finish == ["function_call"]


# -- thoughts that looked like content


def test_text_that_turns_out_to_be_reasoning_is_sent_as_such_while_it_is_held():
    seen = play(ask(WEATHER, stream=True, tool_choice="required"), [stream("I need it.", "</think>", FENCED)])
    assert seen.choice().reasoning == "I need it."
    assert seen.choice().content == ""
    assert seen.choice().calls[0]["name"] == "get_weather"


def test_text_that_went_out_before_it_turned_out_to_be_reasoning_stays_out():
    seen = play(ask(WEATHER, stream=True), [stream("I need it.", "</think>", FENCED)])
    assert seen.choice().content == "I need it."
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert seen.reply.reasoning == "I need it."


# -- malformed after the commit


def test_a_malformed_call_after_content_becomes_content_byte_for_byte():
    raw = 'Look:\n```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```\n'
    seen = play(ask(WEATHER, stream=True), [stream(raw[:9], raw[9:30], raw[30:])])
    assert seen.choice().content == raw
    assert seen.choice().calls == {}
    assert seen.choice().finish == ["stop"]
    assert seen.done
    assert seen.reply.content == raw
    assert seen.reply.malformed


def test_thoughts_inside_content_are_no_part_of_it():
    bad = '```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```'
    seen = play(ask(WEATHER, stream=True), [stream("Look: ", "<think>", "Hm.", "</think>", bad)])
    assert seen.choice().content == "Look: " + bad
    assert seen.choice().reasoning == "Hm."


def test_a_valid_call_beside_a_malformed_one_is_handed_over():
    bad = '```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```\n'
    for text in (bad + FENCED, FENCED + "\n" + bad, "Look: \n" + bad + FENCED):
        seen = play(ask(WEATHER, stream=True), [stream(*text)])
        assert [each["arguments"] for each in seen.choice().calls.values()] == ['{"city": "Paris"}']
        assert seen.choice().finish == ["tool_calls"]
        assert len(seen.reply.malformed) == 1
        assert "days" not in seen.choice().content


def test_an_error_mid_stream_that_is_no_ones_business_comes_in_band():
    seen = play(ask(WEATHER, stream=True), [stream({"reasoning": "Hm."}, event({"error": "disk full"}), finish=None)])
    assert in_band(seen)["code"] == "refused"


def test_a_refused_stream_is_plain_http():
    refusal = error("model not found", 404)
    seen = play(ask(WEATHER, stream=True), [refusal])
    assert seen.head.status == 404
    assert seen.body == refusal.body


def test_a_live_call_of_the_real_parser_that_fails():
    text = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris", "days": "many"}}\n```'
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream(*text)])
    assert in_band(seen)["code"] == "malformed"
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"'
