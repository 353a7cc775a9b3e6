"""However a reply is cut, it is read alike under every strictness, for every finish reason and beside every source.

The tables' rows have one set of options each. Here each row gets others, by its name alone, so that all of them
together cover the combinations.
"""

from __future__ import annotations

from itertools import product
from typing import Any
from zlib import crc32

import pytest
from casebook import ROWS_FOLDERS, SETS, Row, bare, feed, rows, tiled, tools_of
from many_rows import every_row
from shared_cases import built_in_cases

from promptools import dialects, parse
from promptools.parsing.events import join

EACH = 5
"""One in so many rows is read: the combinations are the same in all of them."""
ROWS = [
    row
    for row in (*rows(*ROWS_FOLDERS), *(row for name in dialects.BUILT_IN for row in built_in_cases(name)))
    if crc32(row.id.encode()) % EACH == 0
]
STRICTNESS = ("strict", "balanced", "lenient")
FINISH_REASONS = (None, "stop", "length")
SOURCES = ("none", "of others", "a part of it", "all of it")
COMBINATIONS = list(product(STRICTNESS, FINISH_REASONS, SOURCES))


def sources_of(kind: str, text: str) -> list[str]:
    """Return what the conversation holds."""
    return {
        "none": [],
        "of others": ["How is Oslo?", '{"name": "ping", "arguments": {}}'],
        "a part of it": [text[: len(text) // 2]],
        "all of it": [f"Say {text} now."],
    }[kind]


def assert_agrees(text: str, tools: Any, reason: str | None, options: dict[str, Any]) -> None:
    events, reply = feed([text], tools, reason, **options)
    assert bare(parse(text, tools, finish_reason=reason, **options)) == bare(reply)
    tiled(events, text)
    for cut in (list(text), *([text[:at], text[at:]] for at in range(3, len(text), len(text) // 3 + 1))):
        pieced, other = feed(cut, tools, reason, **options)
        assert join(pieced) == join(events), cut
        assert bare(other) == bare(reply), cut


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_a_row_under_other_options(row: Row) -> None:
    strictness, reason, kind = COMBINATIONS[crc32(row.name.encode()) % len(COMBINATIONS)]
    options = {**row.options, "strictness": strictness, "sources": sources_of(kind, row.text)}
    options.pop("finish_reason", None)
    assert_agrees(row.text, tools_of(row.tools), reason, options)


FENCES = ("```", "```json\n", "```xml ", "~~~\n", "````json\n")
HALVES = (
    '{"name": "ping", "arguments": {}}, {"name": "get_weather", "argu',
    '[{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": }',
    '{"name": "get_weather", "arguments": {"city": "Os',
    '{"city": "Os',
    '[get_weather(city="Os',
    '<tool_call>{"name": "ping", "argum',
)
AROUND = ("{}", "I look:\n\n{}", "I look:\n{}\n```\nDone.", "<think>Hm.</think>\n{}\n```")


@pytest.mark.parametrize("strictness", STRICTNESS)
@pytest.mark.parametrize("half", HALVES)
def test_half_a_call_in_a_fence(half: str, strictness: str) -> None:
    for number, (fence, around, expect) in enumerate(product(FENCES, AROUND, (None, "json"))):
        reason, kind = FINISH_REASONS[number % 3], SOURCES[number // 3 % len(SOURCES)]
        text = around.replace("{}", fence + half)
        sources = sources_of(kind, text)
        assert_agrees(text, SETS["demo"], reason, {"expect": expect, "strictness": strictness, "sources": sources})


def test_what_cannot_be_told_from_nothing_is_not_a_quotation() -> None:
    """A call that follows its fence's backticks on the same line was once taken off with them, and nothing was left."""
    text = '```xml [{"name": "ping", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "Oslo"}}]\n```'
    for sources in ([], ["How is Oslo?"]):
        for cut in ([text], list(text)):
            _, reply = feed(cut, SETS["demo"], sources=sources, expect="json")
            assert [call.name for call in reply.calls] == ["ping", "get_weather"], (sources, cut)
