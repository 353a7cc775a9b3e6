"""What a server refuses and can be said otherwise is said otherwise, once, and for an hour from the start.

With tools and without, by every client API. The errors are the servers' own words; see `tests/fallback`.
"""

import json
from typing import get_args

import pytest
from scripted import WEATHER as TOOL
from scripted import Answer, Failed, ask, call, error, play, reply, stream, target

from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.exchange.rewording import NOT_REMEMBERED
from promptools.exchange.runner import run
from promptools.fallback import Adaptation, Refusals, Rewording

LATE = "System message must be at the beginning."
EMPTY = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
THINKING = "Thinking mode does not support this tool_choice"
CALLED = {"calls": [call("get_weather", {"city": "Paris"})], "finish": "tool_calls"}
APIS = {
    "chat": (CHAT_API, run, "/v1/chat/completions"),
    "responses": (RESPONSES_API, serve_response, "/v1/responses"),
    "messages": (MESSAGES_API, serve_message, "/v1/messages"),
    "ollama": (OLLAMA_API, run, "/api/chat"),
}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
    {"role": "system", "content": "Now in <|im_end|> French."},
    {"role": "user", "content": "Weather in Paris?"},
]
SENT = [
    {"role": "system", "content": "Be brief.\n\nBe kind."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "(System message)\nNow in <\\|im_end|> French."},
    {"role": "user", "content": "Weather in Paris?"},
]


class Late(Exception):
    """The driver's own exception."""


def request(api, *, tools, streamed, talk=TALK):
    """Make a request of one client API; the Messages API has the first system texts in a parameter."""
    function = {key: TOOL["function"][key] for key in ("name", "description", "parameters")}
    body = {"model": "m", "stream": streamed}
    match api:
        case "messages":
            opening = [item["content"] for item in talk[:2] if item["role"] == "system"]
            blocks = [{"type": "text", "text": text} for text in opening]
            body |= {"max_tokens": 100, "system": blocks, "messages": talk[len(opening) :]}
            named = {"name": function["name"], "input_schema": function["parameters"]}
            tool = named | {"description": function["description"]}
        case "responses":
            body |= {"input": talk}
            tool = {"type": "function", **function}
        case _:
            body |= {"messages": talk}
            tool = {"type": "function", "function": function}
    front, begin, path = APIS[api]
    return body | ({"tools": [tool]} if tools else {}), {
        "front": front,
        "begin": begin,
        "url": f"http://server{path}",
    }


def answered(text="Il pleut.", *, streamed):
    return stream(text) if streamed else reply(text)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("api", APIS)
def test_a_system_message_in_mid_conversation_is_the_users(api, tools, streamed):
    refusals = Refusals()
    body, how = request(api, tools=tools, streamed=streamed)
    answer = answered(streamed=streamed)
    seen = play(body, [error(LATE, 400), answer], refusals=refusals, **how)
    assert seen.bodies[1]["messages"] == SENT
    assert ("tools" in seen.bodies[1]) == tools
    assert b"Il pleut." in seen.body
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["system_place", "answered"]
    notes = seen.reply.trace.notes
    assert "system_place: sent again with one system message, at the beginning" in notes
    assert "system messages after the beginning were sent as the user's, marked: 1" in notes

    later = play(body, [answer], refusals=refusals, at=100.0 + 3599, **how)
    assert later.bodies[0]["messages"] == SENT
    assert any(
        "less than an hour ago the server refused it in another form" in note for note in later.reply.trace.notes
    )
    assert b"Il pleut." in later.body
    again = play(body, [error(LATE, 400), answer], refusals=refusals, at=100.0 + 3601, **how)
    assert [item["role"] for item in again.bodies[0]["messages"]].count("system") > 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
def test_if_that_is_refused_too_the_error_is_the_servers_own(api, tools):
    body, how = request(api, tools=tools, streamed=False)
    seen = play(body, [error(LATE, 400)] * 2, **how)
    assert seen.head.status == 400
    assert LATE in seen.body.decode()
    if api == "chat":
        assert seen.body == error(LATE, 400).body
    refusals = Refusals()
    play(body, [error(LATE, 400)] * 2, refusals=refusals, **how)
    assert refusals.get(("local", "m"), 101.0) == ()  # what did not help is not remembered


@pytest.mark.parametrize(
    "later", [[error("disk full", 500)], [error("no such thing", 400)], [Answer(200, b"nonsense")] * 2]
)
def test_the_first_refusal_is_the_error_whatever_comes_after_it(later):
    """A later error is about a request that the client did not make."""
    seen = play(ask(messages=TALK), [error(LATE, 400), *later])
    assert (seen.head.status, seen.body) == (400, error(LATE, 400).body)


def test_a_deadline_that_passes_leaves_the_first_refusal():
    late = Answer(0, broken=Failed("timeout", "the time for this request is up", 0.0, Late()), takes=20.0)
    seen = play(ask(messages=TALK), [error(LATE, 400), late], deadline=10.0)
    assert (seen.head.status, seen.body) == (400, error(LATE, 400).body)


def test_what_an_sdk_retries_is_told_as_it_is():
    seen = play(ask(messages=TALK), [error(LATE, 400), error("slow down", 429)])
    assert seen.head.status == 429


def test_a_refusal_that_names_nothing_in_the_request_passes_as_it_comes():
    for body in (ask(), ask(messages=TALK[:1] + TALK[2:4])):
        seen = play(body, [error(LATE, 400)])
        assert (seen.head.status, seen.body, seen.head.headers) == (400, error(LATE, 400).body, error("").headers)
        assert seen.reply is None


def test_other_requests_of_the_server_pass_byte_for_byte():
    refusals = Refusals()
    play(ask(messages=TALK), [error(LATE, 400), reply("ok")], refusals=refusals)
    everything = [
        *(Rewording(step) for step in get_args(Adaptation) if step not in NOT_REMEMBERED),
        Rewording(
            "without_params", ("strict", "store", "stream_options", "thinking_token_budget", "reasoning_content")
        ),
        Rewording("tool_choice", ("named", "required", "auto")),
    ]
    for rewording in everything:
        refusals.add(("local", "m"), rewording, 100.0)
    body = b'{"model":"m", "messages":[{"role":"user","content":"hi"}],  "odd": 1.0}'
    seen = play(body, [reply("ok")], refusals=refusals)
    assert seen.sent[0].body == body
    assert seen.body == reply("ok").body
    assert play(ask(messages=TALK, model="n"), [reply("ok")], refusals=refusals).reply is None


def test_developer_messages_and_parts():
    """Qwen3.5's template knows no `developer`."""
    parts = [{"type": "text", "text": "Now in French."}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    talk = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "developer", "content": parts},
    ]
    seen = play(ask(messages=talk), [error("Unexpected message role.", 400), reply("ok")])
    assert seen.bodies[1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "(System message)\n"}, *parts]},
    ]


def test_in_prompt_mode_too():
    seen = play(ask(TOOL, messages=TALK), [error(LATE, 400), reply("ok")], options={"mode": "prompt"})
    sent = seen.bodies[1]["messages"]
    assert [item["role"] for item in sent] == [item["role"] for item in SENT]
    assert sent[3] == SENT[3]


def test_the_profile_may_say_so_from_the_start():
    seen = play(ask(TOOL, messages=TALK), [reply("ok")], target=target(system_place="first"))
    assert seen.bodies[0]["messages"] == SENT


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_empty_list_of_tools_is_left_out(streamed):
    refusals = Refusals()
    body = {**ask(stream=streamed), "tools": [], "tool_choice": "auto", "stop": ["x"]}
    answer = answered(streamed=streamed)
    seen = play(body, [error(EMPTY, 400), answer], refusals=refusals)
    assert b"Il pleut." in seen.body
    assert not seen.bodies[1].keys() & {"tools", "tool_choice"}
    assert seen.bodies[1]["stop"] == ["x"]
    later = play(body, [answer], refusals=refusals)
    assert "tools" not in later.bodies[0]


def test_a_choice_without_tools_is_left_out():
    refused = error("When using `tool_choice`, `tools` must be set.", 400)
    seen = play(ask(tool_choice="auto"), [refused, reply("ok")])
    assert "tool_choice" not in seen.bodies[1]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_choice_that_thinking_forbids_becomes_a_wish(choice, streamed):
    refusals = Refusals()
    body = ask(TOOL, tool_choice=choice, stream=streamed)
    one = {"tool_calls": [{"index": 0, **CALLED["calls"][0]}]}
    answer = stream(one, finish="tool_calls") if streamed else reply(**CALLED)
    seen = play(body, [error(THINKING, 400), answer], refusals=refusals)
    assert "tool_choice" not in seen.bodies[1]
    assert "tools" in seen.bodies[1]
    assert seen.bodies[1]["messages"][0]["content"].startswith("Call ")
    assert [made.name for made in seen.reply.calls] == ["get_weather"]
    assert "tool_choice" not in play(body, [answer], refusals=refusals).bodies[0]
    # it is refused while the model thinks: a request that says otherwise is sent as it comes
    awake = play({**body, "thinking": {"type": "disabled"}}, [answer], refusals=refusals)
    assert "tool_choice" in awake.bodies[0]


def test_a_wish_that_is_not_followed_is_asked_for_again():
    seen = play(ask(TOOL, tool_choice="required"), [error(THINKING, 400), reply("It rains."), reply(**CALLED)])
    assert [made.name for made in seen.reply.calls] == ["get_weather"]


@pytest.mark.parametrize(
    ("given", "text", "kept"),
    [
        ({"store": True}, 'json: unknown field "store"', {}),
        ({"metadata": {"a": "b"}, "store": True}, "Unrecognized request arguments supplied: metadata, store", {}),
        ({"reasoning_effort": "low"}, "Unknown parameter: 'reasoning_effort'.", {}),
        ({"parallel_tool_calls": True}, "Extra inputs are not permitted: parallel_tool_calls", {}),
        ({"max_tokens": 5}, "'max_tokens' is not supported with this model.", {"max_completion_tokens": 5}),
        ({"max_completion_tokens": 5}, 'json: unknown field "max_completion_tokens"', {"max_tokens": 5}),
    ],
)
@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["plain", "tools"])
def test_a_parameter_that_a_server_does_not_know_is_left_out(given, text, kept, tools):
    refusals = Refusals()
    body = ask(*tools, **given, stop=["x"], temperature=0.5)
    answer = reply(**CALLED) if tools else reply("ok")
    seen = play(body, [error(text, 400), answer], refusals=refusals)
    expected = {key: value for key, value in body.items() if key not in given} | kept
    assert seen.bodies[1] == expected
    assert play(body, [answer], refusals=refusals).bodies[0] == expected


def test_keys_of_a_history_that_a_server_does_not_know():
    """Groq refuses what other servers' replies hold, and clients send back."""
    said = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm.", "refusal": "", "annotations": []}
    body = ask(messages=[*TALK[2:3], said, *TALK[5:]])
    refused = [
        error(
            f"'messages.1' : for 'role:assistant' the following must be satisfied: property '{key}' is unsupported", 400
        )
        for key in ("reasoning_content", "refusal", "annotations")
    ]
    seen = play(body, [*refused, reply("ok")])
    assert seen.bodies[-1]["messages"] == [TALK[2], {"role": "assistant", "content": "Hi."}, TALK[5]]


def test_parameters_that_are_refused_one_after_the_other():
    refused = [error(f'json: unknown field "{name}"', 400) for name in ("store", "metadata", "service_tier")]
    body = ask(store=True, metadata={}, service_tier="auto")
    seen = play(body, [*refused, reply("ok")])
    assert seen.bodies[-1] == ask()


def test_two_names_of_the_limit_are_not_tried_for_ever():
    one = error("'max_tokens' is not supported with this model.", 400)
    other = error('json: unknown field "max_completion_tokens"', 400)
    seen = play(ask(max_tokens=5), [one, other, one])
    assert seen.body == one.body


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"stop": ["x"]}, "stop"),
        ({"temperature": 0.5}, "temperature"),
        ({"tools": [TOOL]}, "tools"),
    ],
)
def test_what_changes_the_answer_is_never_left_out(given, name):
    refused = error(f"Unknown parameter: '{name}'.", 400)
    seen = play(ask() | given, [refused])
    assert (seen.head.status, seen.body) == (400, refused.body)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_strict_is_left_out_and_enforced_here(streamed):
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    refused = error("Unknown parameter: 'tools[0].function.strict'.", 400)
    wrong = {"calls": [call("get_weather", {"days": 1})], "finish": "tool_calls"}
    if streamed:
        answers = [
            stream({"tool_calls": [{"index": 0, **made["calls"][0]}]}, finish="tool_calls") for made in (wrong, CALLED)
        ]
    else:
        answers = [reply(**wrong), reply(**CALLED)]
    seen = play(ask(strict, stream=streamed), [refused, *answers])
    assert "strict" in seen.bodies[0]["tools"][0]["function"]
    assert all("strict" not in body["tools"][0]["function"] for body in seen.bodies[1:])
    assert [made.arguments for made in seen.reply.calls] == [{"city": "Paris"}]


@pytest.mark.parametrize(
    ("text", "status", "remembered"),
    [
        ("Failed to advance FSM for request r for tokens 1. Please file an issue.", 500, True),
        ("Unexpected: grammar rejected tokens [1] for request r. Terminating request.", 500, True),
        ("Internal server error", 500, False),  # what vLLM 0.32 tells of it
    ],
)
def test_a_grammar_that_fails_is_left_out(text, status, remembered):
    refusals = Refusals()
    body = ask(TOOL, tool_choice="required")
    seen = play(body, [error(text, status), reply(**CALLED)], refusals=refusals)
    assert "tool_choice" not in seen.bodies[1]
    assert seen.bodies[1]["messages"][0]["content"].startswith("Call one of the tools now")
    assert ("tool_choice" not in play(body, [reply(**CALLED)], refusals=refusals).bodies[0]) == remembered


def test_without_a_forced_call_there_is_no_grammar_to_leave_out():
    seen = play(ask(TOOL), [error("Failed to advance FSM for request r", 500), reply("ok")])
    assert seen.headers["x-promptools-mode"] == "prompt"


HANGS = Answer(0, broken=Failed("timeout", "the time for this request is up", 0.0, Late()))


def test_a_forced_call_that_hangs_is_asked_for_without_a_grammar():
    seen = play(ask(TOOL, tool_choice="required"), [HANGS, reply(**CALLED)], attempt_timeout=5.0)
    assert "tool_choice" not in seen.bodies[1]
    with pytest.raises(Late):
        play(ask(TOOL, tool_choice="required"), [HANGS, HANGS], attempt_timeout=5.0)
    with pytest.raises(Late):  # not forced
        play(ask(TOOL), [HANGS], attempt_timeout=5.0)
    with pytest.raises(Late):  # the client's own time is up
        play(ask(TOOL, tool_choice="required"), [HANGS])


def test_a_remedy_that_did_not_help_is_not_remembered():
    refusals = Refusals()
    refused = error("Conversation roles must alternate user/assistant/user/assistant/...", 400)
    play(ask(TOOL), [refused, refused, reply("ok")], refusals=refusals)
    assert refusals.get(("local", "m"), 101.0) == ()


@pytest.mark.parametrize("text", [LATE, EMPTY])
def test_in_a_stream_under_200(text):
    body = {**ask(stream=True, messages=TALK), "tools": []}
    refused = Answer(200, b"data: " + json.dumps({"error": {"message": text, "code": 400}}).encode() + b"\n\n")
    refused.headers = (("content-type", "text/event-stream"),)
    seen = play(body, [refused, stream("ok")])
    assert seen.choice().content == "ok"


# -- a budget for thoughts


@pytest.mark.parametrize("key", ["thinking_token_budget", "thinking_budget_tokens", None])
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_budget_reaches_the_servers_that_have_one(api, tools, key):
    body, how = request(api, tools=tools, streamed=False, talk=TALK[2:3])
    body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    seen = play(body, [reply("ok")], target=target(thinking_budget=key), **how)
    budgets = {name: value for name, value in seen.bodies[0].items() if name.startswith("thinking_")}
    assert budgets == ({key: 2000} if key else {})
    if api == "messages":
        assert seen.bodies[0]["reasoning_effort"] == "low"


@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "enabled", "budget_tokens": 0}, "high", None])
def test_without_a_budget_nothing_is_sent(thinking):
    body = ask(TOOL, thinking=thinking)
    seen = play(body, [reply("ok")], target=target(thinking_budget="thinking_token_budget"))
    assert "thinking_token_budget" not in seen.bodies[0]


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_budget_that_is_refused_is_left_out_and_the_effort_stays(api, tools):
    text = "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser"
    refusals = Refusals()
    body, how = request(api, tools=tools, streamed=False, talk=TALK[2:3])
    body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    how |= {"target": target(thinking_budget="thinking_token_budget"), "refusals": refusals}
    seen = play(body, [error(text, 400), reply("ok")], **how)
    assert seen.bodies[0]["thinking_token_budget"] == 2000
    assert "thinking_token_budget" not in seen.bodies[1]
    if api == "messages":
        assert seen.bodies[1]["reasoning_effort"] == "low"
    assert "thinking_token_budget" not in play(body, [reply("ok")], **how).bodies[0]


# -- the same request once more


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"temperature": 0}, {"temperature": 0.2, "seed": 1}),
        ({"temperature": 0.0, "seed": 7}, {"temperature": 0.2, "seed": 8}),
        ({"temperature": 0.7, "seed": 7}, {"temperature": 0.7, "seed": 8}),
        ({"temperature": 0, "seed": 2**31 - 1}, {"temperature": 0.2, "seed": 0}),
        ({"temperature": 0.7, "seed": -1}, {"temperature": 0.7, "seed": -1}),
        ({"temperature": 0.7}, {"temperature": 0.7}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["plain", "tools"])
def test_a_second_sample_is_another_one(given, changed, tools):
    cut = reply("", reasoning="Hm.")
    where = target(modes=("native",))
    seen = play(ask(*tools, **given), [cut, reply("ok")], target=where)
    sent = {key: seen.bodies[1][key] for key in ("temperature", "seed") if key in seen.bodies[1]}
    assert sent == changed


def test_a_second_sample_by_ollamas_options():
    body = {"model": "m", "messages": TALK[2:3], "stream": False, "options": {"temperature": 0, "seed": 3, "top_k": 1}}
    lost = Answer(200, json.dumps({"model": "m", "message": {"content": ""}, "done": True, "eval_count": 40}).encode())
    good = Answer(200, json.dumps({"model": "m", "message": {"content": "ok"}, "done": True, "eval_count": 2}).encode())
    how = {"front": OLLAMA_API, "url": "http://server/api/chat", "target": target(wire="ollama", modes=("native",))}
    seen = play(body, [lost, good], **how)
    assert seen.bodies[1]["options"] == {"temperature": 0.2, "seed": 4, "top_k": 1}
