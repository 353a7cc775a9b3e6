from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.wire.sse import DONE, ServerSentEvent, SseDecoder, encode_comment, encode_event


def decode(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_line_end_ends_a_line(end):
    text = end.join(["event: a", "data: 1", "data:2", "", "data: [DONE]", "", ""])
    assert decode(text.encode()) == [ServerSentEvent("a", "1\n2"), ServerSentEvent(data=DONE)]


def test_crlf_cut_between_its_halves_is_one_line_end():
    assert decode(b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n") == [ServerSentEvent(data="1\n2")]


def test_a_character_cut_in_two_is_put_together():
    raw = "data: é🌍\n\n".encode()
    for cut in range(len(raw)):
        assert decode(raw[:cut], raw[cut:]) == [ServerSentEvent(data="é🌍")]


def test_broken_utf8_is_shown_and_does_not_raise():
    assert decode(b"data: a\xffb\n\n", b"data: \xe2\x82") == [
        ServerSentEvent(data="a\ufffdb"),
        ServerSentEvent(data="\ufffd"),
    ]


def test_a_byte_order_mark_is_dropped():
    assert decode(b"\xef\xbb", b"\xbfdata: 1\n\n") == [ServerSentEvent(data="1")]


def test_comments_come_alone_and_at_once():
    decoder = SseDecoder()
    assert decoder.feed(b": keep alive\ndata: 1\n") == [ServerSentEvent(comment="keep alive")]
    assert decoder.feed(b":\n\n") == [ServerSentEvent(), ServerSentEvent(data="1")]


def test_ids_retries_and_empty_events_are_not_events():
    assert decode(b"id: 7\nretry: 10\n\nevent: x\n\ndata\n\n") == [ServerSentEvent(data="")]


def test_an_event_keeps_its_name_to_itself():
    assert decode(b"event: error\ndata: 1\n\ndata: 2\n\n") == [ServerSentEvent("error", "1"), ServerSentEvent(data="2")]


def test_what_lacks_its_blank_line_counts_all_the_same():
    assert decode(b"data: 1\n\ndata: [DONE]") == [ServerSentEvent(data="1"), ServerSentEvent(data=DONE)]


def test_a_bare_json_line_is_handed_over_at_once():
    decoder = SseDecoder()
    decoder.feed(b'data: 1\n\n{"error": "x"')
    assert decoder.feed(b"}\n") == [ServerSentEvent("raw", '{"error": "x"}')]
    assert decoder.close() == []


def test_a_pretty_printed_error_is_one_block():
    body = '{\n  "error": {\n    "message": "x"\n  }\n}'
    assert decode(body.encode()) == [ServerSentEvent("raw", body)]
    assert decode(body.encode() + b"\ndata: 1\n\n") == [ServerSentEvent("raw", body), ServerSentEvent(data="1")]


def test_plain_words_are_not_lost():
    assert decode(b"Internal Server Error") == [ServerSentEvent("raw", "Internal Server Error")]


@given(st.text(), st.sampled_from([None, "error"]))
def test_what_is_encoded_is_decoded(data, event):
    lines = data.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    assert decode(encode_event(data, event)) == [ServerSentEvent(event or "", lines)]


@given(st.binary(), st.lists(st.integers(0, 200)))
def test_any_cut_gives_the_same_and_nothing_raises(raw, cuts):
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[a:b] for a, b in pairwise(edges)]
    assert decode(*pieces) == decode(raw)


def test_a_comment_is_one_line():
    assert encode_comment("mode native\nattempts 2") == b": mode native attempts 2\n\n"
    assert decode(encode_comment("a")) == [ServerSentEvent(comment="a")]
