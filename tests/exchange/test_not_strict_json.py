"""Chunks, lines and bodies that are no strict JSON: their words are read, or the attempt fails; none is passed over."""

import json

import pytest
from scripted import JSON, SSE, WEATHER, Answer, ask, chunk, play, reply, stream, target

NDJSON = (("content-type", "application/x-ndjson"),)
DONE = b"data: [DONE]\n\n"
END = chunk({}, "stop") + DONE
OLLAMA = target(wire="ollama")
ODD = {
    "a control character": (rb"It is\twarm", b"It is\twarm", "It is\twarm"),
    "a trailing comma": (b'warm"}', b'warm",}', "warm"),
    "no space": (b"data: ", b"data:", "warm"),
    "carriage returns": (b"\n", b"\r\n", "warm"),
    "a lone surrogate": (b"warm", rb"warm \ud800", "warm \ud800"),
    "NaN": (b'"created": 7', b'"created": NaN', "warm"),
    "broken UTF-8": (b"warm", b"warm\xff", "warm\ufffd"),
    "two lines of data": (b', "choices"', b'\ndata: , "choices"', "warm"),
    "a chunk without its blank line": (b"warm", b"warm", "warm"),
    "a byte order mark": (b"data: ", b"\xef\xbb\xbfdata: ", "warm"),
    "a zero byte after it": (b"}\n\n", b"}\x00\n\n", "warm"),
}


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize(("was", "becomes", "words"), ODD.values(), ids=list(ODD))
def test_the_words_of_an_odd_chunk_are_read(was, becomes, words, cut):
    count = 1 if becomes.startswith(b"\xef") else -1
    odd = chunk({"content": "It is\twarm"}).replace(was, becomes, count)
    seen = play(ask(WEATHER, stream=True), [Answer(200, odd + END, SSE, cut)])
    assert words in seen.choice().content
    assert seen.choice().finish == ["stop"]


def test_chunks_without_a_blank_line_between_them_are_all_read():
    glued = (chunk({"content": "It is "})[:-1] + chunk({"content": "warm"}) + END).replace(b"\n\ndata", b"\ndata")
    seen = play(ask(WEATHER, stream=True), [Answer(200, glued, SSE)])
    assert seen.choice().content == "It is warm"


UNREADABLE = [
    b'data: {"choices": [{"delta": {"content": "It is "warm" there"}}]}\n\n',
    b'data: {"choices": [{"delta": {"content": "It is\n\n',
    b'{"choices": [{"delta": {"content": "It is\n\n',
    b'data {"choices": [{"delta": {"content": "It is"}}]}\n\n',
]


@pytest.mark.parametrize("odd", UNREADABLE)
def test_a_chunk_that_cannot_be_read_fails_the_attempt(odd):
    bad = Answer(200, chunk({"role": "assistant", "content": ""}) + odd + chunk({"content": "late"}) + END, SSE)
    seen = play(ask(WEATHER, stream=True), [bad, stream("It is warm.")])
    assert seen.choice().content == "It is warm."
    assert [each.outcome for each in seen.reply.trace.attempts] == ["garbled", "answered"]


@pytest.mark.parametrize("odd", UNREADABLE)
def test_after_the_commit_point_it_is_an_error_in_the_stream(odd):
    bad = Answer(200, chunk({"content": "It is "}) + odd + chunk({"content": "late"}) + END, SSE)
    seen = play(ask(WEATHER, stream=True), [bad])
    assert seen.choice().content == "It is "
    assert seen.events[-1]["error"]["code"] == "garbled"
    assert not seen.done


def test_what_can_hold_no_words_is_passed_over():
    noise = b"data: ping\n\nfoo: bar\n\n: comment\n\nevent: x\ndata: \n\nsome words\n\ndata: 7\n\n"
    seen = play(ask(WEATHER, stream=True), [Answer(200, noise + chunk({"content": "warm"}) + noise + END, SSE)])
    assert seen.choice().content == "warm"
    assert seen.done


def test_the_liberty_is_told():
    odd = chunk({"content": "warm"}).replace(b'warm"}', b'warm",}')
    seen = play(ask(WEATHER, stream=True), [Answer(200, odd + END, SSE)])
    assert seen.reply.trace.notes == ("the server's JSON was repaired: trailing comma",)


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        (rb"It is\twarm", b"It is\twarm", "It is\twarm"),
        (b'"created": 7', b'"created": NaN', "It is\twarm"),
        (b'"finish_reason": "stop"', b'"finish_reason": "stop",', "It is\twarm"),
        (b"{", b"\xef\xbb\xbf{", "It is\twarm"),
    ],
)
def test_a_whole_reply_that_is_not_strict_is_read(was, becomes, words):
    answer = reply("It is\twarm")
    answer.body = answer.body.replace(was, becomes, 1)
    seen = play(ask(WEATHER), [answer])
    assert seen.message["content"] == words
    assert json.loads(seen.body)["created"] in {0, 7}


def test_lines_of_ollama_are_read_likewise():
    line = b'{"model": "m", "message": {"role": "assistant", "content": "It is\twarm"}, "done": false,}\n'
    last = b'{"model": "m", "message": {"content": ""}, "done": true, "done_reason": "stop"}\n'
    seen = play(ask(WEATHER, stream=True), [Answer(200, line + last, NDJSON)], target=OLLAMA)
    assert seen.choice().content == "It is\twarm"
    bad = Answer(200, line[:40] + b"\n" + last, NDJSON)
    seen = play(ask(WEATHER, stream=True), [bad, Answer(200, line + last, NDJSON)], target=OLLAMA)
    assert seen.choice().content == "It is\twarm"
    assert seen.reply.trace.attempts[0].outcome == "garbled"


def test_numbers_that_json_lacks_reach_the_client_as_null():
    answer = Answer(200, reply("warm").body.replace(b'"prompt_tokens": 10', b'"prompt_tokens": Infinity'), JSON)
    seen = play(ask(WEATHER), [answer])
    assert b"Infinity" not in seen.body
    assert seen.json["usage"]["prompt_tokens"] is None
