"""Every table, every row: the reply is as written (however it is cut: contract/test_stream)."""

from __future__ import annotations

from casebook import ROWS_FOLDERS, Row, check_reply, rows, tools_of
from many_rows import every_row

from promptools import parse

ROWS = rows(*ROWS_FOLDERS)


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_row(row: Row) -> None:
    check_reply(row, parse(row.text, tools_of(row.tools), **row.options))


def test_names_are_unique() -> None:
    names = [row.id for row in ROWS]
    assert len(names) == len(set(names))


def test_every_row_says_why() -> None:
    assert [row.id for row in ROWS if not row.why] == []
