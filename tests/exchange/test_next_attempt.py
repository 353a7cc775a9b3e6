"""What each failure of a server leads to: mended requests, other modes, policies, the breaker, and how it is told."""

import json

import pytest
import tenacity
from scripted import JSON, NOW, WEATHER, Answer, ask, call, error, event, logged, play, reply, stream, target

from promptools.exchange import Failed
from promptools.fallback import Breaker, BreakerKey

OK = reply("ok")
GOOD = ("get_weather", {"city": "Paris"})
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
HARMONY = "Unexpected token 173781 while expecting start token 200006"
NATIVE_KEYS = {"tools", "tool_choice", "parallel_tool_calls"}


def outcomes(seen):
    return [(each.mode, each.outcome) for each in seen.reply.trace.attempts]


# -- Harmony in all its forms


@pytest.mark.parametrize(
    "answer",
    [
        error(HARMONY, 500),
        error(HARMONY, 503),
        error(HARMONY, 400),
        Answer(200, json.dumps({"object": "error", "message": HARMONY, "code": 400}).encode()),
        Answer(200, json.dumps({"error": {"message": HARMONY, "code": 500}}).encode()),
        Answer(500, f"openai_harmony.HarmonyError: {HARMONY}".encode(), (("content-type", "text/plain"),)),
    ],
    ids=["500", "503", "400", "200 old", "200", "text"],
)
def test_a_harmony_error_under_any_status_is_asked_in_prompt_mode(answer):
    seen = play(ask(WEATHER), [answer, reply(FENCED)])
    assert seen.message["tool_calls"][0]["function"]["name"] == "get_weather"
    assert outcomes(seen) == [("native", "harmony"), ("prompt", "answered")]
    assert not NATIVE_KEYS & seen.bodies[1].keys()


@pytest.mark.parametrize(
    "answer",
    [
        stream(event({"error": {"message": HARMONY}}), finish=None),
        stream(b'{"error": {"message": "%s"}}\n\n' % HARMONY.encode(), finish=None),
        Answer(200, json.dumps({"error": {"message": HARMONY}}).encode()),
        error(HARMONY, 500),
    ],
    ids=["event", "bare line", "200", "500"],
)
def test_a_harmony_error_in_a_stream(answer):
    seen = play(ask(WEATHER, stream=True), [answer, stream(FENCED)])
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert outcomes(seen) == [("native", "harmony"), ("prompt", "answered")]


def test_the_last_mode_is_tried_once_more():
    seen = play(ask(WEATHER), [error(HARMONY), error(HARMONY), reply(FENCED)])
    assert outcomes(seen) == [("native", "harmony"), ("prompt", "harmony"), ("prompt", "answered")]


def test_when_nothing_helps_the_client_gets_a_502_that_is_not_retried():
    seen = play(ask(WEATHER), [error(HARMONY)] * 3)
    assert seen.head.status == 502
    assert seen.headers["x-should-retry"] == "false"
    assert seen.headers["x-promptools-attempts"] == "3"
    told = seen.json["error"]
    assert told["type"] == "Exhausted"
    assert told["code"] == "harmony"
    assert [each["outcome"] for each in told["attempts"]] == ["harmony"] * 3
    assert "3. prompt mode: harmony" in told["message"]
    assert seen.reply.trace.attempts[2].outcome == "harmony"


# -- mended requests


def test_schemas_are_relaxed_and_the_tool_is_named():
    picky = json.loads(json.dumps(WEATHER))
    picky["function"]["parameters"]["properties"]["city"]["pattern"] = "^[a-z]+$"
    failure = error("JSON schema conversion failed:\nPattern must start with '^' and end with '$'", 400)
    fits = reply(calls=[("get_weather", {"city": "paris"})], finish="tool_calls")
    seen = play(ask(picky), [failure, reply(calls=[GOOD], finish="tool_calls"), fits])
    sent = seen.bodies[1]["tools"][0]["function"]["parameters"]["properties"]["city"]
    assert "pattern" not in sent
    assert any("get_weather" in note and "relaxed" in note for note in seen.reply.trace.notes)
    # the original schema still checks what comes back
    assert outcomes(seen) == [("native", "schema"), ("native", "malformed"), ("native", "answered")]


def test_tool_choice_is_asked_for_rung_by_rung():
    named = {"type": "function", "function": {"name": "get_weather"}}
    answers = [
        error("Invalid tool_choice type: 'object'. Supported string values: none, auto, required", 400),
        error('Value error, `tool_choice` must either be a named tool, "auto", or "none".', 400),
        reply(calls=[GOOD], finish="tool_calls"),
    ]
    seen = play(ask(WEATHER, NOW, tool_choice=named), answers)
    first, second, third = seen.bodies
    assert first["tool_choice"] == named
    assert second["tool_choice"] == "required"
    assert [each["function"]["name"] for each in second["tools"]] == ["get_weather"]
    assert "tool_choice" not in third
    assert "get_weather" in third["messages"][0]["content"]
    assert [each.mode for each in seen.reply.trace.attempts] == ["native"] * 3


def test_a_tool_choice_that_is_refused_to_the_end_leads_to_prompt_mode():
    failure = error("Invalid tool_choice: auto", 400)
    seen = play(ask(WEATHER, tool_choice="auto"), [failure, failure, OK])
    assert [("tool_choice" in body) for body in seen.bodies] == [True, False, False]
    assert outcomes(seen)[-1] == ("prompt", "answered")


def test_tools_that_are_not_functions_are_left_out():
    failure = error("'type' of tool must be 'function'", 400)
    seen = play(ask(WEATHER, {"type": "web_search"}), [failure, OK])
    assert seen.bodies[1]["tools"] == [WEATHER]
    seen = play(ask(WEATHER), [failure, OK])
    assert outcomes(seen)[-1] == ("prompt", "answered")


HISTORY = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Paris"}, "call_0fypS1hVX")]},
    {"role": "tool", "tool_call_id": "call_0fypS1hVX", "content": "Sunny"},
]


def test_ids_are_rewritten():
    failure = error("Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.", 400)
    seen = play(ask(WEATHER, messages=HISTORY), [failure, OK])
    one = seen.bodies[1]["messages"][1]["tool_calls"][0]["id"]
    assert len(one) == 9
    assert one.isalnum()
    assert seen.bodies[1]["messages"][2]["tool_call_id"] == one


def test_past_arguments_go_as_objects():
    failure = error("TypeError: Can only get item pairs from a mapping.", 400)
    seen = play(ask(WEATHER, messages=HISTORY), [failure, OK])
    assert seen.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}


def test_a_step_is_taken_once_a_mode():
    failure = error("TypeError: Can only get item pairs from a mapping.", 400)
    seen = play(ask(WEATHER, messages=HISTORY), [failure, failure, OK])
    assert [each.mode for each in seen.reply.trace.attempts] == ["native", "native", "prompt"]


def test_roles_are_made_to_alternate():
    twice = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    failure = error("Conversation roles must alternate user/assistant/user/assistant/...", 400)
    seen = play(ask(WEATHER, messages=twice), [failure, OK])
    assert [each["role"] for each in seen.bodies[1]["messages"]] == ["user"]


def test_a_system_message_is_folded_where_there_is_no_such_role():
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
    seen = play(ask(WEATHER, messages=talk), [error("System role not supported", 400), OK])
    assert [each["role"] for each in seen.bodies[1]["messages"]] == ["user"]


@pytest.mark.parametrize(
    "keys",
    [
        {"reasoning_effort": "high"},
        {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": True, "a": 1}},
        {"chat_template_kwargs": {"enable_thinking": True, "a": 1}},
        {"think": True, "chat_template_kwargs": {"a": 1}},
    ],
)
def test_reasoning_parameters_are_left_out(keys):
    seen = play(ask(WEATHER, **keys), [error('"go" does not support thinking', 400), OK])
    assert "reasoning_effort" not in seen.bodies[1]
    assert "think" not in seen.bodies[1]
    assert seen.bodies[1].get("chat_template_kwargs", {"a": 1}) == {"a": 1}


def test_without_any_to_leave_out_the_error_is_the_servers_own():
    seen = play(ask(WEATHER), [error('"go" does not support thinking', 400)])
    assert seen.head.status == 400


def test_null_content_and_parts():
    failure = error("[{'loc': ('body', 'messages', 1, 'content'), 'msg': 'none is not an allowed value'}]", 400)
    seen = play(ask(WEATHER, messages=HISTORY), [failure, OK])
    assert seen.bodies[1]["messages"][1]["content"] == ""
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    failure = error(
        "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string", 400
    )
    seen = play(ask(WEATHER, messages=parts), [failure, OK])
    assert isinstance(seen.bodies[1]["messages"][0]["content"], str)


def test_parameters_that_a_server_does_not_know():
    seen = play(ask(WEATHER, stream=True), [error("unknown field: stream_options", 400), stream("ok")])
    assert "stream_options" not in seen.bodies[1]
    failure = error("body.parallel_tool_calls: Extra inputs are not permitted", 400)
    seen = play(ask(WEATHER, parallel_tool_calls=False), [failure, OK])
    assert "parallel_tool_calls" not in seen.bodies[1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Jinja Exception: Value is not callable: null at row 49", "template"),
        ("Only text tool_result blocks are supported", "tool_media"),
        ("logprobs is not supported with tools + stream", "beside_tools"),
    ],
)
def test_what_another_mode_does_without(text, kind):
    seen = play(ask(WEATHER), [error(text, 400), OK])
    assert outcomes(seen) == [("native", kind), ("prompt", "answered")]


def test_what_lies_in_one_request_does_not_close_the_mode_to_others():
    breaker = Breaker()
    for _ in range(4):
        seen = play(ask(WEATHER), [error("logprobs is not supported with tools + stream", 400), OK], breaker=breaker)
        assert outcomes(seen) == [("native", "beside_tools"), ("prompt", "answered")]


def test_a_parser_that_crashes_with_any_error_is_asked_in_prompt_mode():
    seen = play(ask(WEATHER), [error("'NoneType' object has no attribute 'get'", 500), OK])
    assert outcomes(seen) == [("native", "crashed"), ("prompt", "answered")]
    dead = error("disk full", 500)
    seen = play(ask(WEATHER), [dead, dead])
    assert seen.head.status == 500
    assert seen.body == dead.body


# -- an upstream's own error comes through as it was


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 413, 422, 429, 502, 503])
def test_an_error_that_nothing_can_mend_is_handed_on(status):
    answer = error("The model `nope` does not exist.", status)
    answer.headers = (*JSON, ("Retry-After", "7"), ("content-length", "1"))
    seen = play(ask(WEATHER), [answer])
    assert seen.head.status == status
    assert seen.body == answer.body
    assert seen.headers["Retry-After"] == "7"
    assert seen.headers["x-promptools-attempts"] == "1"
    assert seen.headers["content-type"] == "application/json"
    assert "x-should-retry" not in seen.headers


def test_also_after_another_mode_was_tried():
    last = error("context too long", 400)
    seen = play(ask(WEATHER), [error(HARMONY), last])
    assert seen.head.status == 400
    assert seen.body == last.body
    assert seen.headers["x-promptools-attempts"] == "2"


def test_an_error_under_200_is_never_a_reply():
    seen = play(ask(WEATHER), [Answer(200, b'{"error": "out of luck"}')])
    assert seen.head.status == 502
    assert seen.json == {"error": "out of luck"}
    assert seen.headers["x-should-retry"] == "false"


def test_a_body_that_breaks_off_inside_an_error_counts_as_far_as_it_came():
    answer = error(HARMONY)
    answer.broken = Failed("closed", "peer closed", 0.0)
    assert outcomes(play(ask(WEATHER), [answer, OK]))[0] == ("native", "harmony")


def test_a_reply_that_is_not_json_is_asked_for_again():
    seen = play(ask(WEATHER), [Answer(200, b"<html>"), OK])
    assert outcomes(seen) == [("native", "garbled"), ("prompt", "answered")]


# -- no answer


class Gone(Exception):
    """The shell's own exception."""


@pytest.mark.parametrize("kind", ["connect", "timeout", "protocol", "closed"])
def test_no_answer_is_the_shells_exception(kind):
    broken = Failed(kind, "no route", 0.0, Gone("no route"))
    with pytest.raises(Gone):
        play(ask(WEATHER), [Answer(0, broken=broken)])
    with pytest.raises(Gone):
        play(ask(WEATHER), [error(HARMONY), *[Answer(0, broken=broken)] * (2 if kind == "closed" else 1)])


def test_a_connection_that_the_server_closed_after_an_error_is_made_anew():
    gone = Answer(0, broken=Failed("closed", "reset by peer", 0.0, Gone()))
    seen = play(ask(WEATHER), [error(HARMONY), gone, reply(FENCED)])
    assert outcomes(seen) == [("native", "harmony"), ("prompt", "answered")]
    assert seen.sent[1] == seen.sent[2]
    assert any("sent again on another" in note for note in seen.reply.trace.notes)


def test_a_reply_that_breaks_off_is_asked_for_again():
    half = reply("Hel")
    half.body = half.body[:20]
    half.broken = Failed("closed", "peer closed", 0.0, Gone())
    seen = play(ask(WEATHER), [half, OK])
    assert outcomes(seen) == [("native", "cut"), ("prompt", "answered")]
    seen = play(ask(WEATHER), [half, half, half])
    assert seen.json["error"]["type"] == "Exhausted"


def test_a_shell_without_exceptions_gets_a_502():
    seen = play(ask(WEATHER), [Answer(0, broken=Failed("connect", "no route", 0.0))])
    assert seen.log == [logged("native", "connect (no answer); nothing is left to try")]
    assert seen.json["error"]["attempts"][0]["status"] is None
    assert seen.head.status == 502
    assert seen.json["error"]["code"] == "connect"


def test_a_time_out_inside_a_stream_before_the_commit():
    late = stream({"reasoning": "Hm."}, finish=None, done=False)
    late.broken = Failed("timeout", "read timed out", 0.0, Gone())
    seen = play(ask(WEATHER, stream=True), [late])
    assert seen.events[-1]["error"]["code"] == "timeout"


# -- policies


def test_stop_bounds_the_sends():
    seen = play(ask(WEATHER), [error(HARMONY), error(HARMONY)], stop=tenacity.stop_after_attempt(2))
    assert seen.head.status == 502
    assert "no more than 2 sends" in seen.json["error"]["attempts"][1]["why"]


def test_wait_lies_between_the_sends():
    wait = tenacity.wait_incrementing(start=1, increment=2)
    seen = play(ask(WEATHER), [error(HARMONY), error(HARMONY), OK], wait=wait)
    assert seen.waits == [1, 3]


def test_the_deadline_is_one_for_all_sends():
    slow = error(HARMONY)
    slow.takes = 4.0
    seen = play(ask(WEATHER), [slow, slow, slow], deadline=10.0)
    assert seen.timeouts == [10.0, 6.0, 2.0]
    assert seen.json["error"]["type"] == "Exhausted"
    seen = play(ask(WEATHER), [slow, slow, slow], deadline=12.0)
    assert seen.head.status == 502
    seen = play(ask(WEATHER), [slow, slow], deadline=8.0)
    assert "the deadline of 8 s is used up" in seen.json["error"]["attempts"][1]["why"]


def test_a_time_out_by_our_deadline_is_ours_to_tell():
    late = Answer(0, broken=Failed("timeout", "time is up", 0.0, Gone()), takes=5.0)
    seen = play(ask(WEATHER), [late], deadline=5.0)
    assert seen.head.status == 502
    assert seen.headers["x-should-retry"] == "false"


def test_an_error_whose_text_came_too_late_is_ours_to_tell():
    late = Answer(500, broken=Failed("timeout", "time is up", 0.0, Gone()), takes=5.0)
    seen = play(ask(WEATHER), [late], deadline=5.0)
    assert seen.head.status == 502
    assert seen.json["error"]["code"] == "timeout"
    assert "HTTP 500" in seen.json["error"]["message"]


# -- the breaker

NO_TOOLS = error("m does not support tools", 400)


def test_what_cannot_be_is_remembered():
    breaker = Breaker(cool_down=50)
    where = target(provider="local")
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker, target=where)
    assert breaker.states(100) == {BreakerKey("local", "m", "native"): "open"}
    seen = play(ask(WEATHER), [OK], breaker=breaker, target=where)
    assert seen.headers["x-promptools-mode"] == "prompt"
    assert "native mode was skipped: it failed lately (no_native_tools)" in seen.reply.trace.notes


def test_it_is_probed_after_a_while():
    breaker = Breaker(cool_down=50)
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker)
    seen = play(ask(WEATHER), [reply(calls=[GOOD], finish="tool_calls")], breaker=breaker, at=151.0)
    assert seen.headers["x-promptools-mode"] == "native"
    assert breaker.states(151) == {}


def test_other_models_and_providers_are_not_concerned():
    breaker = Breaker()
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker)
    seen = play(ask(WEATHER) | {"model": "other"}, [OK], breaker=breaker)
    assert seen.headers["x-promptools-mode"] == "native"
    seen = play(ask(WEATHER), [OK], breaker=breaker, target=target(provider="elsewhere"))
    assert seen.headers["x-promptools-mode"] == "native"


def test_a_forced_mode_is_used_whatever_the_breaker_says():
    breaker = Breaker()
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker)
    seen = play(ask(WEATHER, promptools={"mode": "native"}), [OK], breaker=breaker)
    assert seen.headers["x-promptools-mode"] == "native"


def test_when_all_is_open_the_first_mode_serves():
    breaker = Breaker()
    play(ask(WEATHER), [NO_TOOLS, NO_TOOLS], breaker=breaker)
    assert set(breaker.states(100).values()) == {"open"}
    seen = play(ask(WEATHER), [OK], breaker=breaker)
    assert seen.headers["x-promptools-mode"] == "native"


def test_a_mode_that_is_open_is_not_a_way_out():
    breaker = Breaker()
    breaker.record_failure(BreakerKey("local", "m", "prompt"), 100.0, why="harmony", lasting=True)
    seen = play(ask(WEATHER), [error(HARMONY), OK], breaker=breaker)
    assert outcomes(seen) == [("native", "harmony"), ("native", "answered")]


def test_when_all_is_open_every_mode_is_tried():
    breaker = Breaker()
    play(ask(WEATHER), [NO_TOOLS, NO_TOOLS], breaker=breaker)
    seen = play(ask(WEATHER), [error(HARMONY), reply(FENCED)], breaker=breaker)
    assert outcomes(seen) == [("native", "harmony"), ("prompt", "answered")]
    said = "every mode failed lately (no_native_tools): they are tried all the same"
    assert [note for note in seen.reply.trace.notes if "failed lately" in note] == [said]


CUT = reply(calls=[("get_weather", '{"city": "Par')], finish="length")
LATE = reply(calls=[("get_weather", '{"city": "Par')], finish="tool_calls")
WRONG = reply(calls=[("get_weather", {"days": 1})], finish="tool_calls")
STRANGE = reply(calls=[("get_stocks", {})], finish="tool_calls")


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (ask(WEATHER, max_tokens=5), [CUT]),
        (ask(WEATHER), [LATE, OK]),
        (ask(WEATHER), [WRONG, WRONG, OK]),
        (ask(WEATHER), [STRANGE, STRANGE]),
        (ask(WEATHER, tool_choice="required"), [OK] * 4),
        (ask(WEATHER), [error("JSON schema conversion failed:\nUnrecognized schema: true", 400), OK]),
        (ask(WEATHER, tool_choice="auto"), [error("Invalid tool_choice: auto", 400)] * 2 + [OK]),
        (ask(WEATHER, {"type": "web_search"}), [error("'type' of tool must be 'function'", 400)] * 2 + [OK]),
    ],
    ids=["limit", "truncated", "malformed", "unknown_tool", "choice", "schema", "tool_choice", "tool_type"],
)
def test_what_lies_in_one_apps_requests_closes_no_mode_for_the_others(body, answers):
    breaker = Breaker(threshold=1)
    for _ in range(3):
        play(body, answers, breaker=breaker, spare=True)
    assert breaker.states(100) == {}


@pytest.mark.parametrize(
    "bad",
    [error(HARMONY), error("boom"), error("Jinja Exception: no such filter"), Answer(200, b"<html>")],
    ids=["harmony", "crashed", "template", "garbled"],
)
def test_what_is_the_servers_own_is_counted(bad):
    breaker = Breaker()
    for _ in range(3):
        play(ask(WEATHER), [bad, reply(FENCED)], breaker=breaker, spare=True)
    assert breaker.states(100) == {BreakerKey("local", "m", "native"): "open"}


def test_an_error_that_every_mode_meets_is_not_held_against_one():
    breaker, crash = Breaker(threshold=1), error("image input is not supported")
    seen = play(ask(WEATHER), [crash, crash], breaker=breaker)
    assert outcomes(seen) == [("native", "crashed"), ("prompt", "crashed")]
    assert breaker.states(100) == {}


def test_a_model_that_errs_now_and_then_does_not_open_it():
    breaker = Breaker()
    bad = reply(calls=[("get_weather", {"days": 1})], finish="tool_calls")
    for _ in range(5):
        play(ask(WEATHER), [bad, reply(calls=[GOOD], finish="tool_calls")], breaker=breaker)
    assert breaker.states(100) == {}


def test_without_a_provider_the_address_is_the_name():
    breaker = Breaker()
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker, target=target(provider=None, base_url="http://a/v1"))
    assert BreakerKey("http://a/v1", "m", "native") in breaker.states(100)
    play(ask(WEATHER), [NO_TOOLS, OK], breaker=breaker, target=target(provider=None))
    assert BreakerKey("http://server/v1/chat/completions", "m", "native") in breaker.states(100)
