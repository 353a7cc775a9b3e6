import pytest

from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Reasoning, Text, WasReasoning
from promptools.types import Attempt, Call, Discarded, Malformed, Reply, Span
from promptools.wire.chat_decoder import Envelope
from promptools.wire.chat_encoder import (
    ChunkWriter,
    add_usage,
    encode_choice,
    encode_completion,
    encode_message,
    encode_usage_chunk,
    error_body,
    finish_reason,
)

HERE = Span(0, 0)
CALL = Call("a1", "f", {"x": 1}, '{"x":1}')
ENVELOPE = Envelope("id1", "m", 7, {"system_fingerprint": "fp", "timings": {}})


@pytest.mark.parametrize(
    ("said", "calls", "written"),
    [
        ("stop", (), "stop"),
        ("stop", (CALL,), "tool_calls"),
        ("tool_calls", (), "stop"),
        ("function_call", (), "stop"),
        (None, (), "stop"),
        (None, (CALL,), "tool_calls"),
        ("length", (), "length"),
        ("length", (CALL,), "tool_calls"),
        ("content_filter", (CALL,), "content_filter"),
        ("content_filter", (), "content_filter"),
        ("abort", (), "abort"),
    ],
)
def test_the_finish_reason_speaks_of_calls_only_where_there_are_some(said, calls, written):
    assert finish_reason(Reply(calls=calls, finish_reason=said)) == written


def test_beside_a_call_that_was_cut_the_length_is_told():
    cut = Malformed(1, '{"city": "O', "truncated", "", Span(0, 0), name="get_weather")
    assert finish_reason(Reply(calls=(CALL,), malformed=(cut,), finish_reason="length")) == "length"


def test_a_whole_reply_keeps_what_the_server_said_around_it():
    reply = Reply(calls=(CALL,), reasoning="hm", finish_reason="tool_calls")
    body = encode_completion(ENVELOPE, [encode_choice(reply, 1, logprobs={"content": []})], {"total_tokens": 3})
    assert body == {
        "id": "id1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "system_fingerprint": "fp",
        "timings": {},
        "usage": {"total_tokens": 3},
        "choices": [
            {
                "index": 1,
                "logprobs": {"content": []},
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "reasoning": "hm",
                    "reasoning_content": "hm",
                    "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
                },
            }
        ],
    }
    assert "usage" not in encode_completion(ENVELOPE, [])


def test_an_empty_answer_is_an_empty_string():
    assert encode_message(Reply()) == {"role": "assistant", "content": ""}


def test_the_old_form_has_one_call_and_its_own_reason():
    reply = Reply(calls=(CALL, CALL), content="c", finish_reason="tool_calls")
    said = encode_message(reply, legacy=True)
    assert said == {"role": "assistant", "content": "c", "function_call": {"name": "f", "arguments": '{"x":1}'}}
    assert encode_choice(reply, legacy=True)["finish_reason"] == "function_call"


def deltas(writer, *events):
    return [chunk["choices"][0]["delta"] for event in events for chunk in writer.write(event)]


def test_calls_go_out_whole_and_are_counted_without_gaps():
    writer = ChunkWriter(ENVELOPE, 2)
    assert deltas(
        writer,
        Text("a", HERE),
        Reasoning("b", HERE),
        CallStart(0, "a1", "f", HERE),
        CallArgs(0, '{"x":1}', HERE),
        Malformed(0, "x", "invalid_json", "m"),
        CallStart(1, "a1", "f", HERE),
        CallEnd(1, CALL, HERE),
        CallEnd(2, CALL, HERE),
        Discarded("x", "markup"),
        WasReasoning(HERE),
        End("stop", HERE),
    ) == [
        {"content": "a"},
        {"reasoning": "b", "reasoning_content": "b"},
        {
            "tool_calls": [
                {"index": 0, "id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
            ]
        },
        {
            "tool_calls": [
                {"index": 1, "id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
            ]
        },
    ]
    first, last = writer.role(), writer.finish(Reply(calls=(CALL,)), logprobs={"content": []})
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last == {
        "id": "id1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [{"index": 2, "delta": {}, "logprobs": {"content": []}, "finish_reason": "tool_calls"}],
    }


def test_live_calls_go_out_in_pieces_and_one_that_fails_stays_open():
    writer = ChunkWriter(ENVELOPE, live=True)
    head = {"index": 0, "id": "a1", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert deltas(writer, CallStart(3, "a1", "f", HERE), CallArgs(3, '{"x"', HERE), CallArgs(3, ":1}", HERE)) == [
        {"tool_calls": [head]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    assert writer.unfinished
    assert deltas(writer, CallEnd(3, CALL, HERE)) == []
    assert not writer.unfinished


def test_the_old_form_is_never_live():
    writer = ChunkWriter(ENVELOPE, live=True, legacy=True)
    assert deltas(writer, CallStart(0, "a1", "f", HERE), CallEnd(0, CALL, HERE)) == [
        {"function_call": {"name": "f", "arguments": '{"x":1}'}}
    ]


def test_the_usage_chunk_has_no_choices():
    assert encode_usage_chunk(ENVELOPE, {"total_tokens": 1})["choices"] == []
    assert encode_usage_chunk(ENVELOPE, {"total_tokens": 1})["usage"] == {"total_tokens": 1}


def test_an_error_tells_what_was_tried():
    body = error_body("m", kind="exhausted", code="c", attempts=[Attempt("native", 500, "harmony", "w")])
    assert body["error"] | {"attempts": None} == {
        "message": "m", "type": "exhausted", "param": None, "code": "c", "attempts": None,
    }  # fmt: skip
    assert body["error"]["attempts"][0]["outcome"] == "harmony"


def test_usages_are_summed():
    first = {"prompt_tokens": 1, "prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": 2}}
    second = {
        "prompt_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 20},
        "tier": "x",
        "cost": None,
    }
    assert add_usage(first, second) == {
        "prompt_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 22},
        "tier": "x",
    }
    assert add_usage(None, first) == first
    assert add_usage(first, None) == first
    assert add_usage(None, None) is None
