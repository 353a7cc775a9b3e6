"""What a marker needs before it is told from the text, never from how the text was cut."""

import json

import pytest

from promptools import StreamParser, Tools, parse

TOOLS = Tools([{"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}])
CALL = '{"tool": "look", "arguments": {"city": "Oslo"}}'


def in_characters(text, **options):
    parser = StreamParser(TOOLS, **options)
    for character in text:
        parser.feed(character)
    parser.close()
    return parser.reply


@pytest.mark.parametrize("expect", [None, "json"])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (json.dumps(CALL), 1),
        (" \n" + json.dumps(CALL), 1),
        ("He said " + json.dumps(CALL), 0),
        ("`code` " + json.dumps(CALL), 0),
        ("{x} " + json.dumps(CALL), 0),
        ("</tool_call>" + json.dumps(CALL), 0),
    ],
)
def test_a_quoted_call_stands_alone_whole_or_in_pieces(text, calls, expect):
    assert len(parse(text, TOOLS, expect=expect).calls) == calls
    assert in_characters(text, expect=expect) == parse(text, TOOLS, expect=expect)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("```python\nprint(1)\n```\n\n" + CALL, 1),
        ("```\nx = 1\n```\n```json\n" + CALL + "\n```", 1),
        ("```\n" + CALL + "\n```", 1),
        ("```\nx = 1\n`````\n" + CALL, 1),
        ("````\nx = 1\n```\n" + CALL + "\n````", 0),
        ("~~~\nx = 1\n~~~\n" + CALL, 1),
        ("```python\nx = 1\n" + CALL, 0),
    ],
)
def test_a_fence_of_code_ends_where_it_does_in_pieces(text, calls):
    assert len(parse(text, TOOLS).calls) == calls
    assert in_characters(text) == parse(text, TOOLS)
