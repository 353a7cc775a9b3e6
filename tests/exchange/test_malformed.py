"""Calls that cannot be used: corrections, truncation, unknown tools, and what is handed over in the end."""

import json

import pytest
from scripted import NOW, WEATHER, ask, call, error, play, reply, stream

GOOD = ("get_weather", {"city": "Paris"})
BAD = ("get_weather", {"days": 3})
BAD_TEXT = '```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```'
TRUNCATED = '```json\n{"tool": "get_weather", "arguments": {"city": "Pa'


def native(*calls, finish="tool_calls", content=None):
    return reply(content, calls=calls, finish=finish)


def test_the_model_is_asked_to_mend_its_call():
    seen = play(ask(WEATHER), [native(BAD), native(GOOD)])
    assert seen.message["tool_calls"] == [call(*GOOD)]
    said, told = seen.bodies[1]["messages"][-2:]
    assert said["tool_calls"] == [call(*BAD)]
    assert told["tool_call_id"] == "call00001"
    assert "city" in told["content"]
    assert [each.outcome for each in seen.reply.trace.attempts] == ["malformed", "answered"]
    assert seen.headers["x-promptools-attempts"] == "2"


def test_then_the_next_mode_is_tried_without_the_feedback():
    seen = play(ask(WEATHER), [native(BAD), native(BAD), reply("Sunny.")])
    assert [each.mode for each in seen.reply.trace.attempts] == ["native", "native", "prompt"]
    assert [each["role"] for each in seen.bodies[2]["messages"]] == ["system", "user"]
    assert seen.message["content"] == "Sunny."


@pytest.mark.parametrize("corrections", [0, 2])
def test_corrections_say_how_often(corrections):
    answers = [native(BAD)] * corrections + [native(BAD), reply("ok")]
    seen = play(ask(WEATHER, promptools={"corrections": corrections}), answers)
    assert [each.mode for each in seen.reply.trace.attempts] == ["native"] * (corrections + 1) + ["prompt"]


def test_valid_calls_beside_malformed_ones_are_an_answer():
    seen = play(ask(WEATHER), [native(BAD, GOOD)])
    assert seen.message["tool_calls"] == [call(*GOOD, call_id=seen.reply.calls[0].id)]
    assert len(seen.reply.malformed) == 1


def test_when_all_is_used_up_the_raw_text_is_content_byte_for_byte():
    seen = play(ask(WEATHER, promptools={"mode": "prompt"}), [reply(BAD_TEXT), reply("Look:\n" + BAD_TEXT + "\n ")])
    assert seen.message["content"] == "Look:\n" + BAD_TEXT + "\n "
    assert "tool_calls" not in seen.message
    assert seen.json["choices"][0]["finish_reason"] == "stop"
    assert seen.head.status == 200
    assert any(note.startswith("malformed: ") for note in seen.reply.trace.notes)


def test_streamed_it_is_the_same():
    seen = play(ask(WEATHER, stream=True, promptools={"mode": "prompt"}), [stream(BAD_TEXT), stream(*BAD_TEXT)])
    assert seen.choice().content == BAD_TEXT
    assert seen.choice().finish == ["stop"]
    assert seen.done


def test_an_earlier_reply_is_handed_over_when_the_later_attempts_failed():
    seen = play(ask(WEATHER), [reply(BAD_TEXT), error("HarmonyError"), error("nothing known", 400)])
    assert seen.message["content"] == BAD_TEXT
    assert [each.outcome for each in seen.reply.trace.attempts] == ["malformed", "harmony", "refused"]


@pytest.mark.parametrize("status", [408, 409, 429])
def test_but_not_where_the_sdk_retries(status):
    seen = play(ask(WEATHER), [reply(BAD_TEXT), error("slow down", status)])
    assert seen.head.status == status


def test_a_call_that_does_not_fit_is_handed_over_on_request():
    body = ask(WEATHER, promptools={"mode": "native", "on_malformed": "call", "corrections": 0})
    seen = play(body, [native(BAD)])
    assert seen.message["tool_calls"] == [call(*BAD)]
    assert seen.json["choices"][0]["finish_reason"] == "tool_calls"
    seen = play(body | {"stream": True}, [stream({"tool_calls": [call(*BAD) | {"index": 0}]}, finish="tool_calls")])
    assert json.loads(seen.choice().calls[0]["arguments"]) == {"days": 3}


def test_or_it_is_an_error():
    body = ask(WEATHER, promptools={"mode": "native", "on_malformed": "error", "corrections": 0})
    seen = play(body, [native(BAD)])
    assert seen.head.status == 502
    assert seen.headers["x-should-retry"] == "false"
    assert seen.json["error"]["type"] == "ModelError"
    assert seen.json["error"]["code"] == "malformed"
    assert seen.json["error"]["attempts"][0]["outcome"] == "malformed"
    assert seen.reply.malformed
    assert seen.replies == [seen.reply]


def test_an_error_after_content_is_in_band():
    body = ask(WEATHER, stream=True, promptools={"on_malformed": "error"})
    seen = play(body, [stream("Look:\n", BAD_TEXT)])
    assert seen.choice().content == "Look:"
    assert seen.events[-1]["error"]["type"] == "ModelError"
    assert not seen.done


# -- truncated


@pytest.mark.parametrize("streamed", [False, True])
def test_a_truncated_call_is_never_asked_again_and_never_returned(streamed):
    answer = stream(TRUNCATED, finish="length") if streamed else reply(TRUNCATED, finish="length")
    seen = play(ask(WEATHER, stream=streamed), [answer])
    said = seen.choice().content if streamed else seen.message["content"]
    finish = seen.choice().finish if streamed else [seen.json["choices"][0]["finish_reason"]]
    assert said == TRUNCATED
    assert finish == ["length"]
    assert seen.reply.calls == ()
    assert len(seen.reply.trace.attempts) == 1


def test_a_truncated_native_call_is_content():
    seen = play(ask(WEATHER), [native(("get_weather", '{"city": "Par'), finish="length")])
    assert "tool_calls" not in seen.message
    assert seen.message["content"] == '{"city": "Par'
    assert seen.json["choices"][0]["finish_reason"] == "length"


# -- a tool that was not offered


def test_an_unknown_tool_is_asked_again_with_the_list():
    seen = play(ask(WEATHER, NOW), [native(("get_wether", {"city": "P"})), native(GOOD)])
    assert seen.message["tool_calls"] == [call(*GOOD)]
    told = seen.bodies[1]["messages"][-1]["content"]
    assert "get_weather, now" in told
    assert "'get_weather'?" in told


ODD = {"type": "function", "function": {"name": "my.tool/x", "parameters": {"type": "object"}}}
THIS = {"type": "function", "function": {"name": "my.tool/x"}}
MADE = "<|channel|>commentary to=functions.my_tool <|constrain|>json<|message|>{}<|call|>"


@pytest.mark.parametrize(
    ("options", "made", "known"),
    [
        ({"mode": "native"}, native(("my_tool", {})), "my_tool_x"),
        ({"mode": "prompt"}, reply('```json\n{"tool": "my_tool", "arguments": {}}\n```'), "my.tool/x"),
        ({"mode": "prompt", "dialect": "harmony"}, reply(MADE), "my.tool_x"),
    ],
)
def test_the_model_hears_of_its_tools_by_the_names_that_it_knows(options, made, known):
    seen = play(ask(ODD, promptools=options), [made, reply("ok")])
    assert (
        f"There is no tool 'my_tool', so nothing was done. Did you mean {known!r}? The tools are: {known}."
        in seen.bodies[1]["messages"][-1]["content"]
    )
    for choice, words in (("required", f"in plain text: {known}."), (THIS, f"Call the tool {known} now;")):
        body = ask(ODD, promptools={**options, "on_malformed": "error"}, tool_choice=choice)
        seen = play(body, [reply("no"), reply("no"), reply("no")], spare=True)
        assert words in seen.bodies[1]["messages"][-1]["content"]


def test_a_call_by_the_name_that_harmony_has_for_a_tool():
    seen = play(
        ask(ODD, promptools={"mode": "prompt", "dialect": "harmony"}),
        [reply(MADE.replace("functions.my_tool", "my.tool_x"))],
    )
    assert seen.message["tool_calls"][0]["function"] == {"name": "my.tool/x", "arguments": "{}"}


@pytest.mark.parametrize("streamed", [False, True])
def test_if_it_stays_it_is_handed_over_as_the_model_made_it(streamed):
    made = call("fly", {"to": "Mars"})
    answers = [native(("fly", {"to": "Mars"}))] * 2
    if streamed:
        answers = [stream({"tool_calls": [made | {"index": 0}]}, finish="tool_calls")] * 2
    seen = play(ask(WEATHER, stream=streamed), answers)
    given = seen.choice().calls[0]["name"] if streamed else seen.message["tool_calls"][0]["function"]["name"]
    assert given == "fly"
    assert seen.reply.calls[0].arguments == {"to": "Mars"}
    assert any("unknown_tool" in note for note in seen.reply.trace.notes)
    assert len(seen.sent) == 2


# -- tool_choice


def test_none_never_gives_a_call():
    seen = play(ask(WEATHER, tool_choice="none"), [native(GOOD, finish="stop", content="Sunny.")])
    assert seen.message["content"] == "Sunny."
    assert "tool_calls" not in seen.message
    assert seen.json["choices"][0]["finish_reason"] == "stop"


def test_none_and_nothing_but_calls_is_asked_again():
    seen = play(ask(WEATHER, tool_choice="none"), [native(GOOD), reply("Sunny.")])
    assert seen.message["content"] == "Sunny."
    assert seen.reply.trace.attempts[0].outcome == "choice"


def test_one_call_without_parallel_tool_calls():
    seen = play(ask(WEATHER, NOW, parallel_tool_calls=False), [native(GOOD, ("now", {}, "call00002"))])
    assert len(seen.message["tool_calls"]) == 1
    assert any("'now'" in note for note in seen.reply.trace.notes)


def test_an_empty_answer_that_cost_nothing_is_an_answer():
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    seen = play(ask(WEATHER), [reply("", usage=usage)])
    assert seen.message["content"] == ""
    assert len(seen.sent) == 1


def test_thoughts_without_an_answer_are_handed_over_when_nothing_better_comes():
    answers = [reply("", reasoning="Hm."), reply("", reasoning="Well."), reply("", reasoning="Oh.")]
    seen = play(ask(WEATHER), answers)
    assert seen.message["reasoning_content"] == "Oh."
    assert seen.message["content"] == ""
    assert [each.outcome for each in seen.reply.trace.attempts] == ["swallowed"] * 3


def test_nothing_at_all_is_an_error():
    seen = play(ask(WEATHER), [reply(""), reply(""), reply("")])
    assert seen.head.status == 502
    assert seen.json["error"]["type"] == "Exhausted"
    assert [each["mode"] for each in seen.json["error"]["attempts"]] == ["native", "prompt", "prompt"]
    assert seen.headers["x-promptools-attempts"] == "3"


def test_a_call_that_is_known_to_be_lost_is_an_error():
    lost = reply("", reasoning="Hm.", stop_reason=200012)
    seen = play(ask(WEATHER), [lost, lost, lost])
    assert seen.json["error"]["code"] == "swallowed"


COPY = '```json\n[\n  {"tool": "get_weather", "arguments": {"city": "<city>"}}\n]\n```'


def test_a_copy_of_the_prompts_example_is_not_a_call():
    # small models repeat what they are shown: its placeholder is no city
    seen = play(ask(WEATHER, promptools={"mode": "prompt"}), [reply(COPY), reply("Which city?")])
    assert COPY in seen.bodies[0]["messages"][0]["content"]
    assert "example of the instructions" in seen.bodies[1]["messages"][-1]["content"]
    assert seen.message["content"] == "Which city?"
    assert "tool_calls" not in seen.message


def test_a_copy_that_the_model_insists_on_is_text():
    seen = play(ask(WEATHER, stream=True, promptools={"mode": "prompt"}), [stream(COPY), stream(*COPY)])
    assert seen.choice().content == COPY
    assert not seen.choice().calls


def test_a_call_like_the_example_with_a_value_is_a_call():
    seen = play(ask(WEATHER, promptools={"mode": "prompt"}), [reply(COPY.replace("<city>", "city"))])
    assert seen.message["tool_calls"][0]["function"]["arguments"] == '{"city": "city"}'


def fenced(*calls):
    return "```json\n" + json.dumps([{"tool": name, "arguments": arguments} for name, arguments in calls]) + "\n```"


SEND = {
    "type": "function",
    "function": {
        "name": "send_report",
        "parameters": {
            "type": "object",
            "properties": {
                "report": {
                    "type": "object",
                    "properties": {"sky": {"type": "string"}, "days": {"type": "array", "items": {"type": "string"}}},
                }
            },
        },
    },
}
PLACEHOLDERS = [{"sky": "<sky>"}, {"sky": "grey", "days": ["Mon", "<days>"]}]


@pytest.mark.parametrize("stream_it", [False, True])
@pytest.mark.parametrize("report", PLACEHOLDERS)
def test_a_call_that_waits_for_the_result_of_another_is_left_out(report, stream_it):
    # Qwen2.5-Coder-1.5B looks a thing up, and at once uses what it has not been told yet
    written = fenced(GOOD, ("send_report", {"report": report}))
    answer = stream(written) if stream_it else reply(written)
    seen = play(ask(WEATHER, SEND, stream=stream_it, promptools={"mode": "prompt"}), [answer])
    assert [(each.name, each.arguments) for each in seen.reply.calls] == [GOOD]
    assert not seen.reply.malformed
    assert any("stands in place of a value" in note for note in seen.reply.trace.notes)
    assert any("send_report" in each.raw for each in seen.reply.discarded), seen.reply.discarded
    assert "send_report" not in (seen.choice().content if stream_it else seen.message.get("content") or "")


@pytest.mark.parametrize("report", PLACEHOLDERS)
def test_alone_it_is_asked_for_again(report):
    written = fenced(("send_report", {"report": report}))
    seen = play(ask(WEATHER, SEND, promptools={"mode": "prompt"}), [reply(written), reply(fenced(GOOD))])
    assert f"in place of {'<days>' if 'days' in report else '<sky>'}" in seen.bodies[1]["messages"][-1]["content"]
    assert [(each.name, each.arguments) for each in seen.reply.calls] == [GOOD]


def test_what_the_conversation_says_is_a_value():
    said = [{"role": "user", "content": "What is the weather in Paris? And report the sky as <sky>."}]
    asked = ask(WEATHER, SEND, messages=said, promptools={"mode": "prompt"})
    seen = play(asked, [reply(fenced(GOOD, ("send_report", {"report": {"sky": "<sky>"}})))])
    assert [each.name for each in seen.reply.calls] == ["get_weather", "send_report"]


def test_the_placeholder_of_another_parameter_is_a_value():
    seen = play(ask(WEATHER, promptools={"mode": "prompt"}), [reply(fenced(GOOD, ("get_weather", {"city": "<town>"})))])
    assert [each.arguments["city"] for each in seen.reply.calls] == ["Paris", "<town>"]


def test_natively_nothing_is_shown_and_nothing_is_a_copy():
    seen = play(ask(WEATHER), [native(("get_weather", {"city": "<city>"}))])
    assert seen.message["tool_calls"] == [call("get_weather", {"city": "<city>"})]


@pytest.mark.parametrize("tools", [(WEATHER,), (NOW,), (NOW, WEATHER)])
@pytest.mark.parametrize("dialect", ["json", "hermes", "mistral", "llama3_json", "xlam"])
def test_a_model_that_repeats_its_instructions_calls_nothing(tools, dialect):
    asked = ask(*tools, promptools={"mode": "prompt", "dialect": dialect})
    told = play(asked, [reply("Hi.")]).bodies[0]["messages"][0]["content"]
    seen = play(asked, [reply(told), reply(told)])
    assert not seen.reply.calls
    assert seen.message["content"] == told


CORRECTION = play(ask(WEATHER), [native(BAD), native(GOOD)]).bodies[1]["messages"][-1]["content"]
PROMPT = {"mode": "prompt"}


def test_the_correction_is_not_the_models_answer():
    seen = play(ask(WEATHER), [native(BAD), reply(f"{CORRECTION}\n"), reply("Sunny.")])
    assert seen.message["content"] == "Sunny."
    assert [(each.mode, each.outcome) for each in seen.reply.trace.attempts] == [
        ("native", "malformed"),
        ("native", "malformed"),
        ("prompt", "answered"),
    ]
    why = "the model repeated the correction in place of an answer; prompt mode is tried"
    assert seen.reply.trace.attempts[1].why == why


def test_nor_is_the_demand_for_a_call():
    body = ask(WEATHER, tool_choice="required", promptools=PROMPT)
    demand = play(body, [reply("No."), reply("ok")], spare=True).bodies[1]["messages"][-1]["content"]
    seen = play(body, [reply("No."), reply(demand)])
    assert seen.message["content"] == "No."
    assert [each.outcome for each in seen.reply.trace.attempts] == ["choice", "choice"]


@pytest.mark.parametrize("streamed", [False, True])
def test_what_the_model_wrote_before_is_handed_over_in_its_place(streamed):
    said = stream if streamed else reply
    seen = play(ask(WEATHER, stream=streamed, promptools=PROMPT), [said(BAD_TEXT), said(CORRECTION)])
    assert (seen.choice().content if streamed else seen.message["content"]) == BAD_TEXT


@pytest.mark.parametrize("more", [" I give up.", "?"])
@pytest.mark.parametrize("size", [len(CORRECTION), 8, 0])
def test_an_answer_that_begins_like_the_correction_loses_nothing(size, more):
    answer = f"\n{CORRECTION[:size]}{more}"
    seen = play(ask(WEATHER, stream=True, promptools=PROMPT), [stream(BAD_TEXT), stream(*answer)])
    assert seen.choice().content == answer


def test_a_streamed_correction_does_not_reach_the_client_before_its_end_is_known():
    seen = play(ask(WEATHER, stream=True), [stream(BAD_TEXT), stream(*CORRECTION), stream("Sunny.")])
    assert seen.choice().content == "Sunny."
