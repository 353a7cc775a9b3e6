"""What holds for every text, every cut and every option: the promises of `parsing.events`."""

from __future__ import annotations

from typing import Any

import pytest
from casebook import ROWS_FOLDERS, SETS, Row, bare, cuts, feed, honest, in_order, rows, tiled, tools_of
from hypothesis import example, given
from hypothesis import strategies as st
from many_rows import every_row
from shapes import STEADY, offered, options, pieces, reasons, spoiled, spoilings, texts
from shared_cases import built_in_cases

from promptools import StreamParser, Tools, dialects, parse
from promptools.errors import UsageError
from promptools.parsing.events import join

ROWS = rows(*ROWS_FOLDERS)
SHARED = [row for name in dialects.BUILT_IN for row in built_in_cases(name)]
"""Read in pieces by `check` of `shared_cases`."""


@STEADY
@given(texts, offered, options, reasons, st.data())
def test_any_text_however_cut(
    text: str, tools: str, given_options: dict[str, Any], reason: str | None, data: st.DataObject
) -> None:
    whole, reply = feed([text], SETS[tools], reason, **given_options)
    tiled(whole, text)
    in_order(whole, reply)
    honest(text, reply)
    cut = data.draw(pieces(text))
    events, other = feed(cut, SETS[tools], reason, **given_options)
    assert join(events) == join(whole)
    assert bare(other) == bare(reply)
    tiled(events, text)
    in_order(events, other)


@STEADY
@given(st.sampled_from([*ROWS, *SHARED]), spoilings, st.data())
def test_a_spoiled_row_however_cut(row: Row, spoiling: list[tuple[float, int, str]], data: st.DataObject) -> None:
    """A reply with characters lost and markers strewn in breaks no promise."""
    text = spoiled(row.text, spoiling)
    given_options = dict(row.options)
    reason = given_options.pop("finish_reason", None)
    whole, reply = feed([text], tools_of(row.tools), reason, **given_options)
    tiled(whole, text)
    in_order(whole, reply)
    honest(text, reply)
    events, other = feed(data.draw(pieces(text)), tools_of(row.tools), reason, **given_options)
    assert join(events) == join(whole)
    assert bare(other) == bare(reply)
    in_order(events, other)


FOUND: list[tuple[str, dict[str, Any]]] = [
    ("<tool_call>[TOOL_REQUEST]<think>", {}),
    ("<tool_call>", {"expect": "hermes"}),
    ('```\n{"tool": "ping", <tool_call>"arguments": {}}\n```\n', {}),
    ('<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "x\ny"}}</too}l_call>', {}),
    ('<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "x\ny"}}</too<tool_call>l_call>', {}),
    ('On it.\n{"nam{"tool": "ping", "arguments": {e": "get_weather", "arguments": {"city": "Oslo"}}', {}),
    ('```json\n{"tool": "ping", "arguments": {}}\n```\n```json\n{"tool": "pi<tool_call>ng", "arguments": {}}\n```', {}),
]
"""Texts that once gave one thing whole and another in pieces."""


@pytest.mark.parametrize(("text", "given_options"), FOUND, ids=lambda said: said[:40] if isinstance(said, str) else "")
@pytest.mark.parametrize("reason", [None, "length"])
@pytest.mark.parametrize("expect", [None, "json", "hermes"])
def test_found_by_search(text: str, given_options: dict[str, Any], reason: str | None, expect: str | None) -> None:
    given_options = {"expect": expect, **given_options}
    whole, reply = feed([text], SETS["demo"], reason, **given_options)
    tiled(whole, text)
    in_order(whole, reply)
    honest(text, reply)
    for way, cut in cuts(text):
        events, other = feed(cut, SETS["demo"], reason, **given_options)
        assert join(events) == join(whole), way
        assert bare(other) == bare(reply), way


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_a_row_however_it_is_cut(row: Row) -> None:
    given_options = dict(row.options)
    reason = given_options.pop("finish_reason", None)
    whole, reply = feed([row.text], tools_of(row.tools), reason, **given_options)
    assert parse(row.text, tools_of(row.tools), **row.options) == reply
    tiled(whole, row.text)
    in_order(whole, reply)
    honest(row.text, reply)
    everywhere = len(row.text) - 1 if row.table.startswith("edge/") else None
    for way, cut in cuts(row.text, places=everywhere):
        events, other = feed(cut, tools_of(row.tools), reason, **given_options)
        assert join(events) == join(whole), way
        assert bare(other) == bare(reply), way
        tiled(events, row.text)
        in_order(events, other)


@STEADY
@example("")
@given(texts)
def test_text_is_whole_where_nothing_is_offered(text: str) -> None:
    """With no tools offered each call is flagged; only reasoning, tags and what begins like a call are no content."""
    reply = parse(text, [])
    assert all(call.unknown_tool for call in reply.calls)
    if not (reply.reasoning or reply.discarded or reply.malformed or reply.calls):
        assert reply.content == text


@STEADY
@given(texts, st.sampled_from(["strict", "balanced", "lenient"]))
def test_only_offered_tools_are_called(text: str, strictness: str) -> None:
    offered_names = {tool["name"] for tool in SETS["demo"] or ()}
    for call in parse(text, SETS["demo"], strictness=strictness).calls:
        assert call.name in offered_names or call.unknown_tool


def test_a_closed_parser_takes_no_more() -> None:
    parser = StreamParser(SETS["demo"])
    parser.feed("Hello")
    parser.close()
    with pytest.raises(UsageError, match="clos"):
        parser.feed("x")


@pytest.mark.parametrize("wrong", [{"dialect": "klingon"}, {"expect": "klingon"}, {"strictness": "brutal"}])
def test_unknown_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"klingon|brutal"):
        parse("x", SETS["demo"], **wrong)


@pytest.mark.parametrize(
    "tools",
    [
        [{"description": "no name"}],
        [{"name": "a"}, {"name": "a"}],
    ],
    ids=["no name", "twice"],
)
def test_bad_tools_are_refused(tools: list[dict[str, Any]]) -> None:
    with pytest.raises(UsageError):
        parse("x", tools)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "wrong"},
        [1],
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/x.json"}}},
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}},
    ],
    ids=["no type", "no schema", "dangling", "remote", "pattern"],
)
def test_odd_schemas_are_refused_only_where_it_is_strict(parameters: Any) -> None:
    tools = [{"name": "a", "parameters": parameters}]
    (call,) = parse('<tool_call>{"name": "a", "arguments": {"x": "y"}}</tool_call>', tools).calls
    assert call.arguments == {"x": "y"}
    with pytest.raises(UsageError):
        Tools(tools, strict=True)


def test_ids_are_stable_and_differ() -> None:
    text = '{"name": "ping", "arguments": {}}\n{"name": "ping", "arguments": {}}'
    one, other = parse(text, SETS["demo"]), parse(text, SETS["demo"])
    assert [call.id for call in one.calls] == [call.id for call in other.calls]
    assert len({call.id for call in one.calls}) == 2


def test_ids_may_be_given() -> None:
    ids = iter(["one", "two"])
    text = '{"name": "ping", "arguments": {}}\n{"name": "ping", "arguments": {}}'
    assert [call.id for call in parse(text, SETS["demo"], new_id=lambda: next(ids)).calls] == ["one", "two"]


def test_text_goes_out_as_it_comes() -> None:
    """Plain prose is not held back: what has gone out trails what came in by a bounded number of characters."""
    parser = StreamParser(SETS["demo"])
    words = "The quick brown fox (really) jumps: over <b>the</b> lazy dog, again and again. " * 20
    out = 0
    for at, char in enumerate(words, 1):
        out += sum(len(getattr(event, "text", "")) for event in parser.feed(char))
        assert at - out <= 64
