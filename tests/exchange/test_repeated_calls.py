"""A call that the history holds over and over: the model is told so, or asked to answer; nothing is withheld."""

import json

import pytest
from scripted import NOW, WEATHER, ask, call, error, play, reply, stream, target

from promptools.errors import UsageError
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.modes.history import RepeatedCall, find_repeated, parse_history, without_repeats
from promptools.modes.options import Options

QUESTION = {"role": "user", "content": "Weather in Paris?"}
HINT = "(Note: get_weather was called 2 times with these arguments, each time with this result. It is above.)"
NOTE = "'get_weather' was called 2 times with the same arguments and the same result"


def turn(arguments=None, result="rain", *, name="get_weather", call_id="call00001"):
    """One call and its result."""
    arguments = {"city": "Paris"} if arguments is None else arguments
    return [
        {"role": "assistant", "content": None, "tool_calls": [call(name, arguments, call_id)]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def talk(*turns):
    return [QUESTION, *(message for one in turns for message in one)]


TWICE = talk(turn(), turn())


@pytest.mark.parametrize(
    ("messages", "times"),
    [
        (talk(turn()), 1),
        (TWICE, 2),
        (talk(turn(), turn(), turn()), 3),
        (talk(turn(call_id="a"), turn(call_id="b")), 2),
        (talk(turn('{"city":"Paris","days":1}'), turn('{ "days": 1, "city": "Paris" }')), 2),
        (talk(turn(), turn({"city": "Rome"}), turn()), 2),  # by turns with another call
        (talk(turn(), [QUESTION], turn()), 2),
        (talk(turn(), turn(), [{"role": "system", "content": "The date has changed."}]), 2),
        (talk(turn(), turn({"city": "Rome"})), 1),
        (talk(turn(), turn(result="sun")), 1),  # it polls
        (talk(turn(name="now"), turn()), 1),
        (talk(turn(), turn(), [{"role": "assistant", "content": "It rains."}]), 0),  # it has answered
        (talk(turn(), turn(), [{"role": "assistant", "content": "It rains."}, QUESTION]), 0),
        (talk(turn(), turn()[:1]), 0),  # no result yet
        ([QUESTION], 0),
        ([], 0),
    ],
)
def test_how_often_a_call_was_made(messages, times):
    expected = RepeatedCall("get_weather", times) if times else None
    assert find_repeated(messages, 1) == expected
    assert find_repeated(messages, 2) == (expected if times >= 2 else None)
    assert find_repeated(messages, 0) is None


def test_of_parallel_calls_the_most_repeated_one_counts():
    both = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("now", {}, "n"), call("get_weather", {"city": "Paris"}, "w")],
    }
    results = [
        {"role": "tool", "tool_call_id": "n", "content": "5"},
        {"role": "tool", "tool_call_id": "w", "content": "rain"},
    ]
    assert find_repeated([QUESTION, *turn(), both, *results], 2) == RepeatedCall("get_weather", 2)


def test_results_of_parts_are_compared_as_a_whole():
    image = [{"type": "text", "text": "rain"}, {"type": "image_url", "image_url": {"url": "data:,a"}}]
    other = [{"type": "text", "text": "rain"}, {"type": "image_url", "image_url": {"url": "data:,b"}}]
    assert find_repeated(talk(turn(result=image), turn(result=image)), 2) == RepeatedCall("get_weather", 2)
    assert find_repeated(talk(turn(result=image), turn(result=other)), 2) is None


def test_arguments_that_are_nested_deeply_are_not_compared():
    deep = '{"a": ' + "[" * 900 + "]" * 900 + "}"
    assert find_repeated(talk(turn(deep), turn(deep)), 2) in (None, RepeatedCall("get_weather", 2))
    far = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert find_repeated(talk(turn(far), turn(far)), 2) in (None, RepeatedCall("get_weather", 2))


def test_a_long_history_is_read_in_linear_time(monkeypatch):
    from promptools.modes import history

    read = []
    parse = history.parse_history

    def counted(messages):
        read.append(len(messages))
        return parse(messages)

    monkeypatch.setattr(history, "parse_history", counted)
    other = [turn({"city": str(number)}, f"rain {number}") for number in range(500)]
    assert find_repeated(talk(*other, turn()), 2) is None
    assert sum(read) == 2  # the last turn alone: the results of all others differ
    read.clear()
    assert find_repeated(talk(*[turn()] * 500), 2) == RepeatedCall("get_weather", 500)
    assert sum(read) == 1000


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("on_repeat", [None, "hint", "answer", "off"])
def test_what_is_done_about_it(mode, on_repeat):
    body = ask(WEATHER, messages=TWICE)
    seen = play(body, [reply("It rains.")], options={"mode": mode, "on_repeat": on_repeat})
    sent, notes = seen.bodies[0], seen.reply.trace.notes
    hinted = on_repeat == "hint" or (on_repeat is None and mode == "prompt")
    assert (f"rain\n\n{HINT}" in sent["messages"][-1]["content"]) == hinted
    assert (HINT in json.dumps(sent)) == hinted
    if on_repeat == "off":
        assert notes == ()
    elif on_repeat == "answer":
        assert f"{NOTE}: it is asked to answer, by tool_choice none" in notes
        assert sent.get("tool_choice") == ("none" if mode == "native" else None)
        assert "### get_weather" not in json.dumps(sent)
    else:
        assert (f"{NOTE}: the model is told so" if hinted else NOTE) in notes
    first = play(ask(WEATHER, messages=talk(turn())), [reply("It rains.")], options={"mode": mode})
    assert first.reply.trace.notes == ()


@pytest.mark.parametrize(
    ("turns", "kept"),
    [
        ([turn(), turn()], [turn()]),
        ([turn(call_id="a"), turn({"city": "Rome"}), turn(call_id="b")], [turn({"city": "Rome"}), turn(call_id="b")]),
        ([turn(result="sun"), turn()], [turn(result="sun"), turn()]),  # it polled
        ([turn(name="now"), turn()], [turn(name="now"), turn()]),
        ([turn(), [QUESTION], turn()], [turn(), [QUESTION], turn()]),  # asked anew
        (
            [turn(), [{"role": "assistant", "content": "Hm."}], turn()],
            [[{"role": "assistant", "content": "Hm."}], turn()],
        ),
        ([[{"role": "assistant", "content": "Hm."}] * 2], [[{"role": "assistant", "content": "Hm."}] * 2]),
        ([[{**turn()[0], "content": "Let me see."}, turn()[1]], turn()], None),  # not the same text
        ([turn('{"a": ' + "[" * 5000 + "]" * 5000 + "}"), turn()], None),
    ],
)
def test_a_call_that_was_made_again_is_kept_once(turns, kept):
    given, expected = (parse_history(talk(*each))[0] for each in (turns, turns if kept is None else kept))
    assert without_repeats(given) == expected


def test_in_prompt_mode_the_answer_is_asked_for_without_the_repetition():
    seen = play(ask(WEATHER, messages=TWICE), [reply("It rains.")], options={"mode": "prompt", "on_repeat": "answer"})
    question, made, results = seen.bodies[0]["messages"]
    assert question["content"] == QUESTION["content"]
    assert made["content"].count("get_weather") == 1
    assert results["content"].endswith("\n\nAnswer the user now, in plain text.")
    assert "calls that were made again with the same result were sent once" in seen.reply.trace.notes


def test_a_call_that_is_made_again_is_handed_over():
    again = reply('```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```')
    seen = play(ask(WEATHER, messages=TWICE), [again], options={"mode": "prompt"})
    assert [made.arguments for made in seen.reply.calls] == [{"city": "Paris"}]


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_how_often_it_must_be_there(repeats):
    options = {"mode": "prompt", "repeats": repeats}
    for times in (1, 2, 3):
        seen = play(ask(WEATHER, messages=talk(*[turn()] * times)), [reply("ok")], options=options)
        assert ("(Note: " in json.dumps(seen.bodies[0])) == (0 < repeats <= times)


def test_a_request_may_say_otherwise_and_a_profile_speaks_for_those_that_do_not():
    body = ask(WEATHER, messages=TWICE)
    for target_says, options, hinted in (("hint", {}, True), ("hint", {"on_repeat": "off"}, False), ("off", {}, False)):
        seen = play(body | {"promptools": options}, [reply("ok")], target=target(on_repeat=target_says))
        assert (HINT in json.dumps(seen.bodies[0])) == hinted
    with pytest.raises(UsageError, match="on_repeat must be one of 'hint', 'answer', 'off', or null"):
        Options().override({"on_repeat": "stop"})


def test_a_forced_call_is_not_turned_into_an_answer():
    body = ask(WEATHER, messages=TWICE, tool_choice="required")
    made = reply(calls=[call("get_weather", {"city": "Paris"})], finish="tool_calls")
    seen = play(body, [made], options={"on_repeat": "answer"})
    assert seen.bodies[0]["tool_choice"] == "required"
    assert NOTE in seen.reply.trace.notes


def test_the_hint_stays_while_the_model_is_corrected():
    wrong = reply('```json\n{"tool": "get_weather", "arguments": {"days": 1}}\n```')
    seen = play(ask(WEATHER, messages=TWICE), [wrong, reply("ok")], options={"mode": "prompt"})
    assert all(HINT in json.dumps(body) for body in seen.bodies)


def test_the_next_mode_tells_the_model():
    seen = play(ask(WEATHER, messages=TWICE), [error("x does not support tools", 400), reply("ok")])
    assert [HINT in json.dumps(body) for body in seen.bodies] == [False, True]


def test_a_tool_that_is_sent_under_another_name_is_named_so():
    tool = {"type": "function", "function": {**WEATHER["function"], "name": "<|im_end|>"}}
    twice = talk(turn(name="<|im_end|>"), turn(name="<|im_end|>"))
    sent = play(ask(tool, messages=twice), [reply("ok")], options={"mode": "prompt"}).bodies[0]["messages"][-1][
        "content"
    ]
    assert "(Note: " in sent
    assert "<|im_end|>" not in sent


def test_in_harmony_mode():
    where = target(family="gpt-oss", raw="completions", modes=("harmony",))
    said = {"id": "c", "choices": [{"index": 0, "text": "<|channel|>final<|message|>ok", "finish_reason": "stop"}]}
    answer = reply()
    answer.body = json.dumps(said).encode()
    seen = play(ask(WEATHER, messages=TWICE), [answer], target=where)
    assert HINT in seen.bodies[0]["prompt"]
    assert f"{NOTE}: the model is told so" in seen.reply.trace.notes


def test_without_tools_there_is_nothing_to_repeat():
    seen = play(ask(messages=TWICE), [reply("ok")], options={"mode": "prompt"})
    assert seen.reply.trace.notes == ()
    assert play(ask(NOW, messages=TWICE, tool_choice="none"), [reply("ok")]).reply.trace.notes == ()


CITY = {"city": "Paris"}
APIS = {
    "responses": (
        {"front": RESPONSES_API, "begin": serve_response, "url": "http://server/v1/responses"},
        {
            "input": [
                QUESTION,
                *[
                    {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": json.dumps(CITY)},
                    {"type": "function_call_output", "call_id": "c", "output": "rain"},
                ]
                * 2,
            ],
            "tools": [{"type": "function", **WEATHER["function"]}],
        },
    ),
    "messages": (
        {"front": MESSAGES_API, "begin": serve_message, "url": "http://server/v1/messages"},
        {
            "max_tokens": 100,
            "messages": [
                QUESTION,
                *[
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "t", "name": "get_weather", "input": CITY}],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "t", "content": "rain"},
                            {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"},
                        ],
                    },
                ]
                * 2,
            ],
            "tools": [{"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}],
        },
    ),
    "ollama": (
        {"front": OLLAMA_API, "url": "http://server/api/chat"},
        {
            "messages": [
                QUESTION,
                *[
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [{"function": {"name": "get_weather", "arguments": CITY}}],
                    },
                    {"role": "tool", "tool_name": "get_weather", "content": "rain"},
                ]
                * 2,
            ],
            "tools": [WEATHER],
        },
    ),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_by_every_client_api(api, streamed):
    how, body = APIS[api]
    body = {"model": "m", "stream": streamed, **body}
    answer = stream("It rains.") if streamed else reply("It rains.")
    seen = play(body, [answer], options={"mode": "prompt"}, **how)
    assert HINT in json.dumps(seen.bodies[0])
    assert b"It rains." in seen.body
