"""Calls by other names of a tool, on the way through an exchange: the client gets the name that it declared."""

import json

import pytest
from scripted import ask, call, play, reply, stream, target

from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
OPEN = {"type": "function", "function": {"name": "open_file", "parameters": PATH}}
MARKS = {"open_file": {"names": ["read_file", "repo_browser.read_file"]}}
ARGUMENTS = json.dumps({"path": "a/long/path/to/a/file/that/is/streamed/in/many/pieces.txt"})
TEXT = f'<tool_call>\n{{"name": "read_file", "arguments": {ARGUMENTS}}}\n</tool_call>'


def marked(**facts):
    return target(marks=MARKS, **facts)


@pytest.mark.parametrize("name", ["read_file", "repo_browser.read_file"])
def test_the_servers_own_call(name):
    seen = play(ask(OPEN), [reply(calls=[(name, ARGUMENTS)], finish="tool_calls")], target=marked())
    assert seen.message["tool_calls"][0]["function"] == {"name": "open_file", "arguments": ARGUMENTS}
    assert [(fix.kind, fix.detail) for fix in seen.reply.calls[0].fixes] == [("name", f"{name!r} to 'open_file'")]
    assert "read_file" not in json.dumps(seen.bodies[0])


def pieces(name):
    first = {"tool_calls": [{"index": 0, **call(name, "")}]}
    parts = (ARGUMENTS[at : at + 4] for at in range(0, len(ARGUMENTS), 4))
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts)]


def test_streamed_its_arguments_begin_before_its_end():
    body = ask(OPEN, stream=True)
    seen = play(body, [stream(*pieces("read_file"), finish="tool_calls")], target=marked())
    choice = seen.choice()
    assert list(choice.calls.values()) == [{"id": "call00001", "name": "open_file", "arguments": ARGUMENTS}]
    assert sum("tool_calls" in chunk["delta"] for chunk in choice.chunks) > 5


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_a_call_in_text(mode, streamed):
    facts = {"modes": (mode,), "dialect": "hermes"}
    answer = stream(*TEXT) if streamed else reply(TEXT)
    seen = play(ask(OPEN, stream=streamed), [answer], target=marked(**facts))
    assert [(one.name, one.arguments_json) for one in seen.reply.calls] == [("open_file", ARGUMENTS)]


def test_tool_choice_by_another_name():
    choice = {"type": "function", "function": {"name": "read_file"}}
    seen = play(ask(OPEN, tool_choice=choice), [reply(calls=[("open_file", ARGUMENTS)])], target=marked())
    assert seen.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "open_file"}}
    assert seen.message["tool_calls"][0]["function"]["name"] == "open_file"


def test_through_the_responses_api():
    body = {"model": "m", "input": "hi", "tools": [{"type": "function", **OPEN["function"]}]}
    front = {"url": "http://server/v1/responses", "front": RESPONSES_API, "begin": serve_response}
    choice = {"type": "function", "name": "read_file"}
    seen = play(body | {"tool_choice": choice}, [reply(calls=[("read_file", ARGUMENTS)])], target=marked(), **front)
    (item,) = (item for item in seen.json["output"] if item["type"] == "function_call")
    assert (item["name"], item["arguments"]) == ("open_file", ARGUMENTS)


def test_through_ollamas_api():
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [OPEN], "stream": False}
    facts = {"wire": "chat"}
    front = {"url": "http://server/api/chat", "front": OLLAMA_API}
    seen = play(body, [reply(calls=[("read_file", ARGUMENTS)])], target=marked(**facts), **front)
    (one,) = seen.json["message"]["tool_calls"]
    assert one["function"]["name"] == "open_file"
