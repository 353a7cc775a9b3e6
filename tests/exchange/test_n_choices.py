"""Several choices: in one send where the server heeds `n`, in as many sends where it does not."""

import json

import pytest
from scripted import NOW, SSE, WEATHER, Answer, ask, call, chunk, error, logged, play, reply, stream, target

GOOD = ("get_weather", {"city": "Paris"})
HARMONY = error("Unexpected token 1 while expecting start token 200006")


def several(*messages):
    choices = [
        {"index": i, "message": {"role": "assistant", **each}, "finish_reason": "stop"}
        for i, each in enumerate(messages)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 9}
    return Answer(200, json.dumps({"id": "x", "choices": choices, "usage": usage}).encode())


def contents(seen):
    return [(each["index"], each["message"]["content"]) for each in seen.json["choices"]]


def test_together_where_the_server_heeds_n():
    seen = play(ask(WEATHER, n=3), [several({"content": "a"}, {"content": "b"}, {"content": "c"})])
    assert contents(seen) == [(0, "a"), (1, "b"), (2, "c")]
    assert seen.bodies[0]["n"] == 3
    assert [each.content for each in seen.replies] == ["a", "b", "c"]
    assert seen.reply == seen.replies[0]


def test_one_by_one_where_it_does_not():
    where = target(n=False)
    seen = play(ask(WEATHER, n=2), [reply("a"), reply(None, calls=[GOOD], finish="tool_calls")], target=where)
    assert contents(seen) == [(0, "a"), (1, None)]
    assert [each["finish_reason"] for each in seen.json["choices"]] == ["stop", "tool_calls"]
    assert all("n" not in each for each in seen.bodies)
    assert seen.json["usage"]["completion_tokens"] == 18
    assert seen.headers["x-promptools-attempts"] == "2"


def test_one_by_one_in_a_stream():
    seen = play(ask(WEATHER, n=2, stream=True), [stream("a"), stream("b")], target=target(n=False))
    assert seen.choice(0).content == "a"
    assert seen.choice(1).content == "b"
    assert seen.choice(0).finish == seen.choice(1).finish == ["stop"]
    assert seen.choice(1).roles == ["assistant"]
    assert {each["id"] for each in seen.events} == {"c"}
    assert seen.done
    assert seen.body.count(b"[DONE]") == 1


def test_a_choice_that_failed_is_asked_for_alone():
    bad = {"content": None, "tool_calls": [call("get_weather", {"days": 1})]}
    seen = play(
        ask(WEATHER, NOW, n=3),
        [several({"content": "a"}, bad, {"content": "c"}), reply(calls=[GOOD], finish="tool_calls")],
    )
    assert contents(seen) == [(0, "a"), (1, None), (2, "c")]
    assert seen.json["choices"][1]["message"]["tool_calls"] == [call(*GOOD)]
    assert "n" not in seen.bodies[1]
    assert [each.outcome for each in seen.reply.trace.attempts] == ["malformed", "answered"]


def test_a_choice_that_failed_and_nothing_mends_is_content():
    empty = {"content": ""}
    seen = play(ask(WEATHER, n=2), [several({"content": "a"}, empty), reply(""), reply("b")])
    assert contents(seen) == [(0, "a"), (1, "b")]
    seen = play(ask(WEATHER, n=2), [several({"content": "a"}, empty), reply(""), reply("")])
    assert seen.head.status == 502
    assert [each.content for each in seen.replies] == ["a", ""]


def test_streamed_together():
    body = b"".join(
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "a"}),
            chunk({"content": "b"}, index=1),
            chunk({}, "stop", index=1),
            chunk({"content": "A"}),
            chunk({"content": "stray"}, index=7),
            chunk({}, "stop"),
            b"data: [DONE]\n\n",
        ]
    )
    seen = play(ask(WEATHER, n=2, stream=True), [Answer(200, body, SSE)])
    assert seen.choice(0).content == "aA"
    assert seen.choice(1).content == "b"
    assert b"stray" not in seen.body


def test_a_send_that_fails_fails_for_all_and_is_made_again_for_all():
    seen = play(ask(WEATHER, n=2), [HARMONY, several({"content": "a"}, {"content": "b"})])
    assert contents(seen) == [(0, "a"), (1, "b")]
    assert seen.bodies[1]["n"] == 2
    seen = play(ask(WEATHER, n=2), [HARMONY] * 3)
    assert seen.json["error"]["type"] == "Exhausted"


def test_one_of_several_sends_that_fails_for_good():
    seen = play(ask(WEATHER, n=2), [reply("a"), error("no", 404)], target=target(n=False))
    assert seen.head.status == 404


def test_each_failure_is_told_of_the_send_that_failed():
    bad = {"content": None, "tool_calls": [call("get_weather", {"days": 1})]}
    seen = play(ask(WEATHER, NOW, n=2), [several(bad, bad), reply("a"), reply("b")])
    assert contents(seen) == [(0, "a"), (1, "b")]
    assert [each.outcome for each in seen.reply.trace.attempts] == ["malformed", "answered", "answered"]
    assert seen.log == [logged("native", "malformed (HTTP 200); the model is asked to correct it")] * 2


SPENT = [{"prompt_tokens": 1, "completion_tokens": tokens} for tokens in (2, 50)]


@pytest.mark.parametrize("usage", [*SPENT, {"prompt_tokens": 1}])
def test_a_choice_that_was_never_sent_is_asked_for_in_the_same_mode(usage):
    answers = [reply(each, usage=usage) for each in "abc"]
    seen = play(ask(WEATHER, n=3), answers)
    assert contents(seen) == [(0, "a"), (1, "b"), (2, "c")]
    assert [each.get("n") for each in seen.bodies] == [3, None, None]
    assert all(each["tools"] for each in seen.bodies)
    attempts = [(each.mode, each.outcome) for each in seen.reply.trace.attempts]
    assert attempts == [("native", "answered")] * 3
    assert "the server sent 1 of 3 choices: the others were asked for one by one" in seen.reply.trace.notes
    assert seen.log == []


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("usage", [*SPENT, None])
def test_the_same_in_a_stream(usage, done):
    answers = [stream(each, usage=usage, done=done) for each in "abc"]
    seen = play(ask(WEATHER, n=3, stream=True), answers)
    assert [seen.choice(index).content for index in range(3)] == ["a", "b", "c"]
    assert [seen.choice(index).finish for index in range(3)] == [["stop"]] * 3
    assert [each.get("n") for each in seen.bodies] == [3, None, None]
    assert {each.mode for each in seen.reply.trace.attempts} == {"native"}


def test_one_choice_that_failed_beside_one_that_was_never_sent():
    bad = {"content": None, "tool_calls": [call("get_weather", {"days": 1})]}
    seen = play(ask(WEATHER, n=3), [several({"content": "a"}, bad), reply(calls=[GOOD]), reply("c")])
    assert contents(seen) == [(0, "a"), (1, None), (2, "c")]
    assert [each.outcome for each in seen.reply.trace.attempts] == ["malformed", "answered", "answered"]
    assert len(seen.bodies[2]["messages"]) == 1


def test_an_empty_choice_that_came_may_be_swallowed():
    seen = play(ask(WEATHER, n=2), [several({"content": "a"}, {"content": ""}), reply("b")])
    assert [each.outcome for each in seen.reply.trace.attempts] == ["swallowed", "answered"]
    assert "tools" not in seen.bodies[1]


def test_a_stream_that_was_cut_says_nothing_of_the_choices_to_come():
    cut = stream("a", finish=None, done=False)
    seen = play(ask(WEATHER, n=2, stream=True, promptools={"hold": "all"}), [cut, stream("b"), stream("c")])
    assert [seen.choice(index).content for index in range(2)] == ["b", "c"]
    assert [each.outcome for each in seen.reply.trace.attempts] == ["cut", "answered", "answered"]


def test_a_choice_that_was_never_sent_and_cannot_be_had():
    seen = play(ask(WEATHER, n=2), [reply("a"), error("no", 404)])
    assert seen.head.status == 404
