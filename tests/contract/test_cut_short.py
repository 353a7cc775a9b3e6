"""A reply that was cut at the limit calls nothing that the whole one would not, and nothing in another way."""

from __future__ import annotations

from casebook import ROWS_FOLDERS, Row, rows, tools_of
from many_rows import every_row
from shared_cases import built_in_cases

from promptools import dialects, parse

EXAMPLES = {
    "in a fence, then a real one",
    "bare JSON before an expected block, and words after it",
    "a value that ends like a call",
}
"""Cut after its first half, each is an example that stands last, and an example that stands last is a call."""

SHORT = 64
"""Characters below which a reply is cut at every place."""
SHARED = [row for name in dialects.BUILT_IN for row in built_in_cases(name)]
ROWS = [
    row for row in (*rows(*ROWS_FOLDERS), *SHARED) if row.calls and len(row.text) < SHORT and row.name not in EXAMPLES
]
BLOCKS = [row for row in ROWS if row.options.get("expect") == "hermes" and "<tool_call>" in row.text]


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_every_beginning_of_a_reply(row: Row) -> None:
    options = {key: value for key, value in row.options.items() if key != "finish_reason"}
    tools = tools_of(row.tools)
    whole = [(call.name, call.arguments) for call in parse(row.text, tools, **options).calls]
    for end in range(len(row.text)):
        cut = parse(row.text[:end], tools, finish_reason="length", **options)
        found = [(call.name, call.arguments) for call in cut.calls]
        assert found == whole[: len(found)], f"cut at {end}"


@every_row(BLOCKS, name=lambda row: row.id, group=lambda row: row.table)
def test_a_cut_call_is_never_shown_as_text(row: Row) -> None:
    """With the dialect asked for, the first part of a block is a truncated call and not content."""
    begins = row.text.index("<tool_call>")
    for end in range(begins + len("<tool_call>"), begins + 30):
        reply = parse(row.text[:end], tools_of(row.tools), expect="hermes", finish_reason="length")
        assert [failed.reason for failed in reply.malformed] == ["truncated"]
        assert "<tool_call>" not in reply.content
