"""A parser that was closed is freed at once, with all its text: nothing waits for the garbage collector."""

import gc

import pytest

from promptools import StreamParser, parse

CALL = '{"tool": "add", "arguments": {"a": 1}}'
TEXTS = [
    "Hello.",
    CALL,
    f"```json\n{CALL}\n```",
    f"Well.\n```json\n{CALL}\n```",
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"<think>Hm.</think>{CALL}",
    f"{'`' * 70} {CALL}",
]


pytestmark = pytest.mark.usefixtures("little_to_collect")


@pytest.mark.parametrize("text", TEXTS)
def test_a_reply_leaves_no_garbage(text):
    def streamed():
        parser = StreamParser()
        for char in text:
            parser.feed(char)
        parser.close()

    for read in (lambda: parse(text), streamed):
        read()
        gc.collect()
        gc.disable()
        try:
            read()
            assert gc.collect() == 0
        finally:
            gc.enable()
