"""Calls go out while they come: of a reply of several, each its name, then its arguments, before it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from casebook import bare, feed

from promptools import dialects
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, join
from promptools.types import Call

TOOLS: list[dict[str, Any]] = [
    {
        "name": "write_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
    },
    {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
]
SAID: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "notes.txt", "content": "line one, and some more words in it"}),
    ("get_weather", {"city": "Oslo in the far north", "days": 3}),
    ("write_file", {"path": "second.txt", "content": "other words altogether, as many as before"}),
]
CALLS = [
    Call(id=f"call0000{at}", name=name, arguments=arguments, arguments_json=json.dumps(arguments))
    for at, (name, arguments) in enumerate(SAID)
]
WHOLE = {
    "minimax_m3": "a tag that comes again makes a list of the value before it",
    "xlam": "the list is read when it is whole, and nothing but its brackets tells of calls",
}
"""Dialects whose calls go out as a whole."""
AT_ONCE = {
    **WHOLE,
    "tool_name_yaml": "a line may go on in the next one, so that all of them are read at once",
}
"""Dialects whose arguments go out when they are whole."""


def written(name: str) -> tuple[str, dict[str, Any]]:
    dialect = dialects.get(name)
    options = {"expect": name} if dialect.channels is None else {"dialect": name}
    return dialect.render_calls(CALLS), options


def played(name: str) -> list[tuple[int, Event]]:
    """Feed the reply in pieces; give each event with the number of the piece that it came with."""
    from promptools import StreamParser

    text, options = written(name)
    parser = StreamParser(TOOLS, **options)
    found = [(at, event) for at in range(0, len(text), 4) for event in parser.feed(text[at : at + 4])]
    return [*found, *((len(text), event) for event in parser.close("stop"))]


@pytest.mark.parametrize("name", dialects.names())
def test_each_call_goes_out_while_it_comes(name: str) -> None:
    starts: dict[int, int] = {}
    pieces: dict[int, list[tuple[int, str]]] = {}
    ends: dict[int, int] = {}
    for at, event in played(name):
        match event:
            case CallStart(index=i):
                starts[i] = at
                pieces[i] = []
            case CallArgs(index=i, fragment=fragment):
                pieces[i].append((at, fragment))
            case CallEnd(index=i, call=call):
                ends[i] = at
                assert (call.name, call.arguments) == SAID[i]
                assert "".join(fragment for _, fragment in pieces[i]) == call.arguments_json
            case _:
                pass
    assert list(ends) == [0, 1, 2]
    assert (ends[0] < ends[1] < ends[2]) == (name != "xlam")
    for i, end in ends.items():
        assert (starts[i] < end) == (name not in WHOLE), i
        assert (pieces[i][0][0] < end) == (name not in AT_ONCE), i


@pytest.mark.parametrize("name", dialects.names())
def test_however_it_is_cut(name: str) -> None:
    text, options = written(name)
    whole, reply = feed([text], TOOLS, "stop", **options)
    for size in (1, 7):
        events, other = feed([text[at : at + size] for at in range(0, len(text), size)], TOOLS, "stop", **options)
        assert join(events) == join(whole), size
        assert bare(other) == bare(reply), size
