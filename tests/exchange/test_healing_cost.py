"""What attempts cost that failed and were followed by another: in the trace, its report and the header."""

from dataclasses import replace

import pytest
from scripted import NOW, WEATHER, ask, error, play, reply, stream

from promptools.types import Attempt, HealingCost, Trace

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
EMPTY = replace(reply("", usage={"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}), takes=2.5)
CRASHED = replace(error("error parsing tool call: raw"), takes=1.25)
ANSWER = replace(reply("ok", usage={"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}), takes=8.0)


def test_a_reply_that_was_not_used_costs_its_tokens_and_seconds():
    seen = play(ask(WEATHER, NOW, promptools={"trace": True}), [EMPTY, ANSWER])
    assert seen.reply.trace.healing == HealingCost(1, 3, 20, 2.5)
    assert seen.headers["x-promptools-healing"] == "requests=1, input-tokens=3, output-tokens=20, seconds=2.500"
    expected = {"requests": 1, "input_tokens": 3, "output_tokens": 20, "seconds": 2.5}
    assert seen.json["promptools"]["healing"] == expected


def test_an_error_costs_no_tokens():
    seen = play(ask(WEATHER), [CRASHED, replace(reply(FENCED), takes=1.0)])
    assert seen.headers["x-promptools-healing"] == "requests=1, input-tokens=0, output-tokens=0, seconds=1.250"


def test_a_first_answer_costs_nothing():
    seen = play(ask(WEATHER, promptools={"trace": True}), [ANSWER])
    assert seen.reply.trace.healing == HealingCost()
    assert "x-promptools-healing" not in seen.headers
    assert seen.json["promptools"]["healing"]["requests"] == 0


def test_a_stream_has_it_in_the_report_alone():
    body = ask(WEATHER, stream=True, promptools={"trace": True})
    seen = play(body, [CRASHED, stream(FENCED)])
    assert "x-promptools-healing" not in seen.headers
    expected = {"requests": 1, "input_tokens": 0, "output_tokens": 0, "seconds": 1.25}
    assert seen.events[-1]["promptools"]["healing"] == expected


def test_the_last_failure_would_have_been_without_us():
    seen = play(ask(WEATHER), [CRASHED, replace(error("out of memory"), takes=3.0)])
    assert seen.head.status >= 400
    assert seen.headers["x-promptools-attempts"] == "2"
    assert seen.headers["x-promptools-healing"] == "requests=1, input-tokens=0, output-tokens=0, seconds=1.250"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, (0, 0)),
        ({"prompt_tokens": None, "completion_tokens": "9"}, (0, 0)),
        ({"prompt_tokens": 9.0, "completion_tokens": float("inf")}, (9, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 2.5}, (0, 0)),
        ({"prompt_tokens": True, "completion_tokens": 10**30}, (0, 0)),
    ],
)
def test_counts_of_tokens_as_servers_write_them(usage, tokens):
    failed = Attempt("native", 200, "empty", "", 1.0, usage)
    cost = Trace(attempts=(failed, Attempt("prompt", 200, "answered", ""))).healing
    assert (cost.input_tokens, cost.output_tokens) == tokens
    assert cost.requests == 1


def test_choices_that_were_asked_for_one_by_one_are_not_failures():
    answered = Attempt("native", 200, "answered", "", 1.0, {"prompt_tokens": 5})
    assert HealingCost.of((answered, answered)) == HealingCost()
