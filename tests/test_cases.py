"""Every table, every row: the reply is as written (however it is cut: contract/test_stream)."""

from __future__ import annotations

import pytest
from casebook import ROWS_FOLDERS, Row, rows, tools_of

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


def test_names_are_unique() -> None:
    names = [row.id for row in ROWS]
    assert len(names) == len(set(names))


def test_every_row_says_why() -> None:
    assert [row.id for row in ROWS if not row.why] == []
