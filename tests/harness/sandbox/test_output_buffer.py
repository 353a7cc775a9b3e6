"""The output of commands within a budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.harness.sandbox.processes import OutputBuffer, shorten

BUDGET = 40


def buffered(pieces, budget=BUDGET):
    buffer = OutputBuffer(budget)
    for piece in pieces:
        buffer.feed(piece)
    return buffer


@given(st.binary(max_size=BUDGET), st.integers(1, 7))
def test_what_fits_is_kept_whole(data, size):
    buffer = buffered(data[at : at + size] for at in range(0, len(data), size))
    assert not buffer.truncated
    assert buffer.text() == data.decode("utf-8", "replace")


@given(st.text(min_size=BUDGET + 1, max_size=150), st.integers(1, 50))
def test_both_ends_are_kept_and_no_character_is_torn(text, size):
    data = text.encode("utf-8", "replace")
    buffer = buffered(data[at : at + size] for at in range(0, len(data), size))
    assert buffer.truncated
    head, notice, tail = buffer.text().partition("\n[... ")
    tail = tail.partition("were left out here ...]\n")[2]
    assert notice
    shown = data.decode()
    assert shown.startswith(head)
    assert shown.endswith(tail)
    assert BUDGET - 6 <= len((head + tail).encode()) <= BUDGET


def test_the_notice_counts_what_is_missing():
    text = shorten("".join(f"{number:03}\n" for number in range(100)), 80)
    head, _, rest = text.partition("\n[... ")
    assert head == "".join(f"{number:03}\n" for number in range(10))
    assert rest.startswith("320 bytes of output, 80 lines, were left out here ...]\n090\n")


@pytest.mark.parametrize("size", [1, 1000, 1 << 16])
def test_memory_is_bounded_by_the_budget(size):
    buffer = OutputBuffer(1000)
    for _ in range(500):
        buffer.feed(b"y" * size)
        held = len(buffer._head) + sum(map(len, buffer._tail))
        assert held <= 1000
    assert len(buffer._tail) <= 500


def test_bytes_that_are_not_text_are_replaced():
    assert buffered([b"a\xff\xfeb\x00"]).text() == "a\ufffd\ufffdb\x00"
