"""What a table without a text teaches: the prompt shows calls as the format has them, and they are read back.

The tables are the kinds with their options; each is asked for with tools of several shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from promptools import Tools, dialects, parse
from promptools.dialects.prompt import GENERIC_CALL, NAME_SLOT
from promptools.dialects.table import KINDS, make_dialect
from promptools.dialects.written_calls import PARAMETER_SLOT
from promptools.modes.prompt_mode import prepare_prompt
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.wire.chat_decoder import Delta

TAGS = {"call": '<do tool="{name}">{parameters}</do>', "parameter": '<arg key="{key}">{value}</arg>'}
LINES = {"call": "<use={name}>\n{parameters}</use>", "parameter": "<with={key}>\n{value}\n</with>\n"}
ELEMENTS = {"call": "<run>\n<what>{name}</what>\n{parameters}</run>", "parameter": "<{key}>{value}</{key}>\n"}
NESTED = {"mark": "~@~", "call": '{mark}<do tool="{name}">{parameters}{mark}</do>'}
PAIRS = {"call": "<ask>{name}{arguments}</ask>", "argument": "<k>{key}</k><v>{value}</v>"}
TABLES: dict[str, dict[str, Any]] = {
    "braces": {"kind": "braces", "openers": {"<|use|>": "<|used|>"}},
    "json": {"openers": {"<ask>": "</ask>"}},
    "json, a list": {"openers": {"<|ask|>": "<|/ask|>"}, "shape": "list", "tier": "S"},
    "json, lines": {"openers": {"<|ask|>": "<|/ask|>"}, "shape": "lines", "tier": "S", "space": "\n"},
    "json, own keys": {"openers": {"@@ask": ""}, "name_key": "fn", "arguments_key": "with", "id_key": "nr"},
    "json, the name is the key": {"openers": {"<|ask|>": "<|/ask|>"}, "name_key": "", "tier": "S"},
    "json, no markers": {"openers": {"": ""}, "tier": "B"},
    "json, a list without markers": {"openers": {"": ""}, "shape": "list", "tier": "B"},
    "json, one after the other": {"openers": {"##": "##/"}, "separator": ""},
    "json, a word": {"openers": {"CALLING": ""}, "shape": "list", "body_starts": "["},
    "named": {"kind": "named", "call": "<|to|>{name}<|with|>{arguments}<|sent|>"},
    "named, words": {"kind": "named", "call": "CALL {name} WITH {arguments} END"},
    "named, a line": {"kind": "named", "call": "@@@{name}\n{arguments}", "one_line": True},
    "named, brackets": {"kind": "named", "call": "[[{name}]]{arguments}[[/]]", "separator": " "},
    "named, an id": {"kind": "named", "call": "<|c|>{id}<|n|>{name}<|a|>{arguments}<|e|>", "tier": "S"},
    "named, a wrapper": {"kind": "named", "call": "<|c|>{name}<|a|>{arguments}<|e|>", "wrapper": "<|s|>{calls}<|/s|>"},
    "tags": {"kind": "tags", **TAGS},
    "tags, around one": {"kind": "tags", **TAGS, "wrapper": "<plan>\n{call}\n</plan>"},
    "tags, around all": {"kind": "tags", **TAGS, "wrapper": "<plan>\n{calls}\n</plan>", "bare": "line"},
    "tags, tokens": {"kind": "tags", **TAGS, "wrapper": "<|ask|>{calls}<|/ask|>", "tier": "S"},
    "tags, lines": {"kind": "tags", **LINES},
    "tags, lines in a wrapper": {"kind": "tags", **LINES, "wrapper": "<tool_call>\n{call}\n</tool_call>"},
    "tags, prefixes": {
        "kind": "tags",
        "prefixes": ["x:", ""],
        "wrapper": "<{prefix}calls>\n{calls}\n</{prefix}calls>",
        "call": '<{prefix}invoke name="{name}">\n{parameters}</{prefix}invoke>',
        "parameter": '<{prefix}arg name="{key}">{value}</{prefix}arg>\n',
    },
    "tags, whether it is a string": {
        "kind": "tags",
        "call": '<do tool="{name}">\n{parameters}</do>',
        "parameter": '<arg key="{key}" string="{string}">{value}</arg>\n',
    },
    "tags, elements": {"kind": "tags", **ELEMENTS},
    "tags, elements in a wrapper": {"kind": "tags", **ELEMENTS, "wrapper": "<calls>\n{calls}\n</calls>"},
    "tags, CDATA": {"kind": "tags", **TAGS, "cdata": True, "trim": "strip"},
    "tags, no white space": {"kind": "tags", **TAGS, "trim": "strip"},
    "nested": {"kind": "nested", **NESTED},
    "nested, in a wrapper": {"kind": "nested", **NESTED, "wrapper": "{mark}<plan>\n{calls}\n{mark}</plan>"},
    "nested, tokens": {"kind": "nested", **NESTED, "mark": "<|~|>", "item": "each", "separator": " ", "tier": "S"},
    "key_value": {"kind": "key_value", **PAIRS},
    "key_value, lines": {
        "kind": "key_value",
        "call": "<|ask|>{name}\n{arguments}\n<|/ask|>",
        "argument": "<|k|>{key}\n<|v|>{value}<|/v|>",
        "tier": "S",
    },
    "key_value, types": {
        "kind": "key_value",
        "wrapper": "[calls]\n{calls}\n[/calls]",
        "call": "[call]{name}[args]\n{arguments}\n[/call]",
        "argument": "[k]{key}[/k] [t]{type}[/t] [v]{value}[/v]",
    },
    "key_value, double brackets": {
        "kind": "key_value",
        "call": "<<call>>{name}{arguments}<</call>>",
        "argument": "<<k>>{key}<<v>>{value}<</v>>",
    },
    "key_value, a suffix": {"kind": "key_value", **PAIRS, "wrapper": "<asks>\n{calls}\n</asks>", "suffix": ":"},
    "python": {"kind": "python", "openers": {"<ask>": "</ask>"}},
    "python, a list": {"kind": "python", "openers": {"<|go|>": "<|stop|>"}, "spaces": ["[", "]"], "separator": ", "},
    "python, a label": {
        "kind": "python",
        "openers": {"Invoke now:": "<|over|>"},
        "at_line_start": True,
        "spaces": [" ", ""],
        "separator": "; ",
        "tier": "B",
    },
    "python, a program": {"kind": "python", "openers": {"<prog>": "</prog>"}, "statements": True},
    "python, a fence": {"kind": "python", "openers": {"```calls": "```"}, "spaces": ["\n", "\n"]},
    "python, nothing closes it": {"kind": "python", "openers": {"<<go>>": ""}, "separator": "\n<<go>>"},
}


def tool(name: str, /, **parameters: Any) -> dict[str, Any]:
    required = list(parameters)
    return {"name": name, "parameters": {"type": "object", "properties": parameters, "required": required}}


TEXT, COUNT = {"type": "string"}, {"type": "integer"}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "a text": [tool("get_weather", city=TEXT)],
    "two tools": [tool("look", place=TEXT, days=COUNT), tool("count", n=COUNT), tool("write-file", path=TEXT, on={})],
    "values that are JSON": [
        tool(
            "arrange",
            steps={"type": "array", "items": TEXT},
            who=tool("", name=TEXT)["parameters"],
            sure={"const": True},
        )
    ],
    "words that are given": [tool("paint", what=TEXT, colour={"enum": ["red", "<b>"]})],
    "a text or nothing": [tool("note", text={"type": ["string", "null"]}, at={"anyOf": [TEXT, COUNT]})],
}


SHOWN = re.compile(
    r"(?s)(?:For one thing:\n|one call at a time:\n|escaped in the values:|nothing after it:\n)\n(?P<one>.+?)"
    r"(?:\n\n(?:For two things|Several calls are written like this):\n\n(?P<both>.+?))?"
    r"\n{1,2}(?:Values go|Give an|Strings are|Write one call|Call one function|Name each)"
)
"""The calls that a prompt of any kind shows."""
SLOTS = {
    NAME_SLOT: "count",
    '"parameter": <value>': '"n": 1',
    '"parameter": "<value>"': '"n": 1',
    'parameter="<value>"': "n=1",
    PARAMETER_SLOT: "n",
    "true or false": "false",
    "[t]string[/t]": "[t]integer[/t]",
    "parameter": "n",
    "its value": "1",
}
"""What a model would write in place of the words of a generic call."""


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"name": "acme", **TABLES[request.param]}


@pytest.fixture
def acme(table: dict[str, Any]) -> Iterator[Any]:
    dialect = make_dialect(table, "acme.toml")
    with dialects.using(dialect):
        yield dialect


@pytest.fixture
def kind(table: dict[str, Any]) -> str:
    return str(table.get("kind", "json"))


def test_there_are_tables_of_every_kind() -> None:
    assert {table.get("kind", "json") for table in TABLES.values()} == set(KINDS)


def test_the_calls_of_the_prompt_are_read_back(acme: Any, kind: str) -> None:
    for which, tools in TOOLS.items():
        offered = Tools(tools)
        one, other = acme.example_calls(offered)
        assert one is not GENERIC_CALL, which
        single, none = shown_in(acme.render_tools(offered, parallel=False))
        first, both = shown_in(acme.render_tools(offered))
        assert (single, none) == (first, ""), which
        assert read(first, tools) == [(one.name, one.arguments)], which
        if both:
            assert read(both, tools) == [(call.name, call.arguments) for call in (one, other)], which
        if kind in ("tags", "nested", "key_value"):
            assert one.arguments_json not in first, which


def test_a_call_of_no_tool_has_the_format_too(acme: Any) -> None:
    """Of tools without a text none is shown, since a copy of such a call could be meant."""
    tools = [tool("count", n=COUNT)]
    assert acme.example_calls(Tools(tools)) == (GENERIC_CALL, GENERIC_CALL)
    first, both = shown_in(acme.render_tools(Tools(tools)))
    assert parse(first, tools, expect="acme").calls == ()
    for slot, meant in SLOTS.items():
        first, both = first.replace(slot, meant), both.replace(slot, meant)
    assert read(first, tools) == [("count", {"n": 1})]
    assert not both or read(both, tools) == [("count", {"n": 1})] * 2


def test_a_copy_of_the_example_is_not_a_call(acme: Any) -> None:
    tools = [{"type": "function", "function": TOOLS["a text"][0]}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    request = parse_request({**body, "promptools": {"mode": "prompt", "dialect": "acme"}}, Profile())
    prepared = prepare_prompt(request)
    first, _ = shown_in(prepared.body["messages"][0]["content"])
    reader = ReplyReader(request, prepared, lambda: "call00001")
    reader.feed(Delta(content=first))
    reader.close("stop")
    assert reader.reply.calls == ()
    assert [piece.reason for piece in reader.reply.malformed] == ["invalid_arguments"]


def test_the_other_texts_count_without_a_text(table: dict[str, Any]) -> None:
    texts = {"required": "Call one now.", "single": "One only: {call}"}
    acme = make_dialect({**table, "instructions": texts}, "acme.toml")
    shown = acme.render_tools(Tools(TOOLS["a text"]), parallel=False, required=True)
    assert "Call one now." in shown
    assert "One only: " in shown


def shown_in(prompt: str) -> tuple[str, str]:
    """Return the call that a prompt shows, and the two calls; empty where it shows none."""
    (found,) = SHOWN.finditer(prompt)
    return found["one"], found["both"] or ""


def read(text: str, tools: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    reply = parse(text, tools, expect="acme", finish_reason="stop")
    assert (reply.content, reply.malformed) == ("", ())
    assert all(call.fixes == () and call.dialect == "acme" for call in reply.calls)
    return [(call.name, call.arguments) for call in reply.calls]
