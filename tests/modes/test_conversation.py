"""A whole conversation as each dialect writes it: read the snapshots as a model would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from promptools import Tools, UsageError, dialects, parse, render
from promptools.dialects.contract import Textual
from promptools.modes.foreign_text import foreign_escaper
from promptools.modes.prompt_mode import prepare_prompt
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile

BOOK = {
    "name": "book_table",
    "description": "Book a table.\nThe guests get a mail.",
    "parameters": {
        "type": "object",
        "properties": {
            "note": {"type": "string", "description": "What the kitchen should know, word for word."},
            "guests": {"type": "integer", "minimum": 1},
            "outside": {"type": "boolean", "default": False},
            "host": {
                "type": "object",
                "description": "Who pays",
                "properties": {
                    "name": {"type": "string"},
                    "diet": {"enum": ["none", "vegan"], "default": "none"},
                },
                "required": ["name"],
            },
            "times": {"type": "array", "items": {"type": "string"}, "description": "Hours that suit, best first."},
        },
        "required": ["note", "guests"],
    },
}
WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city"],
    },
}
TOOLS = Tools([BOOK, {"type": "function", "function": WEATHER}])
PLACES = {"city": "Tromsø"}


def booking(name: str) -> dict[str, Any]:
    """Give arguments with one of each kind, the text of which holds the dialect's own closers."""
    note = f'Say "hi" twice,\nit\'s {{urgent}}: a < b.{" ".join(("", *dialects.get(name).closers))}'
    return {
        "note": note,
        "guests": 4,
        "outside": True,
        "host": {"name": "Ann \\ O'Hara", "diet": "vegan"},
        "times": ["19:00", "20:30"],
    }


def conversation(name: str) -> list[dict[str, Any]]:
    calls = [("call-1", "book_table", booking(name)), ("call-2", "get_weather", PLACES)]
    return [
        {"role": "system", "content": "You are a concierge."},
        {"role": "user", "content": "A table for four, and will it rain?"},
        {
            "role": "assistant",
            "content": "One moment.",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
                for id_, tool, given in calls
            ],
        },
        {"role": "tool", "tool_call_id": "call-1", "content": '{"booked": true, "at": "20:30"}'},
        {"role": "tool", "tool_call_id": "call-2", "content": "Dry,\n8 degrees."},
        {"role": "assistant", "content": "Booked for 20:30, and it stays dry."},
        {"role": "user", "content": "Thanks. And tomorrow?"},
    ]


@pytest.mark.parametrize("name", dialects.names())
def test_a_conversation_is_written_in_each_dialect(name: str, snapshot: SnapshotAssertion) -> None:
    sent = render(conversation(name), TOOLS, dialect=name)
    assert all(each.keys() == {"role", "content"} for each in sent)
    assert [each["role"] for each in sent] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "\n\n".join(f"----- {each['role']}\n{each['content']}" for each in sent) == snapshot


@pytest.mark.parametrize("name", dialects.names())
def test_the_calls_of_a_conversation_are_read_back(name: str) -> None:
    reply = parse(render(conversation(name), TOOLS, dialect=name)[2]["content"], TOOLS, expect=name)
    foreign = foreign_escaper(parse_request({"messages": []}, Profile()), dialect=name)
    note = foreign.markup.escape(booking(name)["note"])
    assert [(call.name, call.arguments, call.fixes, call.dialect) for call in reply.calls] == [
        ("book_table", {**booking(name), "note": note}, (), name),
        ("get_weather", PLACES, (), name),
    ]
    assert reply.content.strip() == "One moment."


@pytest.mark.parametrize(
    ("name", "calls", "results"),
    [
        (
            "kimi_k2",
            "functions.get_weather:2<|tool_call_argument_begin|>",
            "## Return of functions.get_weather:2\nCold.",
        ),
        (
            "cohere",
            '"tool_call_id": "2", "tool_name": "get_weather"',
            '"tool_call_id": "2", "results": {"0": {"content"',
        ),
        ("solar", "<|tool_call:begin|>call3<|", "<|tool_response:id|>call3<|"),
    ],
)
def test_a_result_bears_the_id_that_its_call_was_written_with(name: str, calls: str, results: str) -> None:
    """Ids of Kimi and Cohere count through the conversation; servers' own have dashes."""
    again = {"id": "call-3", "function": {"name": "get_weather", "arguments": json.dumps(PLACES)}}
    more = [
        {"role": "assistant", "content": None, "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "call-3", "content": "Cold."},
        {"role": "tool", "tool_call_id": "nobody's", "content": "It stays."},
    ]
    *_, called, answered = render([*conversation(name), *more], TOOLS, dialect=name)
    assert calls in called["content"]
    assert results in answered["content"]
    assert "It stays." in answered["content"]


@pytest.mark.parametrize(
    ("name", "before", "behind"),
    [
        ("cohere", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"),
        ("nemotron", "<TOOL_RESPONSE>", "</TOOL_RESPONSE>"),
    ],
)
def test_results_in_a_list_are_json_whatever_they_are(name: str, before: str, behind: str) -> None:
    written = render(conversation(name), TOOLS, dialect=name)[3]["content"]
    held = json.dumps(json.loads(written.removeprefix(before).removesuffix(behind)))
    assert '{"booked": true, "at": "20:30"}' in held
    assert r'"Dry,\n8 degrees."' in held


class OnlyRead(Textual):
    name = "only_read"

    def candidate(self, head: str, options: Any, evidence: Any, *, definite: bool) -> Any:
        raise AssertionError("it has no heads, so nothing begins it")


@pytest.fixture
def only_read() -> Iterator[str]:
    yield dialects.register(OnlyRead()).name
    dialects.unregister("only_read")


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([{"role": "user", "content": "hi"}], TOOLS),
        (conversation("json")[2:3], None),
        (conversation("json")[3:4], None),
    ],
    ids=["tools", "calls", "results"],
)
def test_a_dialect_that_is_only_read_is_refused(only_read: str, messages: Any, tools: Tools | None) -> None:
    with pytest.raises(UsageError, match=r"The dialect 'only_read' can only be read.*'render_(tools|calls|results)'"):
        render(messages, tools, dialect=only_read)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dialect": "yaml"}, "There is no dialect 'yaml'; `promptools dialects` lists all of them."),
        ({"dialect": None}, "There is no dialect None;"),
        ({"messages": None}, "'messages' must be a list of objects, not None"),
        ({"messages": "hi"}, "messages[0] must be an object with a 'role', not 'h'"),
        ({"tools": {"name": "ping"}}, "expected a list of tools"),
        ({"tool_choice": "required"}, "tool_choice is 'required' but no tool is offered"),
        ({"tool_choice": {"name": "ping"}}, "tool_choice names 'ping', which is not among the offered tools"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        render(**{"messages": [{"role": "user", "content": "hi"}], **given})


def test_it_is_written_as_prompt_mode_sends_it() -> None:
    def get_weather(city: str) -> str:
        """Tell the weather."""
        return city

    messages = conversation("hermes")
    asked: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}
    body = {"messages": messages, "tools": Tools([get_weather]).to_openai(), **asked}
    ask = parse_request({**body, "promptools": {"dialect": "hermes"}}, Profile())
    before = json.dumps(messages)
    sent = render(iter(messages), [get_weather], dialect="hermes", **asked)
    assert sent == prepare_prompt(ask).body["messages"]
    assert sent != render(messages, [get_weather], dialect="hermes")
    assert json.dumps(messages) == before


def test_the_default_is_json_and_a_conversation_without_tools_stays_as_it_is() -> None:
    assert render(conversation("json"), TOOLS) == render(conversation("json"), TOOLS, dialect="json")
    assert render([{"role": "user", "content": "hi"}]) == [{"role": "user", "content": "hi"}]
