"""Formats of every shape that the kinds `json`, `named` and `python` have, however the text is cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from casebook import bare, cuts, feed, tiled

from promptools import dialects, parse
from promptools.dialects.contract import Dialect
from promptools.dialects.table import make_dialect
from promptools.types import Call, Reply

TOOLS: list[dict[str, Any]] = [
    {"name": "ping", "description": "Ping", "parameters": {"type": "object", "properties": {}}},
    {
        "name": "write",
        "description": "Write",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}},
    },
]
FORMATS: dict[str, dict[str, Any]] = {
    "stripped": {"openers": {"<|ask|>": "<|/ask|>"}, "stripped": "tool request", "tier": "S"},
    "bare": {"openers": {"": ""}, "tier": "B"},
    "bare list": {"openers": {"": "", "<|go|>": "<|stop|>"}, "shape": "list", "tier": "B"},
    "own keys": {"openers": {"<|go|>": ""}, "name_key": "fn", "arguments_key": "with", "id_key": "nr", "tier": "S"},
    "a closer that begins like its opener": {"openers": {"##": "##/"}},
    "a word": {"openers": {"CALLING": ""}, "body_starts": "[", "shape": "list"},
    "words around the name": {"kind": "named", "call": "CALL {name} WITH {arguments} END"},
    "a name alone on its line": {"kind": "named", "call": "@@@{name}\n{arguments}"},
    "a name in brackets": {"kind": "named", "call": "[[{name}]]{arguments}[[/]]"},
    "an id": {
        "kind": "named",
        "tier": "S",
        "call": "<|c|>{id}<|n|>{name}<|a|>{arguments}<|e|>",
        "spellings": ["<|c|><|n|>{name}<|a|>"],
        "wrapper": "<|cs|>\n{calls}\n<|/cs|>",
    },
    "a label": {
        "kind": "python",
        "openers": {"Invoke now:": "<|over|>"},
        "at_line_start": True,
        "spaces": [" ", ""],
        "separator": "; ",
        "closer_is_final": True,
        "tier": "B",
    },
    "a list between tokens": {
        "kind": "python",
        "openers": {"<|go|>": "<|stop|>"},
        "spaces": ["[", "]"],
        "separator": ", ",
        "json": True,
        "bare_list": True,
        "repeats": True,
        "tier": "S",
    },
    "a list alone": {"kind": "python", "openers": {"": ""}, "spaces": ["[", "]"], "separator": ", ", "tier": "B"},
    "a program": {"kind": "python", "openers": {"<prog>": "</prog>"}, "statements": True, "closers": []},
    "a fence": {"kind": "python", "openers": {"```calls": "```"}, "spaces": ["\n", "\n"], "closers": []},
    "no closer": {"kind": "python", "openers": {"<<going>>": ""}, "separator": "\n<<going>>"},
}
CALLS = [
    Call("1", "ping", {}, "{}"),
    Call(
        "2",
        "write",
        {"path": "a.md", "text": 'a "b" ]} \\ c\nd'},
        '{"path": "a.md", "text": "a \\"b\\" ]} \\\\ c\\nd"}',
    ),
]


@contextmanager
def registered(name: str) -> Iterator[Dialect]:
    yield dialects.register(make_dialect({"name": "acme", **FORMATS[name]}, "acme.toml"))
    dialects.unregister("acme")


@pytest.fixture(params=FORMATS)
def acme(request: pytest.FixtureRequest) -> Iterator[Dialect]:
    with registered(request.param) as dialect:
        yield dialect


@pytest.fixture
def own_format(request: pytest.FixtureRequest) -> Iterator[None]:
    with registered(request.param):
        yield


def read(text: str, **options: Any) -> Reply:
    """Return the reply, which is the same however the text is cut."""
    whole = parse(text, TOOLS, **options)
    for way, pieces in cuts(text):
        events, reply = feed(pieces, TOOLS, **options)
        tiled(events, text)
        assert bare(reply) == bare(whole), way
    return whole


def calls_of(reply: Reply) -> list[tuple[str, object, object, str | None]]:
    return [(call.name, call.arguments, call.fixes, call.dialect) for call in reply.calls]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_what_is_written_is_read_back(acme: Dialect, call: Call) -> None:
    reply = read(f"Well.\n{acme.render_calls([call])}", expect="acme")
    assert calls_of(reply) == [(call.name, call.arguments, (), "acme")]
    assert reply.content == "Well."


def test_calls_follow_one_another(acme: Dialect) -> None:
    reply = read(acme.render_calls(CALLS), expect="acme")
    assert calls_of(reply) == [(call.name, call.arguments, (), "acme") for call in CALLS]
    assert (reply.content, reply.malformed) == ("", ())


def test_what_only_names_the_markers_is_text(acme: Dialect) -> None:
    for marker in (*acme.closers, *(literal for head in acme.heads for literal in head.literals)):
        text = f"Write `{marker}` and then a name, as the manual says."
        reply = read(text)
        assert (reply.calls, reply.malformed, reply.content) == ((), (), text)


def test_a_call_that_was_cut_off_is_not_a_call(acme: Dialect) -> None:
    text = acme.render_calls([CALLS[1]])
    for end in range(1, text.index("a.md")):
        assert read(text[:end], expect="acme").calls == ()


@pytest.mark.usefixtures("own_format")
@pytest.mark.parametrize("own_format", ["stripped"], indirect=True)
def test_without_its_tokens_a_label_at_the_beginning_of_a_line_is_left() -> None:
    reply = read('Well.\ntool request\n{"name": "ping", "arguments": {}}')
    assert [(call.name, call.dialect, [fix.kind for fix in call.fixes]) for call in reply.calls] == [
        ("ping", "acme", ["marker"])
    ]
    assert reply.content == "Well."
    text = 'My tool request {"name": "ping"} is text, and so is a tool request.'
    assert read(text).content == text


@pytest.mark.usefixtures("own_format")
@pytest.mark.parametrize("own_format", ["own keys"], indirect=True)
def test_json_that_cannot_be_read_is_reported_under_the_names_of_its_own_keys() -> None:
    reply = read('<|go|>{"nr": "0", "fn": "write", "with": {"path": , "text": "x"}}')
    assert [(failed.reason, failed.name) for failed in reply.malformed] == [("invalid_json", "write")]
    assert reply.calls == ()


@pytest.mark.usefixtures("own_format")
@pytest.mark.parametrize("own_format", ["a list between tokens"], indirect=True)
def test_json_between_the_markers_of_python() -> None:
    reply = read('<|go|>[{"name": "ping", "arguments": {}}]<|stop|>')
    assert calls_of(reply) == [("ping", {}, (), "acme")]
    assert calls_of(read("[ping()]", expect="acme")) == [("ping", {}, (), "acme")]
