"""The tools that gpt-oss was trained with, on a real llama.cpp: other names, free text, placements, undeclared calls.

A test with `connect` and `ask` runs four times: with our transport inside the official client and with the proxy before
the server, the answer whole and streamed.
"""

import json

import pytest
from configs import default_config

from promptools.client import OpenAI
from promptools.harmony import examine
from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply

THOUGHT = "<|channel|>analysis<|message|>Let me look.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CODE = 'print("6" + `7`)\n'
SCRIPT = [
    ScriptedReply(
        "List the files.",
        f'{THOUGHT}<|channel|>analysis to=repo_browser.print_tree code<|message|>{{"path": "."}}<|call|>',
    ),
    ScriptedReply(
        "Read the file.",
        f'{THOUGHT} to=repo_browser.read_file<|channel|>analysis code<|message|>{{"path": "a.txt"}}<|call|>',
    ),
    ScriptedReply("Compute it.", f"{THOUGHT}<|channel|>analysis to=python code<|message|>{CODE}<|call|>"),
    ScriptedReply("Compute it.", f"{FINAL}I know how.<|return|>", setting="Namespace of runs"),
    ScriptedReply("67 it is", f"{FINAL}It is sixty-seven.<|return|>"),
    ScriptedReply(None, f"{FINAL}Nothing to do.<|return|>"),
]
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CODES = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def tool(name, parameters, **marks):
    return {
        "type": "function",
        "function": {"name": name, "description": f"The tool {name}.", "parameters": parameters, "x-promptools": marks},
    }


OPEN = tool("repo_browser.open_file", PATH, names=["repo_browser.read_file"])
TREE = tool("repo_browser.print_tree", PATH)
PYTHON = tool("python", CODES, free_text="code")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not llamacpp_server.can_serve():
        pytest.skip("xllamacpp is not installed")
    folder = tmp_path_factory.mktemp("trained")
    with llamacpp_server.serve(SCRIPT, template="harmony", name="gpt-oss-trained", folder=folder) as running:
        yield running


@pytest.fixture
def put(connect, ask, server):
    client = connect(server)

    def ask_it(*said, options=None, **keys):
        return ask(client, server.name, *said, options=options or {}, **keys)

    return ask_it


def test_another_name_of_a_tool(put):
    """In native mode no model can use one: llama.cpp's grammar allows the names of the request alone."""
    got = put("Read the file.", options={"mode": "harmony"}, tools=[OPEN])
    assert got.calls == [("repo_browser.open_file", '{"path": "a.txt"}')]
    fixes = [fix["kind"] for choice in got.trace["choices"] for given in choice["fixes"].values() for fix in given]
    assert "name" in fixes


@pytest.mark.parametrize("placement", ["developer", "auto", "system"])
@pytest.mark.exhaustive
def test_a_call_is_read_wherever_the_tool_is_declared(put, placement):
    got = put("List the files.", options={"mode": "harmony", "tools_in": placement}, tools=[TREE])
    assert (got.calls, got.finish_reason) == ([("repo_browser.print_tree", '{"path": "."}')], "tool_calls")


def test_free_text(put):
    options = {"mode": "harmony", "tools_in": "auto"}
    got = put("Compute it.", options=options, tools=[PYTHON])
    ((name, arguments),) = got.calls
    assert (name, json.loads(arguments)) == ("python", {"code": CODE})
    result = {"role": "tool", "tool_call_id": got.ids[0], "content": "67 it is"}
    last = put("Compute it.", got.message(), result, options=options, tools=[PYTHON])
    assert (last.content, last.finish_reason) == ("It is sixty-seven.", "stop")


@pytest.mark.exhaustive
def test_a_described_namespace_is_in_the_prompt(put):
    options = {"mode": "harmony", "tools_in": "auto", "namespaces": {"python": "Namespace of runs."}}
    assert put("Compute it.", options=options, tools=[PYTHON]).content == "I know how."


def test_an_undeclared_call_is_handed_over(put):
    got = put("List the files.", options={"undeclared": "call"})
    assert got.attempts == [("harmony", "answered")]
    assert (got.calls, got.finish_reason) == ([("repo_browser.print_tree", '{"path": "."}')], "tool_calls")
    assert got.trace["choices"][0]["undeclared"] == got.ids
    got = put("Compute it.", options={"undeclared": "call", "mode": "harmony"}, tools=[TREE])
    assert [(name, json.loads(arguments)) for name, arguments in got.calls] == [("python", {"input": CODE})]
    assert put("List the files.").calls == []


class Written:
    """An observer that keeps the attempts."""

    def __init__(self):
        self.attempts = []

    def began(self, exchange): ...
    def sent(self, exchange, sent): ...
    def received(self, exchange, received): ...

    def ended(self, exchange, end):
        self.attempts += end.attempts


@pytest.mark.parametrize("streamed", [False, True])
def test_an_observer_gets_the_messages(server, streamed):
    written = Written()
    with OpenAI(config=default_config(server), timeout=300, mode="harmony", observer=written) as client:
        messages = [{"role": "user", "content": "List the files."}]
        reply = client.chat.completions.create(model=server.name, messages=messages, tools=[TREE], stream=streamed)
        if streamed:
            list(reply)
    (attempt,) = written.attempts
    (choice,) = attempt.written
    examined = examine(choice.text)
    assert (examined.deviations, examined.error) == ((), None)
    assert [(parsed.message.channel, parsed.message.recipient, parsed.message.content_type, parsed.ended)
            for parsed in examined.messages] == [
        ("analysis", "", "", "end"), ("analysis", "repo_browser.print_tree", "code", "call")]  # fmt: skip
    assert choice.finish_reason == "stop"
    assert attempt.attempt.usage["prompt_tokens"] > 0
