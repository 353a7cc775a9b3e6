"""Chat messages as Harmony messages."""

import json
import tomllib
from pathlib import Path

import oracle
import pytest

from promptools import Tools, UsageError, parse
from promptools.harmony.conversation import Options, answer_formats, convert, parse_effort
from promptools.harmony.recipients import RecipientNames
from promptools.harmony.renderer import AnswerFormat, DeveloperContent, SystemContent, render_messages

CASES = tomllib.loads((Path(__file__).parent / "converted.toml").read_text("utf-8"))["case"]
WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
EXEC = {"name": "container.exec", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}


def summaries(messages):
    return [
        render_messages([message], reply_role=None)
        for message in messages
        if message.role not in {"system", "developer"}
    ]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in CASES])
def test_a_row(row):
    options = Options(thoughts=row.get("thoughts", "last-final"), order=row.get("order", "analysis-first"))
    converted = convert(json.loads(row["messages"]), options=options)
    assert summaries(converted.messages) == row["said"]
    assert list(converted.notes) == row.get("notes", [])


def test_nothing_is_one_system_message():
    (only,) = convert([]).messages
    assert (only.role, only.content) == ("system", SystemContent())


def test_what_the_client_says_as_system_and_developer_is_one_developer_message():
    messages = [
        {"role": "system", "content": "One."},
        {"role": "developer", "content": [{"type": "text", "text": "Two."}]},
        {"role": "user", "content": "Hi."},
        {"role": "system", "content": ""},
        {"role": "system", "content": "Three."},
    ]
    converted = convert(messages, Tools([WEATHER]))
    assert [message.role for message in converted.messages] == ["system", "developer", "user"]
    content = converted.messages[1].content
    assert isinstance(content, DeveloperContent)
    assert content.instructions == "One.\n\nTwo.\n\nThree."
    assert [function.name for function in content.functions or ()] == ["get_weather"]


def test_what_the_system_message_says():
    options = Options(identity="You are Ann.", cutoff=None, date="2026-11-21", effort="high")
    content = convert([], options=options).messages[0].content
    assert content == SystemContent("You are Ann.", None, "2026-11-21", "high")


@pytest.mark.parametrize("where", ["developer", "system"])
def test_tools_are_declared(where, snapshot):
    tools = Tools([WEATHER, EXEC, {"name": "get-time"}])
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    assert render_messages(convert(asked, tools, options=Options(tools_in=where)).messages) == snapshot


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "()"),
        ({"type": "object", "properties": {}}, "()"),
        ({"type": "object", "title": "T", "properties": {}, "required": [], "additionalProperties": False}, "()"),
        ({"type": "object", "properties": {"a": {}}}, "(_: {\na?: any,\n})"),
        ({"type": "object", "description": "None."}, "(_: // None.\n{\n})"),
    ],
)
def test_a_function_that_takes_nothing(schema, text):
    text_of_request = render_messages(convert([], Tools([{"name": "f", "parameters": schema}])).messages)
    assert f"type f = {text} => any;" in text_of_request


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        (None, ()),
        ({"type": "text"}, ()),
        ({"type": "json_object"}, (AnswerFormat("answer", '{"type":"object"}'),)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": {"const": "é"}}},
            (AnswerFormat("n", '{"const":"é"}', "d"),),
        ),
        ({"type": "json_schema"}, (AnswerFormat("answer", "{}"),)),
    ],
)
def test_forms_of_the_answer(asked, form):
    assert answer_formats(asked) == form
    messages = convert([], response_format=asked).messages
    assert [message.content for message in messages[1:]] == ([DeveloperContent(formats=form)] if form else [])


@pytest.mark.parametrize(
    ("value", "effort"),
    [(None, "medium"), ("minimal", "low"), ("high", "high"), ("xhigh", "high"), (False, "low"), (True, "medium")],
)
def test_an_effort(value, effort):
    assert parse_effort(value) == effort


@pytest.mark.parametrize("value", ["very", 1, [], {}])
def test_an_unknown_effort_is_refused(value):
    with pytest.raises(UsageError, match="use one of none, minimal, low, medium, high"):
        parse_effort(value)


def test_a_user_s_name_stands_in_the_header():
    named = [
        {"role": "user", "name": "ann", "content": "Hi."},
        {"role": "assistant", "name": "bot", "content": "Hello."},
        {"role": "user", "name": "Ann <|end|>", "content": "Well?"},
        {"role": "system", "name": "sys", "content": "Be brief."},
        {"role": "user", "name": "", "content": "And?"},
    ]
    converted = convert(named)
    assert [(message.role, message.name) for message in converted.messages[2:]] == [
        ("user", "ann"), ("assistant", ""), ("user", ""), ("user", "")
    ]  # fmt: skip
    assert converted.notes == (
        "message 1: its name was left out; only a user's is written",
        "message 2: the user's name 'Ann <|end|>' was left out; it cannot be in a header",
        "message 3: its name was left out; only a user's is written",
    )
    assert "<|start|>user:ann<|message|>Hi.<|end|><|start|>assistant<|channel|>final" in render_messages(
        converted.messages
    )


@pytest.mark.oracle
def test_openai_harmony_writes_a_user_s_name_too():
    library = pytest.importorskip("openai_harmony")
    theirs = library.Message.from_author_and_content(library.Author.new(library.Role.USER, "ann"), "Hi.")
    ours = convert([{"role": "user", "name": "ann", "content": "Hi."}]).messages[-1:]
    assert oracle.encoding().decode_utf8(oracle.encoding().render(theirs)) == render_messages(ours, reply_role=None)


def test_an_unknown_role_is_refused():
    with pytest.raises(UsageError, match="Message 1 has the role 'bot'"):
        convert([{"role": "user", "content": "Hi."}, {"role": "bot"}])


def test_a_result_of_nothing_is_refused():
    with pytest.raises(UsageError, match="Message 0 is the result of a call that nobody made: no call has the id 'x'"):
        convert([{"role": "tool", "tool_call_id": "x", "content": "a"}])


def test_each_tool_has_the_recipient_that_a_reply_calls():
    names = RecipientNames(["get_weather", "container.exec", "get-time"])
    recipients = ["functions.get_weather", "container.exec", "functions.get_time"]
    assert [names.address_of(name).recipient for name in ("get_weather", "container.exec", "get-time")] == recipients


SEARCH = {"name": "repo_browser.search", "description": "Search.", "parameters": WEATHER["parameters"]}
ABOUT = {"container": "Runs commands.\nIn a container.", "nothing": "No tool has it."}


def test_auto_declares_each_tool_where_the_model_learned_it(snapshot):
    tools = Tools([WEATHER, SEARCH, EXEC, {"name": "other.tool"}])
    assert render_messages(convert([], tools, options=Options(tools_in="auto", namespaces=ABOUT)).messages) == snapshot


def test_the_line_on_calls_of_functions_needs_functions():
    line = "Calls to these tools must go to the commentary channel"
    own = convert([], Tools([EXEC]), options=Options(tools_in="auto")).messages
    assert [message.role for message in own] == ["system"]
    assert line not in render_messages(own)
    both = convert([], Tools([EXEC, WEATHER]), options=Options(tools_in="auto", namespaces={"functions": "Mine."}))
    assert render_messages(both.messages).count(line) == 1
    assert "## functions\n\n// Mine.\nnamespace functions {" in render_messages(both.messages)


@pytest.mark.oracle
@pytest.mark.parametrize("described", [{}, ABOUT, {"functions": "Mine."}])
@pytest.mark.parametrize("tools", [[WEATHER, SEARCH, EXEC], [SEARCH, EXEC], [WEATHER]])
def test_openai_harmony_declares_them_so(tools, described):
    library, encoding = oracle.library(), oracle.encoding()
    spaces = {}
    for tool in tools:
        space, _, name = tool["name"].rpartition(".")
        described_tool = library.ToolDescription.new(name, tool.get("description", ""), tool["parameters"])
        spaces.setdefault(space or "functions", []).append(described_tool)
    system, developer = library.SystemContent.new(), library.DeveloperContent.new()
    for space, functions in spaces.items():
        config = library.ToolNamespaceConfig(name=space, description=described.get(space), tools=functions)
        place = developer if space == "functions" else system
        place.with_tools(config)
    contents = [(library.Role.SYSTEM, system)]
    contents += [(library.Role.DEVELOPER, developer)] if "functions" in spaces else []
    theirs = [library.Message.from_role_and_content(role, content) for role, content in contents]
    ids = encoding.render_conversation(library.Conversation.from_messages(theirs))
    ours = convert([], Tools(tools), options=Options(tools_in="auto", namespaces=described)).messages
    assert render_messages(ours, reply_role=None) == encoding.decode_utf8(ids)


HEADERS = ["<|channel|>analysis to={} code", " to={}<|channel|>analysis code", "<|channel|>commentary to={} json"]


@pytest.mark.parametrize("header", HEADERS)
def test_a_call_is_read_wherever_its_recipient_is(header):
    text = f'{header.format("container.exec")}<|message|>{{"command": "ls"}}<|call|>'
    (call,) = parse(text, Tools([EXEC]), expect="harmony").calls
    assert (call.name, call.arguments, call.fixes) == ("container.exec", {"command": "ls"}, ())
