"""A long silence is broken by comments: when they go out, what they leave possible, and what they never do."""

import pytest
from scripted import NOW, WEATHER, ask, error, event, play, reply, stream

from promptools.exchange import Failed
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.wire.sse import encode_comment

FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
HARMONY = event({"error": {"message": "Unexpected token 12 while expecting start token 200006", "code": 500}})
BEAT = encode_comment("keep-alive")


def beats(seen):
    return [at for at, piece in zip(seen.at, seen.pieces, strict=True) if piece == BEAT]


def slow(answer, every=0.0, takes=0.0):
    answer.cut, answer.every, answer.takes = 40, every, takes
    return answer


@pytest.mark.parametrize("tick", [0.0, 1.0], ids=["in process", "proxy"])
def test_a_call_that_is_written_for_long_is_not_silence(tick):
    """The server sends all the while; the call is text, and goes out when it is whole."""
    seen = play(ask(WEATHER, stream=True), [slow(stream(*FENCED), every=0.5)], tick=tick)
    assert len(beats(seen)) > 10
    assert beats(seen)[0] == 5.0
    assert all(after - before == 5.0 for before, after in zip(beats(seen), beats(seen)[1:], strict=False))
    assert seen.choice().calls[0]["arguments"] == '{"city": "Paris"}'
    assert seen.done


def test_while_the_server_is_silent_itself_the_proxy_is_not():
    seen = play(ask(WEATHER, stream=True), [slow(stream("Hello"), takes=17.0)], tick=1.0)
    assert beats(seen) == [5.0, 10.0, 15.0]
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.choice().content == "Hello"


def test_in_process_it_goes_out_when_the_server_sends_something():
    assert beats(play(ask(WEATHER, stream=True), [slow(stream("Hello"), takes=17.0)])) == [17.0]


def test_what_is_shown_is_not_silence():
    words = slow(stream(*"What a fine day it is"), every=0.5)
    words.cut = len(stream("W").body) // 4
    assert beats(play(ask(WEATHER, stream=True), [words], tick=1.0)) == []


def test_the_fallback_is_possible_after_it():
    seen = play(
        ask(WEATHER, stream=True),
        [slow(stream(*({"reasoning": ""},) * 30, HARMONY, finish=None), every=1.0), slow(stream(FENCED), takes=20.0)],
        tick=1.0,
    )
    assert len(beats(seen)) > 3
    assert seen.headers["x-promptools-mode"] == "native"
    assert seen.comments[-1] == "promptools mode=prompt attempts=2"
    assert seen.choice().calls[0]["name"] == "get_weather"
    assert seen.choice().roles == ["assistant"]


def test_the_wait_between_two_attempts_is_none_either():
    class Wait:
        def __call__(self, state):
            return 12.0

    answers = [stream(HARMONY, finish=None), stream(FENCED)]
    seen = play(ask(WEATHER, stream=True), answers, tick=1.0, wait=Wait())
    assert seen.waits == [12.0]
    assert beats(seen) == [5.0, 10.0]
    assert seen.done


def test_a_failure_after_it_is_an_error_in_the_stream():
    refused = slow(error("model not found", 404), takes=6.0)
    refused.headers = (*refused.headers, ("retry-after", "3"))
    seen = play(ask(WEATHER, stream=True), [refused], tick=1.0)
    assert seen.head.status == 200
    assert not seen.done
    assert "model not found" in seen.events[-1]["error"]["message"]
    assert "retry-after" not in seen.headers


def test_no_answer_after_it_is_an_error_in_the_stream():
    """Before it the shell's own exception is raised, so that the SDK asks again; now there is an answer."""
    broken = slow(stream(), takes=6.0)
    broken.status, broken.broken = 0, Failed("timeout", "no answer", 0.0, TimeoutError("read"))
    seen = play(ask(WEATHER, stream=True), [broken] * 2, tick=1.0, spare=True)
    assert seen.events[-1]["error"]["code"] == "timeout"
    with pytest.raises(TimeoutError):
        play(ask(WEATHER, stream=True), [broken] * 2, tick=1.0, spare=True, options={"heartbeat": 0})


def test_the_head_never_has_a_failed_attempts_fields():
    failed = error("unexpected tokens remaining in message header", 500)
    failed.headers = (*failed.headers, ("retry-after", "3"), ("x-request-id", "a"))
    good = slow(stream(FENCED), takes=6.0)
    seen = play(ask(WEATHER, stream=True), [failed, good], tick=1.0)
    assert beats(seen) == [5.0]
    assert not {"retry-after", "x-request-id"} & seen.headers.keys()
    assert seen.done


@pytest.mark.parametrize("seconds", [0, 0.0])
def test_it_can_be_left_out(seconds):
    body = ask(WEATHER, stream=True, promptools={"heartbeat": seconds})
    assert beats(play(body, [slow(stream(*FENCED), every=9.0, takes=99.0)], tick=1.0)) == []


def test_the_seconds_are_the_requests_own():
    body = ask(WEATHER, stream=True, promptools={"heartbeat": 2.5})
    assert beats(play(body, [slow(stream("Hi"), takes=9.0)], tick=0.5)) == [2.5, 5.0, 7.5]


@pytest.mark.parametrize("wrong", [-1, "5", None, True, float("nan")])
def test_what_is_not_a_number_of_seconds(wrong):
    seen = play(ask(WEATHER, stream=True, promptools={"heartbeat": wrong}), [])
    assert seen.head.status == 400
    assert "promptools.heartbeat must be a number, 0 or more" in seen.json["error"]["message"]


def test_a_whole_answer_has_no_place_for_it():
    seen = play(ask(WEATHER), [slow(reply(FENCED), takes=99.0)], tick=1.0)
    assert len(seen.pieces) == 1
    assert seen.message["tool_calls"]


def test_lines_know_no_comments():
    said = slow(stream(*FENCED), every=9.0, takes=99.0)
    seen = play(ask(WEATHER), [said], tick=1.0, front=OLLAMA_API, url="http://server/api/chat")
    assert len(seen.pieces) == 2
    assert b"keep-alive" not in seen.body


def in_halves(answer, every):
    """The body in two pieces, the first of which ends inside an event."""
    answer.cut, answer.every = len(answer.body) // 2, every
    assert not answer.body[: answer.cut].endswith(b"\n\n")
    return answer


def test_a_request_without_tools_passes_untouched_in_process():
    seen = play(ask(stream=True), [slow(stream("Hello"), takes=99.0, every=9.0)])
    assert seen.body == stream("Hello").body


def test_a_forwarded_stream_has_comments_between_its_events_once_the_server_has_begun():
    body = stream("Hello ", "world", ".").body
    seen = play(ask(stream=True), [in_halves(stream("Hello ", "world", "."), every=12.0)], tick=1.0)
    assert beats(seen) == [5.0, 10.0, 17.0, 22.0]
    assert seen.body.replace(BEAT, b"") == body
    assert all(event.count(b"data:") <= 1 for event in seen.body.split(b"\n\n"))
    late = play(ask(stream=True), [slow(stream("Hello"), takes=99.0)], tick=1.0)
    assert late.body == stream("Hello").body  # the status is the server's


def test_a_forwarded_stream_that_is_lost_after_a_comment_is_asked_for_again():
    broken = slow(stream(finish=None), every=7.0)
    broken.body, broken.broken = b"", Failed("closed", "reset", 0.0)
    seen = play(ask(stream=True), [broken, stream("Hello")], tick=1.0)
    assert (seen.head.status, beats(seen)) == (200, [5.0])
    assert seen.choice().content == "Hello"


@pytest.mark.parametrize(
    ("fields", "heartbeat"),
    [
        ((("content-length", "99"),), 5.0),
        ((("content-encoding", "br"),), 5.0),
        ((("Content-Digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"),), 5.0),
        ((("content-type", "application/json"),), 5.0),
        ((), 0.0),
    ],
)
def test_a_forwarded_response_without_a_place_for_comments_has_none(fields, heartbeat):
    answer = in_halves(stream("Hello"), every=12.0)
    kept = [pair for pair in answer.headers if pair[0].lower() not in dict(fields)]
    answer.headers = (*kept, *fields)
    seen = play(ask(stream=True), [answer], tick=1.0, options={"heartbeat": heartbeat})
    assert seen.body == stream("Hello").body


def test_a_reply_that_is_written_anew_has_no_digest_of_the_servers_bytes():
    answer = reply("Hello")
    answer.headers = (*answer.headers, ("Repr-Digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"))
    assert "repr-digest" not in {name.lower() for name in play(ask(WEATHER), [answer]).headers}


def test_an_event_that_is_too_long_to_be_held_has_no_comment_inside():
    long = stream("Hello", "x" * (1 << 21))
    long.every, long.cut = 9.0, len(long.body) * 3 // 4
    seen = play(ask(stream=True), [long], tick=1.0)
    assert beats(seen) == [5.0]
    assert seen.body.replace(BEAT, b"") == long.body


def test_it_says_the_same_with_and_without():
    answers = [slow(stream("Let me look. ", *FENCED, " ", FENCED.replace("Paris", "Rome"), usage={}), every=0.7)]
    with_it = play(ask(WEATHER, NOW, stream=True), answers, tick=1.0)
    without = play(ask(WEATHER, NOW, stream=True, promptools={"heartbeat": 0}), answers, tick=1.0)
    assert beats(with_it)
    assert with_it.body.replace(BEAT, b"") == without.body
