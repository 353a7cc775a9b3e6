"""A reply that begins calls over and over and makes none is looked at less and less, and says so."""

import pytest

from promptools import StreamParser, parse
from promptools.parsing.engine.machine import MISSES

TOOLS = [{"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}]
CALLS = {
    "<function=": "<function=ping>\n<parameter=host>\na\n</parameter>\n</function>",
    "<tool_call>": '<tool_call>\n{"name": "ping", "arguments": {"host": "a"}}\n</tool_call>',
}
HEAD = "<function= \n"


@pytest.mark.parametrize("opener", CALLS)
def test_some_misses_hide_no_call(opener):
    text = HEAD * (MISSES - 1) + CALLS[opener]
    reply = parse(text, TOOLS)
    assert [call.arguments for call in reply.calls] == [{"host": "a"}]


def test_what_missed_so_often_is_text_from_then_on_and_the_trace_says_so():
    text = HEAD * MISSES + CALLS["<function="]
    reply = parse(text, TOOLS)
    assert reply.calls == ()
    assert reply.content == text
    assert any(str(MISSES) in each.why for each in reply.trace.tries)


def test_other_markers_are_still_looked_at():
    reply = parse(HEAD * (MISSES + 1) + CALLS["<tool_call>"], TOOLS)
    assert [call.dialect for call in reply.calls] == ["hermes"]


@pytest.mark.parametrize("count", [MISSES - 1, MISSES, MISSES + 1])
def test_pieces_count_alike(count):
    text = HEAD * count + CALLS["<function="]
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), 3):
        parser.feed(text[at : at + 3])
    parser.close()
    assert parser.reply.calls == parse(text, TOOLS).calls
    assert parser.reply.content == parse(text, TOOLS).content
