"""Detection: with no hint, a reply is read as it is when its dialect is the only one looked for.

A row that reads otherwise says why in `alone`. What is pinned is also expected, and more is read of what was expected;
so another one is said to be.
"""

from __future__ import annotations

from casebook import ROWS_FOLDERS, Row, rows, tools_of
from many_rows import every_row

from promptools import dialects, parse
from promptools.types import Reply

ROWS = [row for row in rows(*ROWS_FOLDERS) if row.table.partition("/")[0] in dialects.BUILT_IN]


def said(reply: Reply) -> tuple[object, ...]:
    calls = [(call.name, call.arguments) for call in reply.calls]
    return calls, [(failed.reason, failed.name) for failed in reply.malformed], reply.content, reply.reasoning


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_the_dialect_need_not_be_named(row: Row) -> None:
    named = row.table.partition("/")[0]
    options = {key: value for key, value in row.options.items() if key not in ("dialect", "expect")}
    other = "solar" if named == "inkling" else "inkling"  # which nothing but its own tokens begin
    hinted = parse(row.text, tools_of(row.tools), **{**options, "dialect": named, "expect": other})
    alone = parse(row.text, tools_of(row.tools), **options)
    assert (said(alone) == said(hinted)) == (not row.alone), row.alone or "say why in `alone`, or mend it"
