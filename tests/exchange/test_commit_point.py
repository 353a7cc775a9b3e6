"""What goes out of a stream when, and what a failure before and after the commit point looks like."""

import json
from dataclasses import replace

import pytest
from scripted import NOW, WEATHER, ask, error, event, logged, play, stream

from promptools.exchange import Failed, attempt
from promptools.fallback import Breaker
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
    assert seen.log == [logged("native", "harmony (HTTP 200); too much has gone to the client to begin again")]
    assert seen.reply.content == "H"
    assert seen.reply.trace.attempts[0].outcome == "harmony"


def test_a_stream_that_is_cut_before_the_commit_is_asked_again():
    seen = play(ask(WEATHER, stream=True), [stream(finish=None, done=False), stream("Hello")])
    assert seen.choice().content == "Hello"
    assert seen.reply.trace.attempts[0].outcome == "cut"


def test_a_stream_that_is_cut_after_the_commit_never_ends_cleanly():
    seen = play(ask(WEATHER, stream=True), [stream("Hello", finish=None, done=False)])
    assert in_band(seen)["code"] == "cut"


@pytest.mark.parametrize("said", ["Hello", start()])
def test_a_failure_after_the_commit_counts_for_the_breaker(said):
    # what the client has seen changes nothing about the server: the next request should not pay for it
    breaker = Breaker(threshold=1)
    long = args('{"city": "' + "P" * 64)
    play(ask(WEATHER, stream=True), [stream(said, long, finish=None, done=False)], breaker=breaker)
    assert list(breaker.states(100).values()) == ["open"]


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
    whole = {"promptools": {"arguments": "whole"}}
    seen = play(ask(WEATHER, stream=True, **whole), [stream(start(), *pieces, finish="tool_calls")])
    assert [d for d in deltas(seen) if "tool_calls" in d] == [
        {"tool_calls": [HEAD | {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]}
    ]


# -- calls that the server has parsed go out as they come


def streamed(seen):
    return [d["tool_calls"][0]["function"]["arguments"] for d in deltas(seen) if "tool_calls" in d]


def pieces(text, size=4, index=0):
    return [args(text[at : at + size], index) for at in range(0, len(text), size)]


def test_a_call_of_the_servers_goes_out_as_it_comes():
    text = '{"city": "Paris, on the Seine, below the bridge", "days": 3}'
    seen = play(ask(WEATHER, stream=True), [stream(start(), *pieces(text), finish="tool_calls")])
    sent = [d["tool_calls"][0] for d in deltas(seen) if "tool_calls" in d]
    assert sent[0] == HEAD
    assert all(each["index"] == 0 and "name" not in each["function"] for each in sent[1:])
    assert "".join(streamed(seen)) == text
    assert len(sent) > 6
    assert seen.choice().finish == ["tool_calls"]
    assert seen.done
    assert seen.reply.calls[0].fixes == ()


def test_the_pieces_come_when_the_servers_do():
    """The client has what has come so far, not what will have come at the end."""
    said = stream(start(), *pieces('{"city": "Paris, on the Seine, below the bridge"}'), finish="tool_calls")
    said.cut = 50
    seen = play(ask(WEATHER, stream=True), [said])
    assert len([each for each in seen.pieces if b"tool_calls" in each]) > 6


def test_what_does_not_fit_ends_the_pieces_and_is_mended():
    text = '{"city": "Paris, on the Seine, below the bridge", "days": "3"}'
    seen = play(ask(WEATHER, stream=True), [stream(start(), *pieces(text), finish="tool_calls")])
    assert json.loads(seen.choice().calls[0]["arguments"]) == {
        "city": "Paris, on the Seine, below the bridge",
        "days": 3,
    }
    assert [fix.kind for fix in seen.reply.calls[0].fixes] == ["coerce"]
    assert seen.done


def test_a_call_of_which_nothing_is_out_is_asked_for_again():
    wrong = stream(start(), *pieces('{"days": [3], "city": "Paris"}'), finish="tool_calls")
    right = stream(start(), args('{"city": "Paris"}'), finish="tool_calls")
    seen = play(ask(WEATHER, stream=True), [wrong, right])
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"}'


def test_a_short_call_keeps_its_second_try():
    for said in (pieces('{"city": "Par'), pieces('{"days": 3, "x": 1}')):
        right = stream(FENCED)
        seen = play(ask(WEATHER, stream=True), [stream(start(), *said, finish="stop"), right])
        assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"}'
        assert seen.done


def test_a_call_that_comes_whole_is_judged_whole():
    wrong = stream(start(), args('{"days": 3}'), finish="tool_calls")
    right = stream(start(), args('{"city": "Paris"}'), finish="tool_calls")
    seen = play(ask(WEATHER, stream=True), [wrong, right])
    assert [d["tool_calls"] for d in deltas(seen) if "tool_calls" in d] == [
        [HEAD | {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]
    ]


PLACED = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "place": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def test_a_call_that_turns_out_not_to_fit_is_what_the_server_gave():
    said = stream(start(), *pieces('{"days": 3, "place": "Paris, on the Seine", "more": 1}'), finish="tool_calls")
    seen = play(ask(PLACED, stream=True), [said])
    assert json.loads(seen.choice().calls[0]["arguments"]) == {"days": 3, "place": "Paris, on the Seine", "more": 1}
    assert seen.choice().finish == ["tool_calls"]
    assert seen.done
    (note,) = (each for each in seen.reply.trace.notes if "does not fit" in each)
    assert "'get_weather'" in note


def test_a_call_that_turns_out_not_to_fit_is_an_error_where_that_is_wanted():
    said = stream(start(), *pieces('{"days": 3, "place": "Paris, on the Seine", "more": 1}'), finish="tool_calls")
    seen = play(ask(PLACED, stream=True, promptools={"on_malformed": "error"}), [said])
    assert in_band(seen)["code"] == "malformed"
    assert seen.choice().calls[0]["arguments"] == '{"days": 3, "place": "Paris, on the Seine"'


def test_a_call_that_is_cut_off_stays_open_and_the_reply_says_length():
    said = stream(start(), *pieces('{"city": "Paris, on the Seine, below the br'), finish="length")
    seen = play(ask(WEATHER, stream=True), [said])
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris, on the Seine, below the br'
    assert seen.choice().content == ""
    assert seen.choice().finish == ["length"]
    assert seen.done
    assert seen.reply.calls == ()


def test_a_closer_that_the_server_lost_comes_at_the_end():
    seen = play(
        ask(WEATHER, stream=True),
        [stream(start(), *pieces('{"city": "Paris, on the Seine, below the bridge"'), finish="tool_calls")],
    )
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris, on the Seine, below the bridge"}'
    assert seen.reply.calls[0].fixes


@pytest.mark.parametrize("finish", [None, "stop"])
def test_a_stream_that_breaks_inside_a_call_never_ends_cleanly(finish):
    broken = (HARMONY,) if finish else ()
    said = stream(start(), *pieces('{"city": "Paris, on the Seine, below the br'), *broken, finish=None, done=False)
    seen = play(ask(WEATHER, stream=True), [said])
    assert in_band(seen)["code"] == ("harmony" if broken else "cut")
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris, on the Seine, below the br'


def test_a_call_in_an_errors_text_is_not_added_to_one_that_is_half_out():
    text = 'error parsing tool call: raw=\'{"city": "Paris, France"}\', err=invalid character'
    said = stream(
        start(),
        *pieces('{"city": "Paris, on the Seine, below the br'),
        event({"error": {"message": text}}),
        finish=None,
    )
    seen = play(ask(WEATHER, stream=True), [said])
    assert in_band(seen)
    assert len(seen.choice().calls) == 1
    before = stream(start(), args('{"ci'), event({"error": {"message": text}}), finish=None)
    seen = play(ask(WEATHER, stream=True), [before])
    assert json.loads(seen.choice().calls[0]["arguments"]) == {"city": "Paris, France"}
    assert seen.done


def test_two_calls_at_once_go_out_side_by_side():
    first, second = (
        '{"city": "Paris, on the Seine, below the bridge"}',
        '{"city": "Rome, on the Tiber, across the bridge"}',
    )
    mixed = [each for pair in zip(pieces(first), pieces(second, index=1), strict=True) for each in pair]
    said = stream(start(), start(index=1, call_id="xyz"), *mixed, finish="tool_calls")
    seen = play(ask(WEATHER, stream=True), [said])
    assert [each["id"] for each in seen.choice().calls.values()] == ["abc", "xyz"]
    assert [json.loads(each["arguments"])["city"][:4] for each in seen.choice().calls.values()] == ["Pari", "Rome"]
    one = play(ask(WEATHER, stream=True, parallel_tool_calls=False), [said])
    assert [each["id"] for each in one.choice().calls.values()] == ["abc"]
    assert one.done


STRICT = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("body", "live"),
    [
        (ask(WEATHER), True),
        (ask(WEATHER, NOW, tool_choice="required"), True),
        (ask(WEATHER, NOW, tool_choice=NAMED), True),
        (ask(STRICT), False),
        (ask(WEATHER, promptools={"hold": "all"}), False),
        (ask(WEATHER, promptools={"arguments": "whole"}), False),
        (ask(functions=[WEATHER["function"]]), False),
    ],
)
def test_when_it_goes_out_as_it_comes(body, live):
    said = stream(start(), *pieces('{"city": "Paris, on the Seine, below the bridge"}'), finish="tool_calls")
    seen = play({**body, "stream": True}, [said])
    sent = [d for d in deltas(seen) if "tool_calls" in d or "function_call" in d]
    assert (len(sent) > 1) is live
    assert seen.done


def test_a_call_in_text_is_whole_by_default():
    seen = play(ask(WEATHER, stream=True), [stream(*FENCED)])
    assert streamed(seen) == ['{"city": "Paris"}']


def test_a_call_that_stood_in_the_text_too_is_sent_once():
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    said = stream(text, start(), *pieces('{"city": "Paris"}'), finish="tool_calls")
    seen = play(ask(WEATHER, stream=True), [said])
    assert len(seen.choice().calls) == 1
    assert seen.done


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
    """A reader that says what it is told to, one list of events for each delta."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.reply = Reply()
        self.raw = ""
        self.may_stop = False

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
STARTED = CallStart(0, "abc", "get_weather", HERE, early=True)
ENDED = CallEnd(0, Call("abc", "get_weather", PARIS, '{"city": "Paris"}'), HERE)


def test_live_arguments_go_out_as_they_come(monkeypatch):
    steps = [], [STARTED], [CallArgs(0, '{"city": ', HERE)], [CallArgs(0, '"Paris"}', HERE)], [ENDED], []
    monkeypatch.setattr(attempt, "ReplyReader", lambda *_: Scripted(*steps))
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
    monkeypatch.setattr(attempt, "ReplyReader", lambda *_: Scripted(*steps))
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream("a", "b", "c", "never read", cut=200)])
    told = in_band(seen)
    assert told["type"] == "ModelError"
    assert "streamed" in told["message"]
    assert seen.choice().calls[0]["arguments"] == '{"city": '
    assert seen.abandoned == 1


@pytest.mark.parametrize(
    "whole", ["", '```json\n{"tool": "now", "arguments": {}}\n```\n'], ids=["alone", "behind a call"]
)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_reply_with_a_live_call_that_is_cut_off_never_ends_as_calls_to_be_run(whole, finish):
    cut = [whole, '```json\n{"tool": "get_weather", "arguments": ', '{"city": "Par']
    seen = play(ask(WEATHER, NOW, stream=True, **LIVE), [stream(*cut, finish=finish)])
    assert len(seen.choice().calls) == 1 + bool(whole)
    with pytest.raises(json.JSONDecodeError):
        json.loads(seen.choice().calls[bool(whole)]["arguments"])
    if whole and finish == "stop":
        assert "streamed" in in_band(seen)["message"]
    else:
        assert seen.choice().finish == ["length"]


def test_live_is_only_for_the_tool_that_was_named():
    named = {"type": "function", "function": {"name": "now"}}
    cut = ['```json\n{"tool": "get_weather", "arguments": ', '{"city": "Paris", "days": ']
    seen = play(ask(WEATHER, NOW, stream=True, tool_choice=named, **LIVE), [stream(*cut, finish="length")])
    assert seen.choice().calls == {}
    free = play(ask(WEATHER, NOW, stream=True, **LIVE), [stream(*cut, finish="length")])
    assert free.choice().calls[0]["arguments"] == '{"city": "Paris"'


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
    seen = play(ask(WEATHER, stream=True), [stream("Look:\n", "<think>", "\nHm.\n", "</think>", bad)])
    assert seen.choice().content == "Look:\n" + bad
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


def test_a_live_call_of_the_text_that_breaks_off_after_a_good_one():
    text = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\n```\n```json\n{"tool": "get_'
    seen = play(ask(WEATHER, stream=True, **LIVE), [stream(*text, 'weather", "arguments": {"city": "Par')])
    good, cut = seen.choice().calls.values()
    assert json.loads(good["arguments"]) == {"city": "Oslo"}
    assert not cut["arguments"].endswith("}")
    assert in_band(seen)["code"] == "malformed"
