"""The end that a stream tells of: nothing after it is waited for, in any mode, and untouched passes look for it too."""

import json

import pytest
from clock import assert_linear
from scripted import SSE, WEATHER, Answer, ask, chunk, event, play, stream, target

from promptools.exchange import Failed
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.passthrough import StreamEndDetector

NDJSON = (("content-type", "application/x-ndjson"),)
STUCK = Failed("timeout", "nothing more came", 0.0, TimeoutError())
"""How a read ends that comes after the end: it is never made."""
TOOLS = {"chat": (WEATHER,), "untouched": ()}
LINES = [
    {"model": "m", "message": {"role": "assistant", "content": "It is warm."}, "done": False},
    {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 9},
]


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("tools", TOOLS.values(), ids=list(TOOLS))
def test_nothing_is_read_after_done(tools, cut):
    answer = stream("It is warm.", usage={"completion_tokens": 9}, cut=cut)
    answer.broken = STUCK
    seen = play(ask(*tools, stream=True, stream_options={"include_usage": True}), [answer])
    assert seen.choice().content == "It is warm."
    assert seen.choice().finish == ["stop"]
    assert seen.events[-1]["usage"]["completion_tokens"] == 9
    assert seen.done


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("front", ["chat", "ollama"])
def test_nothing_is_read_after_the_last_line_of_ollama(front, cut):
    body = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
    answer = Answer(200, body, NDJSON, cut, STUCK)
    if front == "chat":
        seen = play(ask(WEATHER, stream=True), [answer], target=target(wire="ollama"))
        assert seen.choice().content == "It is warm."
        assert seen.done
    else:
        seen = play(ask(stream=True), [answer], target=target(wire="ollama"), front=OLLAMA_API)
        assert seen.body == body


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
FENCE = '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```'
BLANKS = ["\n\n\n\n"] * 25


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("call", [CALL, FENCE])
def test_white_space_after_a_call_is_not_read_to_its_end(cut, call):
    # what a server does that forbids an end before a call in the form that it reads: here it never comes to one
    answer = stream(call, *BLANKS, *BLANKS, "never read", finish=None, done=False, cut=cut)
    seen = play(ask(WEATHER, stream=True, promptools={"trace": True}), [answer])
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"}'
    assert (seen.choice().content, seen.choice().finish, seen.done) == ("", ["tool_calls"], True)
    assert (seen.abandoned, len(seen.sent)) == (1, 1)
    notes = seen.events[-1]["promptools"]["notes"]
    assert "the read was ended after a whole call and 100 characters of white space" in notes


@pytest.mark.parametrize("cut", [0, 7])
def test_white_space_that_ends_in_time_is_read_on(cut):
    answer = stream(CALL, *BLANKS[1:], CALL.replace("Paris", "Rome"), cut=cut)
    seen = play(ask(WEATHER, stream=True), [answer])
    assert [each["arguments"] for each in seen.choice().calls.values()] == ['{"city": "Paris"}', '{"city": "Rome"}']
    assert seen.abandoned == 0


def test_every_choice_has_to_come_to_an_end():
    def both(text):
        return b"".join(chunk({"content": text}, index=index) for index in (0, 1))

    first = [chunk({"content": each}) for each in (CALL, *BLANKS, *BLANKS)]
    second = [chunk({"content": each}, index=1) for each in (CALL, *BLANKS)]
    body = ask(WEATHER, stream=True, n=2)
    seen = play(body, [stream(*first, *second, both("never read"), finish=None, done=False)])
    assert [len(seen.choice(index).calls) for index in (0, 1)] == [1, 1]
    assert (seen.abandoned, "never read" in seen.body.decode()) == (1, False)


def test_what_is_lost_is_asked_for_again_without_waiting():
    lost = stream({"reasoning": "Hm."})
    lost.broken = STUCK
    seen = play(ask(stream=True), [lost, stream("Hello.")])
    assert seen.choice().content == "Hello."


def test_a_choice_of_llamacpp_that_has_stopped_ends_the_stream():
    body = event({"index": 0, "content": "Warm.", "stop": False}) + event({"index": 0, "content": "", "stop": True})
    where = target(raw="llamacpp", modes=("harmony",), family="gpt-oss", context=131_072)
    seen = play(ask(WEATHER, stream=True), [Answer(200, body, SSE, broken=STUCK)], target=where)
    assert seen.choice().content == "Warm."
    assert seen.done


ENDS = {
    "chat": [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: 1\r\n\r\ndata: [DONE] \r\n\r\n", b"\rdata: [DONE]\r\r"],
    "ollama": [b'{"done":true}\n', b'{"a": 1}\n{"a": {"done": false}, "done" : true}\n'],
}
NO_ENDS = {
    "chat": [
        b"data: [DONE]\n",
        b"data: [DONE]",
        b'data: {"a": "data: [DONE]"}\n\n',
        b'data: {"a": "\\ndata: [DONE]\\n\\n"}\n\n',
        chunk({"content": "\ndata: [DONE]\n\n"}) * 3,
        b"x" * 63 + b"data: [DONE]\n\n",
    ],
    "ollama": [
        b'{"done":true}',
        b'{"done":false}\n',
        b'{"message": {"tool_calls": [{"function": {"arguments": {"done":true}}}]}, "done": false}\n',
        b'{"a": "\\"done\\":true"}\n',
        b'{"done":true, and more}\n',
        b'{"a": "' + b"x" * 70_000 + b'", "done":true}\n',
    ],
}


@pytest.mark.parametrize("size", [0, 1, 5, 64])
@pytest.mark.parametrize(
    ("wire", "text", "wanted"),
    [(wire, text, True) for wire, texts in ENDS.items() for text in texts]
    + [(wire, text, False) for wire, texts in NO_ENDS.items() for text in texts],
)
def test_the_end_is_told_from_words_about_it(wire, text, wanted, size):
    ending = StreamEndDetector(wire)
    step = size or len(text)
    for at in range(0, len(text), step):
        assert not ending.seen
        ending.feed(text[at : at + step])
    assert ending.seen is wanted
    ending.feed(b"more")
    assert ending.seen is wanted


@pytest.mark.clock
@pytest.mark.parametrize("wire", ["chat", "ollama"])
def test_a_long_line_in_small_pieces_costs_no_more_for_its_length(wire):
    def watched(size):
        ending = StreamEndDetector(wire)
        for _ in range(size):
            ending.feed(b"abcd")
        assert len(ending._tail) <= 1 << 16

    assert_linear(watched, 10_000, 160_000)
