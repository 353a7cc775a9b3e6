import json

import pytest

from promptools.modes.history import FIRST_USER_MESSAGE, alnum9_id
from promptools.modes.native_mode import IMAGES_FOLLOW, prepare_native
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile

CITY = {"type": "object", "properties": {"city": {"type": "string", "pattern": r"\S"}}, "required": ["city"]}


def tool(name="get_weather", parameters=CITY, **keys):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **keys}}


def sent(messages=(), profile=None, system_prompt="", **body):
    request = {"model": "m", "messages": list(messages) or [{"role": "user", "content": "hi"}], **body}
    before = json.dumps(request)
    upstream = prepare_native(parse_request(request, profile or Profile(), system_prompt=system_prompt))
    assert json.dumps(request) == before
    return upstream


def messages(*given, **profile):
    return sent(given, Profile(**profile)).body["messages"]


WEAK = frozenset(("auto",))
USER = {"role": "user", "content": "hi"}
PAST = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4 C"}


def test_what_the_server_takes_goes_on_as_it_is():
    body = {
        "tools": [tool(strict=True)],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "n": 2,
        "seed": 1,
        "messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}, USER, CALLED, RESULT],
    }
    upstream = sent(**body)
    assert upstream.body == {"model": "m", **body}
    assert (upstream.notes, dict(upstream.client_names), upstream.dialect, upstream.path) == (
        (),
        {},
        None,
        "chat/completions",
    )


def test_marks_are_never_sent():
    marked = {**tool(), "x-promptools": {"dangerous": True}}
    assert sent(tools=[marked]).body["tools"] == [tool()]


def test_a_stream_asks_for_its_usage_where_the_server_knows_it():
    assert sent(stream=True).body["stream_options"] == {"include_usage": True}
    kept = sent(stream=True, stream_options={"continuous_usage_stats": True}).body["stream_options"]
    assert kept == {"continuous_usage_stats": True, "include_usage": True}
    options = {"include_usage": True}
    assert "stream_options" not in sent(profile=Profile(stream_usage=False), stream=True, stream_options=options).body


def test_what_the_server_ignores_is_not_sent():
    weak = Profile(n=False, parallel_tool_calls=False, tool_choice=frozenset())
    body = sent(profile=weak, tools=[tool()], n=3, parallel_tool_calls=False, tool_choice="auto").body
    assert set(body) == {"model", "messages", "tools"}


NAMED = {"type": "function", "function": {"name": "b"}}
TWO = [tool("a"), tool("b")]


@pytest.mark.parametrize(
    ("choice", "heeded", "tools", "said"),
    [
        ("none", {"none"}, ["a", "b"], "none"),
        ("none", set(), None, None),
        ("auto", {"auto"}, ["a", "b"], "auto"),
        (None, {"auto"}, ["a", "b"], None),
        ("required", {"required"}, ["a", "b"], "required"),
        (NAMED, {"named"}, ["a", "b"], NAMED),
        (NAMED, {"required"}, ["b"], "required"),
    ],
)
def test_tool_choice_is_sent_as_far_as_it_is_heeded(choice, heeded, tools, said):
    upstream = sent(profile=Profile(tool_choice=frozenset(heeded)), tools=TWO, tool_choice=choice)
    offered = upstream.body.get("tools")
    assert (offered and [each["function"]["name"] for each in offered]) == tools
    assert upstream.body.get("tool_choice") == said
    assert upstream.body["messages"] == [USER]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("required", "Call one of the tools now; do not answer in plain text."),
        (NAMED, "Call the tool b now; do not answer in plain text."),
    ],
)
def test_a_choice_that_no_one_heeds_is_put_into_words(choice, words):
    upstream = sent(profile=Profile(tool_choice=WEAK), tools=TWO, tool_choice=choice)
    assert "tool_choice" not in upstream.body
    assert upstream.body["messages"] == [{"role": "system", "content": words}, USER]
    assert any("put into the prompt" in note for note in upstream.notes)


def test_other_tools_go_along_unless_one_is_named():
    search = {"type": "web_search"}
    assert sent(tools=[tool("b"), search]).body["tools"] == [tool("b"), search]
    only = Profile(tool_choice=frozenset(("required",)))
    assert sent(profile=only, tools=[tool("b"), search], tool_choice=NAMED).body["tools"] == [tool("b")]
    assert sent(tools=[search]).body["tools"] == [search]
    assert "tools" not in sent(profile=Profile(tool_choice=WEAK), tool_choice="none").body


def test_a_choked_on_schema_is_relaxed_and_named():
    upstream = sent(profile=Profile(relax_schema=True), tools=[tool(), tool("plain", {"type": "object"})])
    assert "pattern" not in json.dumps(upstream.body["tools"])
    (note,) = upstream.notes
    assert "'get_weather'" in note


def test_names_that_the_server_forbids_are_mapped_and_come_back():
    past = {**CALLED, "tool_calls": [{"id": "c1", "function": {"name": "graph.list", "arguments": "{}"}}]}
    done = {"role": "tool", "tool_call_id": "c1", "name": "graph.list", "content": "r"}
    choice = {"type": "function", "function": {"name": "graph.list"}}
    upstream = sent([USER, past, done], tools=[tool("graph.list"), tool("查天气")], tool_choice=choice)
    assert [each["function"]["name"] for each in upstream.body["tools"]] == ["graph_list", "tool"]
    assert upstream.client_names == {"graph_list": "graph.list", "tool": "查天气"}
    assert upstream.body["tool_choice"]["function"]["name"] == "graph_list"
    assert upstream.body["messages"][1]["tool_calls"][0]["function"]["name"] == "graph_list"
    assert upstream.body["messages"][2]["name"] == "graph_list"


def test_the_old_form_is_sent_in_the_new_one():
    old = {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": ""}}
    upstream = sent(
        [USER, old, {"role": "function", "name": "get_weather", "content": "r"}], functions=[tool()["function"]]
    )
    assert upstream.body["tools"] == [tool()]
    _, called, result = upstream.body["messages"]
    call_id = called["tool_calls"][0]["id"]
    assert called == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
    }
    assert result == {"role": "tool", "name": "get_weather", "content": "r", "tool_call_id": call_id}


def test_broken_arguments_do_not_brick_the_conversation():
    broken = {**CALLED, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"city": "Par'}}]}
    upstream = sent([USER, broken, RESULT])
    assert upstream.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert any("history" in note for note in upstream.notes)


def test_past_calls_take_the_servers_form():
    _, called, _ = messages(USER, CALLED, RESULT, history_arguments="object", null_content=False)
    assert called["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    assert called["content"] == ""


def test_mistrals_ids():
    _, called, result = messages(USER, CALLED, RESULT, tool_ids="alnum9")
    assert called["tool_calls"][0]["id"] == result["tool_call_id"] == alnum9_id("c1")


def test_empty_leftovers_are_taken_out():
    left = {
        "role": "assistant",
        "content": None,
        "tool_calls": [],
        "function_call": None,
        "refusal": None,
        "audio": None,
    }
    assert messages(USER, left)[1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_thoughts_go_back_under_the_servers_name(name):
    thought = {"role": "assistant", "content": "a", name: "hm"}
    assert messages(USER, thought, reasoning_field="thinking")[1] == {
        "role": "assistant",
        "content": "a",
        "thinking": "hm",
    }


def test_unknown_keys_of_a_past_call_stay():
    signed = {**PAST, "index": 0, "extra_content": {"signature": "s"}}
    called = messages(USER, {**CALLED, "tool_calls": [signed]})[1]
    assert called["tool_calls"][0]["extra_content"] == {"signature": "s"}
    assert "index" not in called["tool_calls"][0]


IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def test_images_of_results_follow_the_last_result():
    two = {**CALLED, "tool_calls": [{**PAST, "id": each} for each in ("c1", "c2")]}
    seen = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "look"}, IMAGE]}
    blind = {"role": "tool", "tool_call_id": "c2", "content": [IMAGE]}
    said = messages(USER, two, seen, blind, {"role": "user", "content": "and?"})
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert said[2]["content"] == f"look\n{IMAGES_FOLLOW}"
    assert said[3]["content"] == IMAGES_FOLLOW
    assert said[4]["content"] == [IMAGE, IMAGE]
    assert messages(USER, two, seen)[-1] == {"role": "user", "content": [IMAGE]}


def test_result_parts_are_joined_where_they_must_be():
    parts = {**RESULT, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert messages(USER, CALLED, parts)[2]["content"] == parts["content"]
    assert messages(USER, CALLED, parts, result_parts=False)[2]["content"] == "a\nb"
    assert messages(USER, CALLED, {**RESULT, "content": {"t": 1}})[2]["content"] == '{"t": 1}'


def test_text_parts_are_joined_where_they_must_be():
    user = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert messages(user)[0] == user
    assert messages(user, content_parts=False)[0]["content"] == "a\nb"
    seen = {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}
    assert messages(seen, content_parts=False)[0] == seen


def test_roles_alternate_where_the_template_demands_it():
    said = messages(
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "Hello!"},
        USER,
        {"role": "system", "content": "late"},
        {"role": "user", "content": [IMAGE]},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        alternate_roles=True,
    )
    assert said == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": FIRST_USER_MESSAGE},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "hi\n\nlate"}, IMAGE]},
        {"role": "assistant", "content": "a\n\nb"},
    ]


def test_calls_and_results_are_never_merged_away():
    said = messages(USER, CALLED, RESULT, {**RESULT, "tool_call_id": "x"}, CALLED, RESULT, USER, alternate_roles=True)
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool", "assistant", "tool", "user"]


def test_a_system_message_is_folded_where_there_is_no_such_role():
    system = {"role": "system", "content": "s"}
    assert messages(system, USER, system_role=False) == [{"role": "user", "content": "s\n\nhi"}]
    assert messages(system, CALLED, system_role=False)[0] == {"role": "user", "content": "s"}
    assert messages(system, system_role=False) == [{"role": "user", "content": "s"}]


@pytest.mark.parametrize(
    ("placement", "text"), [("prepend", "mine\n\nyours"), ("append", "yours\n\nmine"), ("replace", "mine")]
)
def test_the_configured_system_prompt_has_its_place(placement, text):
    profile = Profile(system_prompt_placement=placement)
    upstream = sent([{"role": "developer", "content": "yours"}, USER], profile, system_prompt="mine")
    assert upstream.body["messages"] == [{"role": "system", "content": text}, USER]
    without = sent([{"role": "system", "content": "yours"}, USER], profile)
    assert without.body["messages"][0]["content"] == "yours"


FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}
APART = Profile()
"""Of a server that nothing is known about no form is asked beside tools."""


def test_a_form_that_leaves_no_room_for_calls_is_put_into_words():
    upstream = sent(profile=APART, tools=[tool()], response_format=FORM)
    assert "response_format" not in upstream.body
    assert '{"enum": ["yes", "no"]}' in upstream.body["messages"][0]["content"]
    assert upstream.notes == ("response_format was put into the prompt: enforced, no call would be possible",)


def test_the_words_for_a_form_follow_those_for_a_choice():
    weak = Profile(format_beside_tools=False, tool_choice=WEAK)
    upstream = sent(profile=weak, tools=[tool()], response_format={"type": "json_object"}, system_prompt="Be brief.")
    system = upstream.body["messages"][0]["content"]
    assert system == "Be brief.\n\nAn answer that is no tool call is one JSON object and nothing else."


def test_a_form_is_no_matter_where_a_call_must_come():
    upstream = sent(profile=APART, tools=[tool()], tool_choice="required", response_format=FORM)
    assert "response_format" not in upstream.body
    assert upstream.body["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("profile", "body"),
    [
        (Profile(format_beside_tools=True), {"tools": [tool()], "response_format": FORM}),
        (APART, {"response_format": FORM}),
        (APART, {"tools": [tool()], "response_format": {"type": "text"}}),
        (APART, {"tools": [tool()], "tool_choice": "none", "response_format": FORM}),
        (Profile(format_beside_tools=True), {"tools": [tool()], "tool_choice": "none", "response_format": FORM}),
    ],
)
def test_a_form_stays_where_it_takes_nothing_away(profile, body):
    weak = Profile(format_beside_tools=profile.format_beside_tools, tool_choice=WEAK)
    assert sent(profile=weak, **body).body["response_format"] == body["response_format"]


def test_tools_that_may_not_be_called_make_room_for_a_form():
    upstream = sent(profile=APART, tools=[tool()], tool_choice="none", response_format=FORM)
    assert (upstream.body["response_format"], "tools" in upstream.body) == (FORM, False)
    assert upstream.notes == (
        "tool_choice none: no tools were sent, since beside them it cannot force response_format",
    )
