"""Errors that a server reports under HTTP 200: with tools the app gets an error, without tools what the server sent."""

import json

import pytest
from scripted import JSON, SSE, WEATHER, Answer, ask, event, play, reply, stream, target

from promptools.exchange.ollama_api import OLLAMA_API

BUSY = {"error": {"message": "slow down", "code": 429, "metadata": {"provider": "x"}}}
NAMELESS = {"error": "no such thing"}
FLAT = {"object": "error", "message": "no such model", "code": 404}
HARMONY = "Unexpected token 173781 while expecting start token 200006"
TOOLS = [(), (WEATHER,)]
HEADERS = (*JSON, ("retry-after", "7"), ("content-length", "1"))


def whole(body, headers=HEADERS):
    return Answer(200, json.dumps(body).encode() + b"\n", headers)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("body", "status"), [(BUSY, 429), (FLAT, 404)])
def test_the_error_has_the_status_that_it_names(streamed, body, status):
    answer = whole(body)
    seen = play(ask(WEATHER, stream=streamed), [answer])
    assert seen.head.status == status
    assert seen.json == body
    assert seen.headers["retry-after"] == "7"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-promptools-attempts"] == "1"
    assert not {"content-length", "x-should-retry"} & seen.headers.keys()
    if not streamed:
        assert seen.body == answer.body


@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_that_names_none_is_a_502_that_is_not_retried(streamed):
    seen = play(ask(WEATHER, stream=streamed), [whole(NAMELESS)])
    assert seen.head.status == 502
    assert seen.json == NAMELESS
    assert seen.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("cut", [0, 1, 9])
@pytest.mark.parametrize(("body", "status"), [(BUSY, 429), (NAMELESS, 502)])
def test_an_error_that_begins_a_stream_is_plain_http(body, status, cut):
    answer = Answer(200, b": hello\n\n" + event(body) + b"data: [DONE]\n\n", (*SSE, HEADERS[1]), cut)
    seen = play(ask(WEATHER, stream=True), [answer])
    assert (seen.head.status, seen.json) == (status, body)
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["retry-after"] == "7"


def test_after_the_stream_has_begun_it_is_an_event():
    answer = stream({"reasoning": "Hm."}, event(BUSY), finish=None)
    assert play(ask(stream=True), [answer]).body == answer.body
    seen = play(ask(WEATHER, stream=True), [answer])
    assert seen.head.status == 200
    assert seen.events[-1]["error"]["code"] == "refused"
    assert "slow down" in seen.events[-1]["error"]["message"]
    assert not seen.done


@pytest.mark.parametrize("tools", TOOLS)
def test_a_known_failure_is_still_retried(tools):
    lost = whole({"error": {"message": HARMONY, "code": 500}})
    seen = play(ask(*tools), [lost, reply("Hello")])
    assert seen.message["content"] == "Hello"
    seen = play(ask(*tools), [lost, lost, *[lost] * bool(tools)])
    if tools:
        assert (seen.head.status, seen.json["error"]["type"]) == (502, "Exhausted")
    else:
        assert (seen.head.status, seen.body) == (500, lost.body)


def test_after_another_attempt_the_status_is_kept_too():
    seen = play(ask(WEATHER), [whole({"error": {"message": HARMONY, "code": 500}}), whole(BUSY)])
    assert (seen.head.status, seen.json) == (429, BUSY)
    assert seen.headers["x-promptools-attempts"] == "2"


@pytest.mark.parametrize(
    "body",
    [
        BUSY,
        FLAT,
        NAMELESS,
        {"message": "hello"},
        {"detail": "all is well"},
        {"error": {"message": None, "code": None}},
        {"error": "half", "choices": [{"index": 0, "message": {"content": "It is"}}]},
    ],
)
def test_without_tools_the_reply_passes_byte_for_byte(body):
    for answer in (whole(body), Answer(200, event(body) + b"data: [DONE]\n\n", (*SSE, HEADERS[1]))):
        seen = play(ask(stream=answer.headers[0] == SSE[0]), [answer])
        assert (seen.head.status, seen.head.headers, seen.body) == (200, answer.headers, answer.body)


CHAT = "http://server/api/chat"
LINES = (("content-type", "application/x-ndjson"),)
DIED = b'{"error":"an error was encountered while running the model: unexpected EOF"}\n'
HELLO = {"model": "m", "message": {"role": "assistant", "content": "Hello"}, "done": True, "done_reason": "stop"}


def test_an_ollama_that_dies_is_asked_again_without_tools_too():
    """Ollama refuses by its status, so that an error under HTTP 200 is a reply that broke off."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    good = Answer(200, json.dumps(HELLO).encode() + b"\n", LINES)
    for tools in TOOLS:
        asked = body | {"tools": list(tools)} if tools else body
        seen = play(asked, [Answer(200, DIED, LINES), good], front=OLLAMA_API, target=target(wire="ollama"), url=CHAT)
        assert seen.head.status == 200
        assert "".join(json.loads(line)["message"]["content"] for line in seen.body.splitlines()) == "Hello"
        assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["cut", "answered"]
