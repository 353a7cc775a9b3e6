"""Every table, every row: the reply is as written, and the same however the text is cut."""

from __future__ import annotations

import json

import pytest
from casebook import ROWS_FOLDERS, Row, bare, cuts, feed, own_words, rows, tiled, tools_of

from promptools import parse
from promptools.types import Reply

ROWS = rows(*ROWS_FOLDERS)


def reply_of(row: Row) -> Reply:
    return parse(row.text, tools_of(row.tools), **row.options)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row(row: Row) -> None:
    reply = reply_of(row)
    assert [(call.name, call.arguments) for call in reply.calls] == list(row.calls)
    assert [call.name for call in reply.calls if call.unknown_tool] == list(row.unknown)
    assert [each.reason for each in reply.malformed] == list(row.malformed)
    assert reply.content == row.content
    assert reply.reasoning == row.reasoning
    if row.fixes is not None:
        assert sorted({fix.kind for call in reply.calls for fix in call.fixes}) == list(row.fixes)
    if row.discarded is not None:
        assert [each.raw.strip() for each in reply.discarded if each.raw.strip()] == list(row.discarded)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row_keeps_the_promises(row: Row) -> None:
    """Arguments and their JSON agree; what was not mended is the model's own text; spans lie in the text."""
    for call in reply_of(row).calls:
        assert json.loads(call.arguments_json) == call.arguments
        assert own_words(call, row.text[call.span.start : call.span.end])
        assert call.dialect


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row_is_the_same_however_it_is_cut(row: Row) -> None:
    whole = bare(reply_of(row))
    options = dict(row.options)
    finish_reason = options.pop("finish_reason", None)
    for way, pieces in cuts(row.text, places=len(row.text) - 1 if row.table.startswith("edge/") else None):
        events, reply = feed(pieces, tools_of(row.tools), finish_reason, **options)
        assert bare(reply) == whole, way
        tiled(events, row.text)


def test_names_are_unique() -> None:
    names = [row.id for row in ROWS]
    assert len(names) == len(set(names))


def test_every_row_says_why() -> None:
    assert [row.id for row in ROWS if not row.why] == []
