"""A reply that begins calls over and over and makes none is looked at less and less, and says so."""

import pytest

from promptools import StreamParser, parse
from promptools.parsing.engine.machine import MISSES, REBUILDS

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


def test_a_call_starts_the_count_anew():
    some = HEAD * (MISSES - 1)
    other = CALLS["<function="].replace("\na\n", "\nb\n")
    reply = parse(f"{some}{CALLS['<tool_call>']}\n{some}{other}", TOOLS)
    assert [call.arguments for call in reply.calls] == [{"host": "a"}, {"host": "b"}]


@pytest.mark.parametrize(("count", "called"), [(MISSES - 1, True), (MISSES, False)])
@pytest.mark.parametrize("step", [5, 10_000])
def test_first_words_of_lines_are_counted_too(count, called, step):
    text = "So:\n" + ">>>ping\nno body\n" * count + '>>>ping\n{"host": "a"}'
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), step):
        parser.feed(text[at : at + step])
    parser.close()
    assert [call.arguments for call in parser.reply.calls] == [{"host": "a"}] * called
    assert parser.reply.content.startswith("So:\n>>>ping\nno body\n")


def test_kinds_that_are_too_many_to_be_left_out_of_the_search_are_text_as_well():
    heads = [
        *("<function= \n", "<|tool_call>no\n", "<|tool_calls_section_begin|>no {\n", "<tool_call>\n<function=>\n"),
        *("<seed:tool_call>no\n", "<minimax:tool_call>no\n", "<|tool_call_start|>no\n", "<|START_ACTION|>no\n"),
        *("<｜DSML｜function_calls>no\n", "<|tool_call|>no\n", "<|tools_prefix|>no\n", "[TOOL_CALLS]no\n"),
    ]
    assert len(heads) > REBUILDS
    text = "".join(head * (MISSES + 1) for head in heads)
    reply = parse(text + CALLS["<tool_call>"], TOOLS)
    assert [call.dialect for call in reply.calls] == ["hermes"]
    assert "".join(text.split()) == "".join("".join((reply.content, *(each.raw for each in reply.malformed))).split())


def test_lone_openers_that_begin_nothing_are_words_in_the_end():
    text = "<tool_call> is a tag. " * (MISSES + 2)
    assert parse(text + CALLS["<tool_call>"], TOOLS).content == text.strip()


def test_lone_openers_beside_calls_are_none_of_the_words_however_many():
    section = (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{"host": "a"}'
        "<|tool_call_end|><|tool_calls_section_end|>"
    )
    reply = parse(section * (MISSES + 2), TOOLS)
    assert len(reply.calls) == MISSES + 2
    assert reply.content == ""


@pytest.mark.parametrize("step", [7, 100_000])
def test_what_begins_as_many_that_were_nothing_is_looked_at_all_the_same(step):
    head = "<|tool_call_begin|>functions.ping:0"
    text = f"{head}<nothing>" * 200 + head + '<|tool_call_argument_begin|>{"host": "a"}<|tool_call_end|>'
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), step):
        parser.feed(text[at : at + step])
    parser.close()
    assert [call.arguments for call in parser.reply.calls] == [{"host": "a"}]


def test_a_marker_that_is_held_until_more_text_comes_counts_once():
    text = f'<tool_calls>{"x" * 2 * MISSES}\n<tool_calls>{{"name": "ping", "arguments": {{}}}}</tool_calls>'
    parser = StreamParser(TOOLS, expect="minimax_m1")
    for char in text:
        parser.feed(char)
    parser.close()
    assert [call.dialect for call in parser.reply.calls] == ["minimax_m1"]
    assert [each.outcome for each in parser.reply.trace.tries] == ["call"]
