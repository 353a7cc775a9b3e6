"""Requests that have nothing to do with tools pass byte for byte, both ways."""

import json

import pytest
from clock import assert_linear
from scripted import JSON, SSE, URL, Answer, ask, call, chunk, error, event, play, reply, stream, target

from promptools.exchange import Failed, Route

HARMONY = "Unexpected token 173781 while expecting start token 200006"
BODY = b'{ "model":"m",\n"messages" : [{"role":"user","content":"hi \\u00e9"}], "odd": 1.10, "tools": []}'
STREAMED = b'{"model":"m","stream": true,"messages":[{"role":"user","content":"hi"}]}'


def same(seen, body, answer):
    assert seen.sent[0].body == body
    assert seen.sent[0].url == URL
    assert seen.head.status == answer.status
    assert seen.head.headers == answer.headers
    assert seen.body == answer.body
    assert seen.reply is None
    assert seen.replies == []
    assert len(seen.sent) == 1


ODD = Answer(200, b'{"choices": [{"message": {"content": "hi", "x": 1.0}}]  }', (*JSON, ("X-Odd", "1")))


@pytest.mark.parametrize(
    "answer",
    [
        ODD,
        reply("hi"),
        reply("", finish="length"),
        reply("", finish="content_filter"),
        reply("", usage={"completion_tokens": 1}),
        reply("", calls=[call("f", {})], finish="tool_calls"),
        Answer(200, b"not json", (("content-type", "text/plain"),)),
        Answer(200, b"", ()),
        Answer(200, b'{"error": {}}', JSON),
        Answer(204, b"", ()),
        error("The model `nope` does not exist.", 404),
        error("slow down", 429),
        error("disk full", 500),
        Answer(500, b"Internal Server Error", (("content-type", "text/plain"),)),
    ],
)
def test_a_whole_reply_passes(answer):
    same(play(BODY, [answer]), BODY, answer)


@pytest.mark.parametrize("cut", [0, 1, 7, 50])
@pytest.mark.parametrize(
    "answer",
    [
        stream("Hel", "lo"),
        stream({"reasoning": "Hm."}, "\n", "Hello"),
        stream(finish="length"),
        stream("\n", "x", event({"error": {"message": HARMONY}}), finish=None),
        stream(event({"error": {"message": "disk full"}}), finish=None),
        stream({"tool_calls": [call("f", {})]}, finish="tool_calls"),
        stream(finish="stop", usage={"completion_tokens": 1}),
        Answer(200, chunk({"content": "a"}).replace(b"\n", b"\r\n") + b": comment\r\n\r\ndata: [DONE]\r\n\r\n", SSE),
        Answer(200, chunk({"content": "a"}, "stop") + b"data: tail without an end", SSE),
        Answer(200, chunk({"content": "a"}, "stop"), SSE),
        Answer(200, chunk({"content": "a"}) + b"data: [DONE]", SSE),
        Answer(200, chunk({}, "stop") + chunk({"content": "late"}) + b"data: [DONE]\n\n", SSE),
        Answer(200, chunk({"content": "", "refusal": "No."}) + b"data: [DONE]\n\n", SSE),
        reply("hi"),
    ],
)
def test_a_stream_passes(answer, cut):
    answer.cut = cut
    same(play(STREAMED, [answer]), STREAMED, answer)


def test_bytes_pass_as_they_come():
    answer = stream({"reasoning": "Hm."}, "Hello", " you")
    answer.cut = len(answer.body) // 2
    seen = play(STREAMED, [answer])
    assert seen.body == answer.body
    assert len(seen.pieces) > 1


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 1000])
def test_events_are_forwarded_whole(cut, ending):
    answer = stream("Hello", " you", " and", " all")
    answer.body = answer.body.replace(b"\n", ending)
    answer.cut = cut
    seen = play(STREAMED, [answer])
    assert seen.body == answer.body
    assert all(piece.endswith(2 * ending) for piece in seen.pieces)


@pytest.mark.parametrize("cut", [1, 7, 50, 1000])
@pytest.mark.parametrize("rest", [b"", b'data: {"choi', b"data: tail"])
def test_a_stream_that_just_ends_ends_in_an_error(rest, cut):
    answer = stream("Hello", " you", finish=None, done=False)
    whole, answer.body, answer.cut = answer.body, answer.body + rest, cut
    seen = play(STREAMED, [answer])
    assert seen.body.startswith(whole + b"event: error\ndata: ")
    assert seen.events[-1]["error"]["code"] == "cut"
    assert seen.choice().content == "Hello you"


def test_half_a_json_body_is_followed_by_the_end_of_the_connection():
    answer = reply("Hello " * 400_000)
    answer.body, answer.cut = answer.body[:-200], 1 << 16
    answer.broken = Failed("closed", "reset", 0.0, ConnectionError("reset"))
    with pytest.raises(ConnectionError):
        play(BODY, [answer])


def test_an_event_without_end_is_forwarded_in_parts():
    answer = stream("Hello", b"data: " + 3 * (1 << 20) * b"x")
    answer.cut = 1 << 16
    seen = play(STREAMED, [answer])
    assert seen.body == answer.body
    assert max(map(len, seen.pieces)) < 3 << 19


def test_an_error_after_half_an_event_is_an_event_of_its_own():
    answer = stream("Hello", finish=None, done=False)
    answer.body += b'data: {"choices": [{"delta": {"content": "you'
    answer.broken = Failed("read", "reset", 0.0, ConnectionError("reset"))
    seen = play(STREAMED, [answer])
    assert seen.events[-1]["error"]["message"]
    assert seen.choice().content == "Hello"


@pytest.mark.clock
def test_one_long_event_in_small_pieces_costs_no_more_for_its_length():
    from promptools.exchange.passthrough import PassthroughMonitor

    def watched(size):
        watch = PassthroughMonitor(streamed=True, swallows=True)
        for piece in [b"data: "] + [b"abcd"] * size:
            watch.feed(piece)

    assert_linear(watched, 2_500, 40_000)


def test_requests_that_are_not_a_json_object_pass():
    answer = error("bad json", 400)
    for body in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        same(play(body, [answer]), body, answer)
    harmony = error(HARMONY)
    seen = play(b"[]", [harmony])
    assert seen.body == harmony.body


def test_headers_of_the_request_pass():
    seen = play(BODY, [reply("hi")], headers=(("Authorization", "Bearer x"), ("X-Own", "1")))
    assert seen.sent[0].headers == (("Authorization", "Bearer x"), ("X-Own", "1"))


def test_only_the_models_name_and_the_configs_defaults_change_it():
    where = target(model="real", defaults={"temperature": 0.1, "odd": 2})
    seen = play(BODY, [ODD], target=where)
    sent = seen.bodies[0]
    assert sent == {**json.loads(BODY), "model": "real", "temperature": 0.1}
    assert seen.body == ODD.body
    seen = play(BODY, [ODD], route=lambda model, provider: Route(target(model="m"), "http://b/v1/chat/completions"))
    assert seen.sent[0].body == BODY
    assert seen.sent[0].url == "http://b/v1/chat/completions"


def test_tool_history_and_forced_modes_are_not_untouched():
    history = [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": "b"}]
    assert play(ask(messages=history), [reply("hi")]).headers["x-promptools-mode"] == "native"
    assert play(ask(), [reply("hi")], options={"mode": "prompt"}).headers["x-promptools-mode"] == "prompt"


# -- what the server loses is asked for again


@pytest.mark.parametrize(
    "lost",
    [
        error(HARMONY, 500),
        error(HARMONY, 400),
        Answer(200, json.dumps({"error": {"message": HARMONY}}).encode()),
        reply("", reasoning="Hm."),
        reply("", usage={"completion_tokens": 40}),
        reply("", usage={"completion_tokens": 40.0}),
        reply(None, stop_reason=200012),
        reply(None, finish="tool_calls"),
    ],
)
def test_a_lost_reply_is_asked_for_again(lost):
    seen = play(BODY, [lost, reply("Hello")])
    assert seen.message["content"] == "Hello"
    assert seen.headers["x-promptools-attempts"] == "2"
    assert seen.reply.content == "Hello"
    assert seen.bodies[1]["messages"] == seen.bodies[0]["messages"]
    assert [each.outcome for each in seen.reply.trace.attempts][1] == "answered"
    assert len(seen.log) == 1


@pytest.mark.parametrize("cut", [0, 1, 30])
@pytest.mark.parametrize(
    "lost",
    [
        stream({"reasoning": "Hm. "}, event({"error": {"message": HARMONY}}), finish=None),
        stream({"reasoning": "Hm. "}),
        stream({"reasoning": "Hm. "}, finish=None, done=False),
        stream({"reasoning": "Hm. "}, stop_reason=200012),
    ],
)
def test_a_lost_stream_goes_on_with_the_next_attempt(lost, cut):
    lost.cut = cut
    seen = play(STREAMED, [lost, stream({"reasoning": "Oh. "}, "Hello")])
    said = seen.choice()
    assert said.reasoning == "Hm. Oh. "
    assert said.content == "Hello"
    assert said.roles == ["assistant"]
    assert said.finish == ["stop"]
    assert seen.done
    assert seen.comments == ["promptools mode=native attempts=2"]
    assert seen.head.headers == SSE


def test_a_reply_that_stays_empty_is_the_answer():
    empty = reply("", usage={"completion_tokens": 40})
    seen = play(BODY, [empty, empty])
    assert seen.body == empty.body
    assert seen.head.status == 200
    lost = stream(usage={"completion_tokens": 40})
    seen = play(STREAMED, [lost, lost])
    assert seen.body == lost.body


def test_where_the_profile_says_that_nothing_is_swallowed_an_empty_reply_passes():
    empty = reply("", reasoning="Hm.")
    same(play(BODY, [empty], target=target(swallows=False)), BODY, empty)


def test_what_nothing_can_mend_is_the_servers_error():
    seen = play(BODY, [error(HARMONY), error(HARMONY)])
    assert seen.head.status == 500
    assert seen.body == error(HARMONY).body
    broken = stream({"reasoning": "Hm."}, event({"error": {"message": HARMONY}}), finish=None)
    seen = play(STREAMED, [broken, broken])
    assert seen.events[-1]["error"]["code"] == "harmony"
    assert not seen.done


class Gone(Exception):
    """The shell's own exception."""


def test_no_answer_is_the_shells_exception():
    with pytest.raises(Gone):
        play(BODY, [Answer(0, broken=Failed("connect", "no route", 0.0, Gone()))])


def test_a_whole_reply_that_breaks_off_is_asked_for_again():
    half = Answer(200, b'{"choi', JSON, broken=Failed("closed", "peer closed", 0.0, Gone()))
    assert play(BODY, [half, reply("Hello")]).message["content"] == "Hello"


def test_a_stream_that_breaks_off_after_content_ends_in_an_error():
    half = stream("Hello", finish=None, done=False)
    half.broken = Failed("closed", "peer closed", 0.0, Gone())
    seen = play(STREAMED, [half])
    assert seen.events[-1]["error"]["code"] == "cut"
    assert seen.lines[-3] == "event: error"


def test_a_request_that_turns_out_to_be_wrong_while_a_stream_is_open():
    broken = stream({"reasoning": "Hm."}, event({"error": {"message": HARMONY}}), finish=None)
    seen = play(STREAMED, [broken], target=target(modes=()))
    assert seen.events[-1]["error"]["type"] == "UsageError"
