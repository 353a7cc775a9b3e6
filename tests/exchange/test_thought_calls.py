"""Structured calls that the server took out of a thought which the content opens, and does not close before them.

vLLM's parser `hermes` does so where no parser of reasoning runs. It drops what follows the call, so nothing shows that
the call ended the thought, as it may in a text: it is no call, and the reply is asked for again where its text is read.
"""

import pytest
from scripted import WEATHER, ask, play, reply, stream

CITY = "Paris, on the Seine, below the bridge"
CALL = ("get_weather", {"city": CITY})
HEAD = {"index": 0, "id": "abc", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
ARGUMENTS = '{"city": "Paris, on the Seine, below the bridge"}'
OPEN = ["<think>\nI could call it ", "<think>", "Well.\n<think>\n"]
CLOSED = ["<think>\nI call it.\n</think>\n\n", "I call it.</think>\n", "I say <think> in a line. ", ""]


def streamed(before, *after, size=6, finish="tool_calls"):
    words = [before[at : at + 3] for at in range(0, len(before), 3)]
    pieces = [ARGUMENTS[at : at + size] for at in range(0, len(ARGUMENTS), size)]
    call = [{"tool_calls": [HEAD]}, *({"tool_calls": [{"index": 0, "function": {"arguments": p}}]} for p in pieces)]
    return stream(*words, *call, *after, finish=finish)


def outcomes(seen):
    return [attempt.outcome for attempt in seen.reply.trace.attempts]


@pytest.mark.parametrize("content", OPEN[:2])
def test_whole_it_is_asked_again(content):
    seen = play(ask(WEATHER), [reply(content, calls=[CALL], finish="tool_calls"), reply("Four.")])
    assert ("tool_calls" in seen.message, seen.message["content"]) == (False, "Four.")
    assert outcomes(seen) == ["swallowed", "answered"]


@pytest.mark.parametrize("after", [(), (" but no.",), (" but no.", "</think>\n")])
@pytest.mark.parametrize("content", OPEN[:2])
def test_streamed_it_is_asked_again(content, after):
    seen = play(ask(WEATHER, stream=True), [streamed(content, *after), stream("Four.")])
    assert (seen.choice().calls, seen.choice().content, seen.choice().finish) == ({}, "Four.", ["stop"])
    assert outcomes(seen) == ["swallowed", "answered"]


@pytest.mark.parametrize("content", OPEN[:3])
def test_an_answer_behind_the_thought_is_the_answer(content):
    seen = play(ask(WEATHER, stream=True), [streamed(content, " but no.", "</think>", "\nFour.")])
    assert (seen.choice().calls, seen.choice().finish) == ({}, ["stop"])
    assert seen.choice().content.endswith("Four.")
    assert outcomes(seen) == ["answered"]
    (note,) = seen.reply.trace.notes
    assert note.startswith("the call of 'get_weather' was left out, as a part of a thought: {")


def test_a_call_behind_the_thought_is_a_call():
    again = {**HEAD, "index": 1, "id": "xyz", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    said = streamed(OPEN[0], " or Oslo?</think>", {"tool_calls": [again]})
    seen = play(ask(WEATHER, stream=True), [said])
    assert [call["arguments"] for call in seen.choice().calls.values()] == ['{"city": "Oslo"}']
    assert seen.choice().finish == ["tool_calls"]


@pytest.mark.parametrize("content", CLOSED)
def test_one_that_follows_a_closed_thought_stays(content):
    seen = play(ask(WEATHER), [reply(content, calls=[CALL], finish="tool_calls")])
    assert len(seen.message["tool_calls"]) == 1
    seen = play(ask(WEATHER, stream=True), [streamed(content)])
    assert [call["arguments"] for call in seen.choice().calls.values()] == [ARGUMENTS]
    assert outcomes(seen) == ["answered"]


@pytest.mark.parametrize("made", [CALL, ("get_weather", {"days": 3}), ("get_weather", "{"), ("nope", {})])
def test_with_no_other_mode_nothing_of_it_is_handed_over(made):
    said = reply(OPEN[0], calls=[made], finish="tool_calls")
    seen = play(ask(WEATHER, promptools={"mode": "native", "corrections": 0}), [said] * 3, spare=True)
    assert seen.json["error"]["code"] == "swallowed"
    assert "Paris" not in seen.body.decode()
