"""Newline-delimited JSON, cut anywhere."""

import pytest

from promptools.wire.sse import LineDecoder

LINES = ['{"a": "Grüße 你好 🙂"}', '{"b": 1}', '{"c": "\\n"}']


def lines(data, size):
    decoder = LineDecoder()
    step = size or len(data) or 1
    found = [line for start in range(0, len(data), step) for line in decoder.feed(data[start : start + step])]
    return [*found, *decoder.close()]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n \r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_lines_come_whole(size, end, last):
    assert lines((end.join(LINES) + last).encode(), size) == LINES


@pytest.mark.parametrize("size", [0, 1])
def test_a_byte_order_mark_and_broken_utf8(size):
    assert lines(b'\xef\xbb\xbf{"a": "\xff"}\n', size) == ['{"a": "\ufffd"}']


def test_nothing_is_not_a_line():
    assert lines(b"", 0) == []
    assert lines(b"\n\r\n\n", 1) == []


def test_a_line_is_not_given_before_its_end():
    decoder = LineDecoder()
    assert decoder.feed(b'{"a"') == []
    assert decoder.feed(b": 1}") == []
    assert decoder.feed(b"\n{") == ['{"a": 1}']
    assert decoder.close() == ["{"]
    assert decoder.close() == []


def test_one_long_line_is_put_together_once():
    decoder = LineDecoder()
    pieces = [b"xxxx"] * 1000
    for piece in pieces:
        assert decoder.feed(piece) == []
    assert decoder._partial == pieces  # nothing is joined, or looked at, before the line ends
    assert decoder.feed(b"\n") == ["xxxx" * 1000]
