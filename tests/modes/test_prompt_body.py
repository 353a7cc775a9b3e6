import json

import pytest

from promptools import dialects
from promptools.errors import UsageError
from promptools.modes.prompt_mode import prepare_prompt
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.schema import Tools
from promptools.types import Call, Result

CITY = {"type": "object", "properties": {"city": {"type": "string", "pattern": "^.+$"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get it", "parameters": CITY}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]
USER = {"role": "user", "content": "hi"}
CALLED = {
    "role": "assistant",
    "content": "Let me look.",
    "reasoning": "hm",
    "tool_calls": [
        {"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}},
        {"id": "c2", "function": {"name": "ping", "arguments": ""}},
    ],
}
RESULTS = [
    {"role": "tool", "tool_call_id": "c2", "content": "pong"},
    {"role": "tool", "tool_call_id": "c1", "content": "4 C"},
]
JSON = dialects.get("json")
PAST = [Call("c1", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}'), Call("c2", "ping", {}, "{}")]
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
AFTER_RESULTS = (
    "If these results answer the user, write the answer now in plain text. If an error can be mended, or a step that"
    " the user asked for is still missing, make the next call."
)
AFTER_FAILURE = "A call failed. If its result says what is right, call the tool again with that."


def sent(messages=(USER,), profile=None, system_prompt="", **body):
    request = {"model": "m", "messages": list(messages), **body}
    before = json.dumps(request)
    upstream = prepare_prompt(parse_request(request, profile or Profile(), system_prompt=system_prompt))
    assert json.dumps(request) == before
    return upstream


def block(names=None, dialect=JSON, **options):
    tools = [tool for tool in TOOLS if names is None or tool["function"]["name"] in names]
    return dialect.render_tools(Tools(tools), **options)


def test_names_that_harmony_does_not_take():
    odd = {"type": "function", "function": {"name": "my.tool/x", "parameters": CITY}}
    upstream = sent(tools=[odd, TOOLS[1]], promptools={"dialect": "harmony"})
    assert upstream.client_names == {"my.tool_x": "my.tool/x"}
    assert upstream.notes == ("the tool 'my.tool/x' was sent as 'my.tool_x'",)
    assert sent(tools=[odd, TOOLS[1]]).client_names == {}


def test_the_server_never_hears_of_tools():
    told = {"tool_choice": "auto", "parallel_tool_calls": True, "functions": None, "function_call": None}
    upstream = sent(tools=TOOLS, seed=1, **told)
    assert upstream.body == {
        "model": "m",
        "seed": 1,
        "messages": [{"role": "system", "content": block(parallel=True, required=False)}, USER],
    }
    assert (upstream.dialect, upstream.notes) == ("json", ())


def test_the_tools_join_the_system_message_that_is_there():
    system = {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}
    more = {"role": "developer", "content": "Be brief."}
    upstream = sent([system, more, USER], tools=TOOLS)
    assert upstream.body["messages"] == [{"role": "system", "content": f"Be kind.\n\nBe brief.\n\n{block()}"}, USER]


@pytest.mark.parametrize(
    ("placement", "texts"),
    [("prepend", "mine yours tools"), ("append", "yours tools mine"), ("replace", "mine tools")],
)
def test_every_placement_keeps_the_tools(placement, texts):
    words = {"mine": "mine", "yours": "yours", "tools": block()}
    profile = Profile(system_prompt_placement=placement)
    said = sent([{"role": "system", "content": "yours"}, USER], profile, "mine", tools=TOOLS).body["messages"]
    assert said[0]["content"] == "\n\n".join(words[each] for each in texts.split())


def test_the_request_can_name_the_dialect():
    upstream = sent(tools=TOOLS, promptools={"dialect": "hermes"})
    assert upstream.dialect == "hermes"
    assert upstream.body["messages"][0]["content"] == block(dialect=dialects.get("hermes"))
    with pytest.raises(UsageError, match="klingon"):
        sent(tools=TOOLS, promptools={"dialect": "klingon"})


def test_history_is_written_in_the_dialect_itself():
    upstream = sent([USER, CALLED, *RESULTS, USER], tools=TOOLS)
    calls = JSON.render_calls(PAST)
    results = JSON.render_results([Result("c2", "ping", "pong"), Result("c1", "get_weather", "4 C")])
    assert upstream.body["messages"][1:] == [
        USER,
        {"role": "assistant", "content": f"Let me look.\n{calls}", "reasoning_content": "hm"},
        {"role": "user", "content": results},
        USER,
    ]


def test_a_result_that_is_flagged_is_written_as_an_error():
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    history = [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "none", "is_error": True}]
    assert sent(history, tools=TOOLS).body["messages"][-1]["content"].startswith("Tool error (ls):\nnone")
    del history[-1]["is_error"]
    assert sent(history, tools=TOOLS).body["messages"][-1]["content"].startswith("Tool result (ls):\nnone")


def test_a_call_without_words_is_the_call_alone():
    said = sent([USER, {**CALLED, "content": None}, {"role": "assistant", "content": None}], tools=TOOLS)
    calls = JSON.render_calls(PAST)
    assert [each["content"] for each in said.body["messages"][2:]] == [calls, ""]


def test_roles_alternate_where_they_must():
    profile = Profile(alternate_roles=True, system_role=False)
    said = sent([{"role": "system", "content": "s"}, USER, CALLED, *RESULTS, USER], profile, tools=TOOLS).body[
        "messages"
    ]
    assert [each["role"] for each in said] == ["user", "assistant", "user"]
    assert said[0]["content"] == f"s\n\n{block()}\n\nhi"
    assert said[2]["content"].endswith("\n\nhi")


def test_images_are_kept():
    seen = {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, IMAGE]}
    said = sent([seen, CALLED, result], tools=TOOLS).body["messages"]
    assert said[1] == seen
    text = f"{JSON.render_results([Result('c1', 'get_weather', 'a')])}\n\n{AFTER_RESULTS}"
    assert said[3] == {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}
    flat = sent([CALLED, result], Profile(content_parts=False), tools=TOOLS).body["messages"]
    assert flat[-1] == {"role": "user", "content": text}


def test_results_at_the_end_are_followed_by_what_to_do_with_them():
    def last(*more, **body):
        return sent([USER, CALLED, *RESULTS, *more], **{"tools": TOOLS, **body}).body["messages"]

    shown = last()[-1]["content"]
    assert shown.endswith(f"4 C\n\n{AFTER_RESULTS}")
    assert shown.count(AFTER_RESULTS) == 1
    assert AFTER_RESULTS not in str(last(USER))
    assert AFTER_RESULTS in last(USER, CALLED, RESULTS[1])[-1]["content"]
    assert str(last(USER, CALLED, RESULTS[1])).count(AFTER_RESULTS) == 1


def ends_with(*contents, after=(), **keys):
    """What follows the last result of a conversation in which every content is the result of a call of its own."""
    messages = [USER]
    for number, content in enumerate(contents):
        call = {"id": f"c{number}", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": content, **keys},
        ]
    return sent([*messages, *after], tools=TOOLS).body["messages"][-1]["content"].rpartition("\n\n")[2]


@pytest.mark.parametrize(
    "result",
    [
        '{"error": "unknown city; known are Oslo and Bergen"}',
        ' {"status": 404, "error": {"message": "no such city"}}',
        '{"error": true, "message": "busy"}',
        "error: no such city",
        "Error: no such city",
        "ValueError: no such city",
        "Error executing tool get_weather: no such city",
    ],
)
def test_an_error_is_followed_by_how_to_mend_it(result):
    assert ends_with(result) == AFTER_FAILURE


def test_an_error_that_the_api_flags_is_one_whatever_it_says():
    assert ends_with("no such city", is_error=True) == AFTER_FAILURE


@pytest.mark.parametrize(
    "result",
    [
        "4 C",
        "",
        '{"error": null, "temperature": 4}',
        '{"error": "", "temperature": 4}',
        '{"value": 4, "error": 0.5}',
        '{"error": [], "temperature": 4}',
        '{"items": [{"error": "late"}]}',
        '{"error": "late"',
        '{"error": ' * 100_000,
        "Errors fell by half in May.",
        "error rates: 4 %",
        "The log says: error: disk full",
    ],
)
def test_a_result_that_only_tells_of_errors_is_followed_by_the_usual_words(result):
    assert ends_with(result) == AFTER_RESULTS


def test_of_several_results_one_that_is_an_error_is_enough():
    results = [{**RESULTS[0], "content": "error: too late"}, RESULTS[1]]
    assert sent([USER, CALLED, *results], tools=TOOLS).body["messages"][-1]["content"].endswith(AFTER_FAILURE)


def after_steps(*steps, **keys):
    """What follows the last results; a step maps the tools that one reply calls to their results."""
    messages = [USER]
    for number, step in enumerate(steps):
        calls = [{"id": f"{number}{name}", "function": {"name": name, "arguments": "{}"}} for name in step]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": f"{number}{name}", "content": result} for name, result in step.items()
        ]
    body = sent(messages, **{"tools": TOOLS, **keys}).body
    return body["messages"][-1]["content"].rpartition("\n\n")[2]


FAILED = {"get_weather": '{"error": "no such city"}'}
FOUND = {"ping": "Oslo is 0301"}
REMINDER = (
    "get_weather failed before. If its result is still missing, call get_weather again now with what these results say."
)
NEW_ARGUMENTS = "get_weather failed. Call get_weather again now, with other arguments, taken from the other results."


def test_after_another_tool_found_something_the_failed_call_is_still_due():
    assert after_steps(FAILED, FOUND) == REMINDER


def test_the_same_call_made_beside_the_one_that_helps_needs_other_arguments():
    """Where the hint about a repeated call stands behind the error, it is an error still."""
    assert after_steps(FAILED, {**FOUND, **FAILED}) == NEW_ARGUMENTS


def test_several_failed_tools_are_named_together():
    both = {"get_weather": "error: no such city", "ping": "error: no such host"}
    tools = [*TOOLS, {"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    line = after_steps(both, {"look_up": "0301"}, tools=tools)
    assert line == REMINDER.replace("get_weather", "get_weather and ping")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([FAILED, {"get_weather": "4 C"}], id="mended"),
        pytest.param([FAILED, {**FOUND, "get_weather": "4 C"}], id="mended beside another call"),
        pytest.param([FAILED, {"ping": "error: no such host"}], id="nothing was found"),
        pytest.param([{**FOUND, **FAILED}, {**FOUND, **FAILED}], id="nothing new was found"),
        pytest.param([FAILED, FOUND, FOUND], id="reminded already"),
        pytest.param([FAILED, FAILED, FOUND], id="failed twice"),
        pytest.param([{"old_tool": "error: gone"}, FOUND], id="no longer offered"),
    ],
)
def test_a_failed_call_is_not_asked_for_again(steps):
    assert after_steps(*steps) == AFTER_RESULTS


def test_only_the_first_failure_since_the_user_spoke_is_to_be_mended():
    failed = "error: no such city"
    assert ends_with("4 C", failed) == AFTER_FAILURE
    assert ends_with(failed, failed) == AFTER_RESULTS
    assert ends_with(failed, "4 C") == AFTER_RESULTS
    assert ends_with(failed, "4 C", failed) == AFTER_RESULTS
    answered = [
        {"role": "assistant", "content": "There is none."},
        USER,
        CALLED,
        RESULTS[0],
        {**RESULTS[1], "content": failed},
    ]
    assert ends_with(failed, after=answered) == AFTER_FAILURE


def test_where_a_call_is_due_nothing_follows_the_results():
    content = sent([USER, CALLED, *RESULTS], tools=TOOLS, tool_choice="required").body["messages"][-1]["content"]
    assert content.endswith("4 C")


@pytest.mark.parametrize("body", [{"tool_choice": "none"}, {"tools": []}])
def test_where_no_call_is_possible_the_answer_is_asked_for(body):
    """Qwen2.5-Coder-0.5B wrote its last call once more, as text."""
    messages = [USER, CALLED, *RESULTS]
    content = sent(messages, **{"tools": TOOLS, **body}).body["messages"][-1]["content"]
    assert content.endswith("4 C\n\nAnswer the user now, in plain text.")
    form = {"response_format": {"type": "json_object"}}
    content = sent(messages, **{"tools": TOOLS, **body, **form}).body["messages"][-1]["content"]
    assert content.endswith("4 C\n\nAnswer the user now.")
    assert "Answer the user" not in str(sent([USER, CALLED, *RESULTS, USER], **{"tools": TOOLS, **body}).body)


def test_an_answer_in_json_is_not_asked_for_in_plain_text():
    form = {"type": "json_object"}
    content = sent([USER, CALLED, *RESULTS], tools=TOOLS, response_format=form).body["messages"][-1]["content"]
    assert AFTER_RESULTS.replace(" in plain text", "") in content


def test_without_tools_to_offer_there_is_no_block():
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        upstream = sent([USER, CALLED, *RESULTS], response_format={"type": "json_object"}, **body)
        assert upstream.body["messages"][0] == USER
        assert upstream.body["response_format"] == {"type": "json_object"}
        assert upstream.dialect is None


def test_tools_of_other_types_are_told_of():
    upstream = sent(tools=[*TOOLS, {"type": "web_search"}])
    assert upstream.notes == ("prompt mode cannot offer the tool of type 'web_search'",)


@pytest.mark.parametrize(("given", "stop"), [(None, ["X"]), ("a", ["a", "X"]), (["a", "X"], ["a", "X"]), ([], ["X"])])
def test_the_dialects_stop_strings_are_added(given, stop, monkeypatch):
    monkeypatch.setattr(type(JSON), "stop", ("X",), raising=False)
    assert sent(tools=TOOLS, stop=given).body["stop"] == stop


def test_a_named_tool_is_offered_alone():
    upstream = sent(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "ping"}})
    assert upstream.body["messages"][0]["content"] == block(["ping"], required=True)


FORCED = {
    "type": "object",
    "properties": {
        "tool": {"const": "get_weather"},
        "arguments": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    "required": ["tool", "arguments"],
    "additionalProperties": False,
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "reply", "schema": FORCED, "strict": True}},
        ),
        ("structured_outputs", {"json": FORCED}),
        ("json_schema", FORCED),
        ("format", FORCED),
    ],
)
def test_a_call_that_must_come_is_forced_where_that_can_be(key, value):
    body = {"tools": TOOLS, "tool_choice": NAMED, "promptools": {"dialect": "hermes"}}
    upstream = sent(profile=Profile(constrained=key), **body)
    assert upstream.body[key] == value
    assert upstream.dialect == "json"
    free = sent(profile=Profile(constrained=key, constrained_ok=False), **body)
    assert key not in free.body
    assert free.dialect == "hermes"


def test_any_of_several_tools_can_be_forced():
    upstream = sent(profile=Profile(constrained="json_schema"), tools=TOOLS, tool_choice="required")
    forms = upstream.body["json_schema"]["anyOf"]
    assert [each["properties"]["tool"]["const"] for each in forms] == ["get_weather", "ping"]
    assert forms[0] == FORCED


ANSWER = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
WANTED = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER}}


def test_a_wanted_answer_is_forced_by_no_grammar_that_leaves_calls_another_form():
    upstream = sent(profile=Profile(constrained="response_format"), tools=TOOLS[:1], response_format=WANTED)
    assert "response_format" not in upstream.body
    assert json.dumps(ANSWER) in upstream.body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("form", "words"), [(WANTED, json.dumps(ANSWER)), ({"type": "json_object"}, "one JSON object")]
)
def test_a_wanted_answer_is_put_into_words_where_nothing_can_be_forced(form, words):
    upstream = sent(tools=TOOLS, response_format=form)
    assert "response_format" not in upstream.body
    assert words in upstream.body["messages"][0]["content"]
    assert any("response_format" in note for note in upstream.notes)


def test_a_call_that_must_come_outranks_a_wanted_answer():
    upstream = sent(profile=Profile(constrained="json_schema"), tools=TOOLS, tool_choice=NAMED, response_format=WANTED)
    assert "response_format" not in upstream.body
    assert upstream.body["json_schema"] == FORCED
