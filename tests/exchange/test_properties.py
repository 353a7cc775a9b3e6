"""Whatever a server does, the client gets an answer that keeps the API's promises."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import JSON, NOW, SSE, WEATHER, Answer, ask, call, chunk, error, event, play, reply

from promptools.exchange import Failed
from promptools.fallback import RULES

NAMED = {"type": "function", "function": {"name": "get_weather"}}
TEXTS = [
    "Hello",
    "\n",
    "<think>",
    "Hm.",
    "</think>",
    '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```',
    '```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```',
    '```json\n{"tool": "get_weather", "argu',
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    '{"name": "fly", "arguments": {}}',
]
ERRORS = ["HarmonyError", 'error parsing tool call: raw=\'{"city": "P"}\', err=x', "disk full", "", "EOF", "jinja"]
ERRORS += [f"Failed to parse input at pos 3: {text}" for text in TEXTS]
CALLS = [
    call("get_weather", {"city": "Paris"}, "abcdefghi"),
    call("get_weather", {"days": 1}, "abcdefghj"),
    call("get_weather", '{"city": "Pa', "abcdefghk"),
    call("now", "", "abcdefghl"),
    call("fly", {}, "abcdefghm"),
]
FINISH = st.sampled_from(["stop", "tool_calls", "length", "content_filter", None])


def deltas():
    text = st.sampled_from(TEXTS)
    return st.one_of(
        text.map(lambda said: {"content": said}),
        text.map(lambda said: {"reasoning": said}),
        st.tuples(st.sampled_from(CALLS), st.integers(0, 1)).map(
            lambda one: {"tool_calls": [one[0] | {"index": one[1]}]}
        ),
    )


def blocks():
    return st.one_of(
        st.tuples(deltas(), st.integers(0, 1)).map(lambda one: chunk(one[0], index=one[1])),
        st.tuples(FINISH, st.integers(0, 1)).map(lambda one: chunk({}, one[0], one[1])),
        st.sampled_from(ERRORS).map(lambda text: event({"error": {"message": text}})),
        st.sampled_from([b": ping\n\n", b"data: [DONE]\n\n", b"data: {\n\n", b'{"error": "odd"}\n\n', b"\xff\n\n"]),
    )


def answers():
    broken = st.sampled_from([None, None, None, Failed("closed", "gone", 0.0)])
    streams = st.tuples(st.lists(blocks(), max_size=6), st.integers(0, 40), broken, st.sampled_from([SSE, ()]))
    wholes = st.tuples(
        st.sampled_from([*TEXTS, None, ""]),
        st.lists(st.sampled_from(CALLS), max_size=2),
        FINISH,
        st.sampled_from(["", "Hm."]),
    )
    return st.one_of(
        streams.map(lambda one: Answer(200, b"".join(one[0]), one[3], one[1], one[2])),
        wholes.map(lambda one: reply(one[0], calls=one[1], finish=one[2], reasoning=one[3])),
        st.tuples(st.sampled_from(ERRORS), st.sampled_from([200, 400, 429, 500, 503])).map(lambda one: error(*one)),
        st.binary(max_size=20).map(lambda body: Answer(200, body, JSON)),
        st.sampled_from(["connect", "timeout"]).map(lambda kind: Answer(0, broken=Failed(kind, "gone", 0.0))),
    )


def requests():
    options = st.fixed_dictionaries(
        {},
        optional={
            "hold": st.sampled_from(["auto", "all"]),
            "arguments": st.sampled_from(["auto", "whole", "live"]),
            "on_malformed": st.sampled_from(["content", "call", "error"]),
            "corrections": st.integers(0, 2),
            "trace": st.booleans(),
            "mode": st.sampled_from(["native", "prompt"]),
        },
    )
    more = st.fixed_dictionaries(
        {"stream": st.booleans()},
        optional={
            "tool_choice": st.sampled_from(["auto", "none", "required", NAMED]),
            "parallel_tool_calls": st.booleans(),
            "n": st.sampled_from([1, 2]),
            "promptools": options,
        },
    )
    tools = st.sampled_from([(), (WEATHER,), (WEATHER, NOW)])
    return st.tuples(tools, more).map(lambda one: ask(*one[0], **one[1]) if one[0] else ask(stream=one[1]["stream"]))


def check_calls(calls, body):
    names = [each["name"] for each in calls]
    assert len({each["id"] for each in calls}) == len(calls)
    choice = body.get("tool_choice")
    if choice == "none":
        assert not calls
    if choice == NAMED and body.get("promptools", {}).get("on_malformed") != "call":
        assert set(names) <= {"get_weather"}
    if body.get("parallel_tool_calls") is False:
        assert len(calls) <= 1
    for each in calls:
        assert isinstance(json.loads(each["arguments"]), dict)


def check_stream(seen, body):
    failed = [each for each in seen.events if "error" in each]
    assert seen.done != bool(failed)
    for index in {c["index"] for each in seen.events for c in each.get("choices", ())}:
        one = seen.choice(index)
        assert one.roles == ["assistant"]
        if not failed:
            assert len(one.finish) == 1
            check_calls(list(one.calls.values()), body)
            if one.finish[0] in {"tool_calls", "stop"}:
                assert (one.finish[0] == "tool_calls") == bool(one.calls)


def check_whole(seen, body):
    for one in seen.json["choices"]:
        calls = [{"id": each["id"], **each["function"]} for each in one["message"].get("tool_calls", ())]
        check_calls(calls, body)
        if one["finish_reason"] in {"tool_calls", "stop"}:
            assert (one["finish_reason"] == "tool_calls") == bool(calls)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests(), st.lists(answers(), min_size=20, max_size=20))
def test_the_client_always_gets_a_sound_answer(body, script):
    seen = play(body, script, spare=True)
    assert len(seen.sent) <= 4 + 4 * body.get("n", 1) + body.get("promptools", {}).get("corrections", 1)
    if not body.get("tools"):
        return
    if seen.head.status != 200:
        assert seen.json if seen.headers.get("x-should-retry") else seen.body is not None
    elif body["stream"]:
        check_stream(seen, body)
    else:
        check_whole(seen, body)


def test_the_rules_are_all_met_by_an_error():
    # the texts above are a sample: each rule of the table leads to an answer, too
    for rule in RULES:
        text = rule.pattern.split("|")[0].replace("\\d+", "1").replace("\\A", "").replace("`?", "")
        seen = play(ask(WEATHER), [error(text, 400), *[reply("ok")] * 3], spare=True)
        assert seen.head.status in {200, 400}
