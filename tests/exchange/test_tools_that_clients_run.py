"""Tools that an API defines by their type and the client runs: offered as functions, called in the client's form."""

import json
import typing
from dataclasses import dataclass, field

import anthropic.types.beta
import pytest
from anthropic.types import ToolUnionParam
from many_rows import every_row
from openai.types import responses
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted import play, reply, stream, target

from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.wire import responses_in, typed_tools

RESPONSES, MESSAGES = "http://server/v1/responses", "http://server/v1/messages"
QUESTION = {"role": "user", "content": "What is in the folder?"}
GPT_OSS = target(family="gpt-oss")
INPUT_ITEMS: TypeAdapter = TypeAdapter(list[responses.ResponseInputItemParam])
EVENT: TypeAdapter = TypeAdapter(ResponseStreamEvent)


@dataclass(frozen=True)
class Row:
    """A tool with a call of it."""

    tool: dict
    function: str
    """The name of the function that the model is offered."""
    arguments: dict
    item: dict
    """The fields of the item of the call, without the ids."""
    output: dict
    """The item of the call's output, without the id."""
    result: str
    """What the model reads of it."""
    begun: dict = field(default_factory=dict)
    """The fields in which the item differs at its beginning."""
    past: dict | None = None
    """The arguments in the history, where the item cannot tell them word for word."""
    family: str | None = None
    name: str = ""


def shell_row(function, arguments, commands, timeout=None, most=None, **more):
    action = {"commands": commands, "timeout_ms": timeout, "max_output_length": most}
    out = [{"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    return Row(
        {"type": "shell", "environment": {"type": "local"}},
        function,
        arguments,
        {"type": "shell_call", "action": action, "environment": {"type": "local"}},
        {"type": "shell_call_output", "output": out, "status": "completed"},
        "a.txt",
        {"action": action | {"commands": []}},
        **more,
    )


def local_row(function, arguments, action, **more):
    return Row(
        {"type": "local_shell"},
        function,
        arguments,
        {"type": "local_shell_call", "action": {"type": "exec", "env": {}, **action}},
        {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"},
        "a.txt",
        **more,
    )


def patch_row(operation, output, result, **more):
    begun = {"operation": operation | {"diff": ""}} if "diff" in operation else {}
    item = {"type": "apply_patch_call", "operation": operation}
    return Row({"type": "apply_patch"}, "apply_patch", operation, item, output, result, begun, **more)


PATCHED = {"type": "apply_patch_call_output", "status": "completed"}
OPENAI_ROWS = [
    shell_row("shell", {"commands": ["ls"]}, ["ls"], name="shell"),
    shell_row(
        "shell",
        {"commands": ["cd a", "ls 'b c'"], "timeout_ms": 5000, "max_output_length": 900},
        ["cd a", "ls 'b c'"],
        5000,
        900,
        name="shell with limits",
    ),
    shell_row(
        "container.exec",
        {"command": ["bash", "-lc", "ls | wc -l"], "timeout": 5000},
        ["ls | wc -l"],
        5000,
        family="gpt-oss",
        name="shell of gpt-oss",
    ),
    shell_row(
        "container.exec",
        {"command": ["ls", "-l", "my folder"]},
        ["ls -l 'my folder'"],
        family="gpt-oss",
        past={"command": ["bash", "-lc", "ls -l 'my folder'"]},
        name="program of gpt-oss",
    ),
    local_row("local_shell", {"command": ["ls"]}, {"command": ["ls"]}, name="local shell"),
    local_row(
        "local_shell",
        {"command": ["ls"], "env": {"A": "b"}, "timeout_ms": 9, "user": "u", "working_directory": "/w"},
        {"command": ["ls"], "env": {"A": "b"}, "timeout_ms": 9, "user": "u", "working_directory": "/w"},
        name="local shell with options",
    ),
    local_row(
        "container.exec",
        {"command": ["ls"], "workdir": "/w", "env": {"A": "b"}, "timeout": 9000},
        {"command": ["ls"], "env": {"A": "b"}, "timeout_ms": 9000, "working_directory": "/w"},
        family="gpt-oss",
        name="local shell of gpt-oss",
    ),
    patch_row(
        {"type": "create_file", "path": "a.py", "diff": "+x = 1\n"},
        {**PATCHED, "output": "Created a.py"},
        "Created a.py",
        name="create",
    ),
    patch_row({"type": "update_file", "path": "a.py", "diff": "@@\n-x\n+y"}, PATCHED, "completed", name="update"),
    patch_row(
        {"type": "delete_file", "path": "a.py"}, {**PATCHED, "status": "failed"}, "failed", name="delete, failed"
    ),
    patch_row(
        {"type": "delete_file", "path": "a.py"}, PATCHED, "completed", family="gpt-oss", name="apply_patch of gpt-oss"
    ),
    Row(
        {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
        "sql",
        {"input": "x"},
        {"type": "custom_tool_call", "name": "sql", "input": "x"},
        {"type": "custom_tool_call_output", "output": "1 row"},
        "1 row",
        {"input": ""},
        name="custom with a grammar",
    ),
]


def respond(row, answer, **more):
    body = {"model": "m", "input": [QUESTION], "tools": [row.tool], **more}
    keys = {"url": RESPONSES, "front": RESPONSES_API, "begin": serve_response}
    return play(body, [answer], target=target(family=row.family), **keys)


def called(name, arguments, *, streamed):
    text = json.dumps(arguments)
    if not streamed:
        return reply(calls=[(name, text, "c1")], finish="tool_calls")
    half = len(text) // 2
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": text[:half]}}
    rest = {"index": 0, "function": {"arguments": text[half:]}}
    return stream({"tool_calls": [first]}, {"tool_calls": [rest]}, finish="tool_calls")


def sent_name(row):
    """Return the function's name as servers take it in native mode."""
    return row.function.replace(".", "_")


def openai_rows(test):
    return every_row(OPENAI_ROWS, name=lambda row: row.name, group=lambda row: row.tool["type"])(test)


@openai_rows
def test_a_call_comes_in_the_tools_own_item(row):
    seen = respond(row, called(row.function, row.arguments, streamed=False))
    assert [tool["function"]["name"] for tool in seen.bodies[0]["tools"]] == [sent_name(row)]
    (item,) = seen.json["output"]
    assert {key: value for key, value in item.items() if key != "id"} == {
        **row.item, "status": "completed", "call_id": "c1",
    }  # fmt: skip
    assert seen.json["tools"] == [row.tool]
    (typed,) = Response.model_validate(seen.json).output
    assert typed.type == row.item["type"]


@openai_rows
def test_the_same_streamed(row):
    seen = respond(row, called(row.function, row.arguments, streamed=True), stream=True)
    events = [EVENT.validate_python(event) and event for event in seen.events]
    done = {**row.item, "id": events[-1]["response"]["output"][0]["id"], "status": "completed", "call_id": "c1"}
    begun = {**done, **row.begun, "status": "in_progress"}
    told = [{key: value for key, value in event.items() if key != "sequence_number"} for event in events[2:-1]]
    assert told[0] == {"type": "response.output_item.added", "output_index": 0, "item": begun}
    assert told[-1] == {"type": "response.output_item.done", "output_index": 0, "item": done}
    assert events[-1]["response"]["output"] == [done]
    commands = row.item["action"]["commands"] if row.item["type"] == "shell_call" else []
    if row.item["type"] == "custom_tool_call":
        told = told[:1]  # its events are those of its input
    assert told[1:-1] == [
        {"type": f"response.shell_call_command.{what}", "output_index": 0, "command_index": index, key: text}
        for index, command in enumerate(commands)
        for what, key, text in (("added", "command", ""), ("delta", "delta", command), ("done", "command", command))
    ]


@openai_rows
def test_a_past_call_and_its_output_are_the_functions(row):
    output = {"call_id": "c1", **row.output}
    item = {"id": "it_1", "call_id": "c1", "status": "completed", **row.item}
    INPUT_ITEMS.validate_python([item, output])
    seen = respond(row, reply("There is a.txt."), input=[QUESTION, item, output])
    _, call, result = seen.bodies[0]["messages"]
    (made,) = call["tool_calls"]
    assert (made["id"], made["function"]["name"]) == ("c1", sent_name(row))
    assert json.loads(made["function"]["arguments"]) == (row.past or row.arguments)
    assert result == {"role": "tool", "tool_call_id": "c1", "content": row.result}


def test_the_output_of_a_local_shell_may_name_its_call_by_id_alone():
    (row,) = (row for row in OPENAI_ROWS if row.name == "local shell")
    item = {"id": "lsh_1", "call_id": "c1", "status": "completed", **row.item}
    for name in ("c1", "lsh_1"):
        output = {"type": "local_shell_call_output", "id": name, "output": "a.txt"}
        seen = respond(row, reply("ok"), input=[QUESTION, item, output])
        assert seen.bodies[0]["messages"][-1]["tool_call_id"] == "c1"


def test_an_output_without_ids_is_of_no_call():
    tools = responses_in.ClientTools()
    items = [{"type": "local_shell_call", "call_id": "c1"}, {"type": "local_shell_call_output", "output": "a.txt"}]
    told, _ = responses_in.decode_items(items, "", tools)
    assert told[-1]["tool_call_id"] == ""


def exited(code, stdout="", stderr=""):
    return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([exited(0, "a\n")], "a"),
        ([exited(0)], "[exit code 0]"),
        ([exited(2, "a", "no b\n")], "a\nno b\n[exit code 2]"),
        ([{"stdout": "a\n", "stderr": "", "outcome": {"type": "timeout"}}], "a\n[timed out]"),
        ([exited(0, "a\n\n"), exited(1, "", "b")], "a\n\nb\n[exit code 1]"),
        ([], ""),
        ([{"stdout": "b"}], "b"),
        ([{"type": "logs", "text": "b"}], None),
        ("b", None),
    ],
)
def test_the_text_of_a_shells_output(outputs, text):
    assert typed_tools.shell_output_text(outputs) == text


def test_a_call_without_what_its_tool_needs_is_asked_for_again():
    tool, lacking = {"type": "apply_patch"}, {"type": "create_file", "path": "a.py"}
    body = {"model": "m", "input": "Write a.py.", "tools": [tool]}
    answers = [reply(calls=[("apply_patch", each)]) for each in (lacking, lacking | {"diff": "+x"})]
    seen = play(body, answers, url=RESPONSES, front=RESPONSES_API, begin=serve_response)
    assert "the required 'diff' is missing" in json.dumps(seen.bodies[1]["messages"])
    (item,) = seen.json["output"]
    assert item["operation"] == lacking | {"diff": "+x"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("arguments", [{"commands": {"a": 1}}, {"commands": ["rm -r *"], "cwd": "/tmp/a"}])
def test_arguments_that_never_fit_come_as_a_call_of_the_function(arguments, streamed):
    """The server made a call of it, and the tool's item could hold a part of it at most."""
    answers = [called("shell", arguments, streamed=streamed)] * 9
    body = {"model": "m", "input": "hi", "tools": [{"type": "shell"}], "stream": streamed}
    keys = {"url": RESPONSES, "front": RESPONSES_API, "begin": serve_response}
    seen = play(body, answers, spare=True, options={"mode": "native"}, **keys)
    (item,) = (seen.events[-1]["response"] if streamed else seen.json)["output"]
    assert (item["type"], item["name"], json.loads(item["arguments"])) == ("function_call", "shell", arguments)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tool", ["shell", "apply_patch"])
def test_half_a_call_is_none(tool, streamed):
    half = '{"commands": ["rm -rf /tmp/a' if tool == "shell" else '{"type": "delete_file", "path": "a'
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": tool, "arguments": half}}
    whole = reply(calls=[(tool, half)], finish="length")
    answer = stream({"tool_calls": [first]}, finish="length") if streamed else whole
    body = {"model": "m", "input": "hi", "tools": [{"type": tool}], "stream": streamed}
    seen = play(body, [answer] * 9, spare=True, url=RESPONSES, front=RESPONSES_API, begin=serve_response)
    output = (seen.events[-1]["response"] if streamed else seen.json)["output"]
    assert [item["type"] for item in output if item["type"] != "message"] == []


@pytest.mark.parametrize(
    ("family", "kind", "name"),
    [(None, "shell", "shell"), ("gpt-oss", "shell", "container.exec"), (None, "apply_patch", "apply_patch")],
)
def test_a_choice_names_the_function(family, kind, name):
    tools = responses_in.ClientTools(family)
    tools.add([{"type": kind}, {"type": "function", "name": "other"}])
    choice = {"type": "function", "function": {"name": name}}
    assert tools.decode_choice({"type": kind}) == choice
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": kind}]}
    assert tools.decode_choice(allowed)["allowed_tools"] == {"mode": "required", "tools": [choice]}


def test_the_skills_of_a_shell_are_described():
    skill = {"name": "csv", "path": "/skills/csv", "description": "Reads tables."}
    tools = responses_in.ClientTools()
    tools.add([{"type": "shell", "environment": {"type": "local", "skills": [skill]}}])
    assert "csv, described in /skills/csv/SKILL.md: Reads tables." in tools.functions[0]["function"]["description"]
    other = responses_in.ClientTools()
    other.add([{"type": "shell"}])
    assert "csv" not in other.functions[0]["function"]["description"], "what all requests share is not changed"


def test_two_tools_of_one_name_stay_two():
    tools = responses_in.ClientTools("gpt-oss")
    tools.add([{"type": "shell"}, {"type": "local_shell"}, {"type": "function", "name": "shell"}])
    names = [each["function"]["name"] for each in tools.functions]
    assert names == ["container.exec", "container.exec_2", "shell"]
    assert [tools.client_tool(name).typed and tools.client_tool(name).typed.kind for name in names] == [
        "shell", "local_shell", None,
    ]  # fmt: skip
    assert tools.function_name("shell") == "shell"


def test_every_type_of_openais_sdk_is_served_or_left_out():
    kinds = set()
    for tool in typing.get_args(typing.get_args(responses.Tool)[0]):
        kinds |= {*typing.get_args(tool.model_fields["type"].annotation)}
    served = {"function", "custom", "namespace", *typed_tools.openai_tools(None)}
    assert kinds <= served | responses_in._NOT_SERVED.keys()
    for kind in sorted(kinds - served):
        tools = responses_in.ClientTools()
        tools.add([{"type": kind}, {"type": "shell"}])
        assert [*tools.left_out] == [kind]
        assert len(tools.functions) == 1


def test_a_shell_in_openais_container_is_left_out():
    tools = responses_in.ClientTools()
    tools.add([{"type": "shell", "environment": {"type": "container_auto"}}, {"type": "apply_patch"}])
    assert tools.left_out == {"shell": "it runs in a container on OpenAI's servers"}


# --- Anthropic's


def test_a_bash_is_restarted_without_a_command():
    answer = reply(calls=[("bash", {"restart": True})])
    seen = use(Use("bash_20250124", "bash", {}), [answer])
    assert seen.json["content"][0]["input"] == {"restart": True}


@dataclass(frozen=True)
class Use:
    """A call of one of Anthropic's tools; `lacking` is a parameter that it needs."""

    kind: str
    name: str
    input: dict
    lacking: str = ""


def edits(kind, name, inserted):
    yield Use(kind, name, {"command": "view", "path": "/a.py", "view_range": [1, -1]}, "path")
    yield Use(kind, name, {"command": "create", "path": "/a.py", "file_text": "x"}, "file_text")
    yield Use(kind, name, {"command": "str_replace", "path": "/a.py", "old_str": "x", "new_str": "y"}, "old_str")
    yield Use(kind, name, {"command": "insert", "path": "/a.py", "insert_line": 0, inserted: "x"}, inserted)


OLD, NEW = "str_replace_editor", "str_replace_based_edit_tool"
MEMORY = "memory_20250818"
USES = [
    *(Use(f"bash_{date}", "bash", {"command": "ls"}, "command") for date in ("20241022", "20250124")),
    *edits("text_editor_20241022", OLD, "new_str"),
    *edits("text_editor_20250124", OLD, "new_str"),
    Use("text_editor_20250124", OLD, {"command": "undo_edit", "path": "/a.py"}, "path"),
    *edits("text_editor_20250429", NEW, "insert_text"),
    *edits("text_editor_20250728", NEW, "insert_text"),
    *edits(MEMORY, "memory", "insert_text"),
    Use(MEMORY, "memory", {"command": "delete", "path": "/memories/a"}, "path"),
    Use(MEMORY, "memory", {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"}, "new_path"),
]
use_rows = every_row(USES, name=lambda row: f"{row.kind} {next(iter(row.input.values()))}", group=lambda row: row.kind)


def use(row, answers, **more):
    tool = {"type": row.kind, "name": row.name}
    body = {"model": "m", "max_tokens": 100, "messages": [QUESTION], "tools": [tool], **more}
    return play(body, answers, url=MESSAGES, front=MESSAGES_API, begin=serve_message)


@use_rows
def test_anthropics_tools_are_called_with_their_input(row):
    lacking = {key: value for key, value in row.input.items() if key != row.lacking}
    answers = [reply(calls=[(row.name, made)]) for made in (lacking, row.input)]
    seen = use(row, answers)
    assert f"the required '{row.lacking}' is missing" in json.dumps(seen.bodies[1]["messages"])
    assert [tool["function"]["name"] for tool in seen.bodies[0]["tools"]] == [row.name]
    (block,) = anthropic.types.beta.BetaMessage.model_validate(seen.json).content
    assert (block.type, block.name, block.input) == ("tool_use", row.name, row.input)
    assert seen.json["stop_reason"] == "tool_use"


@use_rows
def test_they_are_streamed(row):
    seen = use(row, [called(row.name, row.input, streamed=True)], stream=True)
    (begun,) = (event["content_block"] for event in seen.events if event["type"] == "content_block_start")
    assert (begun["type"], begun["name"], begun["input"]) == ("tool_use", row.name, {})
    deltas = (event["delta"] for event in seen.events if event["type"] == "content_block_delta")
    assert json.loads("".join(delta["partial_json"] for delta in deltas)) == row.input


@use_rows
def test_their_past_calls_and_results_are_the_functions(row):
    block = {"type": "tool_use", "id": "toolu_1", "name": row.name, "input": row.input}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    said = [QUESTION, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
    _, call, answer = use(row, [reply("ok")], messages=said).bodies[0]["messages"]
    (made,) = (each["function"] for each in call["tool_calls"])
    assert (made["name"], json.loads(made["arguments"])) == (row.name, row.input)
    assert answer == {"role": "tool", "tool_call_id": "toolu_1", "content": "done"}


HOSTED = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_", "mcp_toolset")
OPERATED = ("computer_", "browser_")
"""What the client runs, but only Anthropic's models can operate by screenshots."""


def test_every_type_of_anthropics_sdk_is_served_or_left_out():
    tools = (*typing.get_args(ToolUnionParam), *typing.get_args(anthropic.types.beta.BetaToolUnionParam))
    kinds = {kind for tool in tools for kind in kinds_of(tool)} - {"custom"}
    assert {kind for kind in kinds if not kind.startswith((*HOSTED, *OPERATED))} == {*typed_tools.ANTHROPIC_TOOLS}


def kinds_of(tool):
    hint = typing.get_type_hints(tool)["type"]
    return {kind for kind in leaves(hint) if kind}


def leaves(hint):
    for each in typing.get_args(hint):
        yield from [each] if isinstance(each, str | None) else leaves(each)
