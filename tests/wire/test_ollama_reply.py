"""Replies of /api/chat as deltas."""

import pytest

from promptools.wire.chat_decoder import Delta, ToolDelta
from promptools.wire.ollama_upstream import decode_envelope, decode_reply


def line(message=None, **more):
    return {"model": "m", "created_at": "2026-11-21T08:02:00.778537406Z", "message": message or {}, **more}


def test_a_piece_has_no_end():
    (delta,) = decode_reply(line({"role": "assistant", "content": "Hi", "thinking": "Hm"}, done=False))
    assert delta == Delta(content="Hi", reasoning="Hm")


def test_calls_come_whole_with_their_arguments_as_text():
    calls = [
        {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"city": "Zürich"}}},
        {"function": {"name": "g"}},
    ]
    (delta,) = decode_reply(line({"content": "", "tool_calls": calls}, done=False))
    assert delta.tool_calls == (ToolDelta(0, "call_1", "f", '{"city": "Zürich"}'), ToolDelta(None, None, "g", ""))


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        ({"done": True, "done_reason": "stop"}, "stop"),
        ({"done": True, "done_reason": "length"}, "length"),
        ({"done": True, "done_reason": "load"}, "stop"),
        ({"done": True, "done_reason": "unload"}, "stop"),
        ({"done": True}, "stop"),
        ({"done": True, "done_reason": "content_filter"}, "content_filter"),
        ({"done": False, "done_reason": "stop"}, None),
        ({"done": "yes"}, None),
        ({}, None),
    ],
)
def test_the_reason_for_the_end(end, finish):
    (delta,) = decode_reply(line({"content": "x"}, **end))
    assert delta.finish_reason == finish


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_eval_count": 352, "eval_count": 25}, (352, 25, 377)),
        ({"eval_count": 25}, (0, 25, 25)),
        ({"prompt_eval_count": 352}, (352, 0, 352)),
    ],
)
def test_counts_are_the_usage(counts, usage):
    _, delta = decode_reply(line(done=True, **counts))
    assert delta.index is None
    assert tuple(delta.usage.values()) == usage
    assert list(delta.usage) == ["prompt_tokens", "completion_tokens", "total_tokens"]


def test_log_probabilities_are_put_where_clients_look():
    said = [{"token": "Hi", "logprob": -0.1, "top_logprobs": []}]
    (delta,) = decode_reply(line({"content": "Hi"}, logprobs=said))
    assert delta.logprobs == {"content": said}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "EOF"}, "EOF"),
        ({"error": "EOF", "message": {"content": ""}, "done": True}, "EOF"),
        ({"error": '{"error":{"code":400,"message":"request exceeds","n_ctx":4}}'}, "request exceeds"),
        ({"error parsing tool call": "invalid character"}, "error parsing tool call: invalid character"),
        ({"error": {"message": "no"}}, "no"),
    ],
)
def test_an_error_stands_in_any_line(body, message):
    (delta,) = decode_reply(body)
    assert delta.error.message == message
    assert delta.index is None


@pytest.mark.parametrize("body", [None, [], "", 3, {}, {"model": "m"}])
def test_what_is_nothing_gives_nothing(body):
    assert [delta for delta in decode_reply(body) if delta.error is None] == []


def test_what_stands_around_the_message():
    around = decode_envelope(
        line(done=True, total_duration=12, prompt_eval_count=3, done_reason="stop", remote_host="h")
    )
    assert (around.id, around.model, around.created) == ("", "m", 1795248120)
    assert around.extra == {"total_duration": 12, "remote_host": "h"}


@pytest.mark.parametrize("moment", ["", "yesterday", None, "0001-01-01T00:00:00Z", 7])
def test_a_time_that_is_none(moment):
    assert decode_envelope({"created_at": moment}).created <= 0
