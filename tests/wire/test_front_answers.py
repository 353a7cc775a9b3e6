"""Answers in /api/chat's shape, as the package and other clients read them."""

import json

import ollama
import pytest

from promptools.parsing.events import CallArgs, CallEnd, CallStart, Reasoning, Text
from promptools.types import Call, Reply, Span
from promptools.wire.chat_decoder import Envelope
from promptools.wire.ollama_out import LineWriter, encode_line, encode_message, encode_usage, mark_done
from promptools.wire.ollama_upstream import decode_envelope, decode_reply

ENVELOPE = Envelope("id", "m", 1795248120, {"system_fingerprint": "fp"})
PARIS = Call("call_1", "get_weather", {"city": "Zürich"}, '{"city": "Zürich"}')
ROME = Call("call_2", "get_weather", {"city": "Rome"}, '{"city":"Rome"}')
AT = Span(0, 0)


def test_a_line():
    assert encode_line(ENVELOPE, encode_message("Hi")) == {
        "model": "m",
        "created_at": "2026-11-21T08:02:00Z",
        "message": {"role": "assistant", "content": "Hi"},
        "done": False,
    }
    assert "created_at" not in encode_line(Envelope("", "m"), encode_message())


def test_thoughts_and_calls():
    assert encode_message("", "Hm.", [PARIS, ROME]) == {
        "role": "assistant",
        "content": "",
        "thinking": "Hm.",
        "tool_calls": [
            {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Zürich"}}},
            {"id": "call_2", "function": {"index": 1, "name": "get_weather", "arguments": {"city": "Rome"}}},
        ],
    }


def test_the_writer_counts_calls_over_lines():
    writer = LineWriter(ENVELOPE)
    assert writer.role() is None
    events = [Reasoning("Hm.", AT), Text("Hi", AT), CallStart(0, "call_1", "get_weather", AT), CallArgs(0, "{", AT)]
    events += [CallEnd(0, PARIS, AT), CallEnd(3, ROME, AT)]
    said = [each["message"] for event in events for each in writer.write(event)]
    assert said == [
        {"role": "assistant", "content": "", "thinking": "Hm."},
        {"role": "assistant", "content": "Hi"},
        encode_message(calls=[PARIS]),
        encode_message(calls=[ROME], first=1),
    ]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(finish_reason="stop"), "stop"),
        (Reply(calls=(PARIS,), finish_reason="tool_calls"), "stop"),
        (Reply(finish_reason="tool_calls"), "stop"),
        (Reply(finish_reason="length"), "length"),
        (Reply(calls=(PARIS,), finish_reason="length"), "stop"),
        (Reply(finish_reason="content_filter"), "content_filter"),
        (Reply(), "stop"),
    ],
)
def test_the_last_line_says_why(reply, reason):
    last = LineWriter(ENVELOPE).finish(reply)
    assert last == {**encode_line(ENVELOPE, encode_message()), "done": True, "done_reason": reason}


def test_log_probabilities_are_the_list_alone():
    told = {"content": [{"token": "Hi", "logprob": -0.1, "top_logprobs": []}], "refusal": None}
    (said,) = LineWriter(ENVELOPE).write(Text("Hi", AT), told)
    assert said["logprobs"] == told["content"]
    assert "logprobs" not in encode_line(ENVELOPE, encode_message("Hi"), logprobs={"content": None})


def test_figures_of_an_ollama_go_on():
    extra = {"total_duration": 5, "load_duration": 3, "prompt_eval_duration": 1, "eval_duration": 2, "other": 9}
    usage = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    assert encode_usage(usage, extra, 1.5, (0.5, 1.0)) == {
        "total_duration": 1_500_000_000,
        "load_duration": 3,
        "prompt_eval_duration": 1,
        "eval_duration": 2,
        "prompt_eval_count": 10,
        "eval_count": 9,
    }


def test_figures_of_a_llamacpp_are_turned_into_nanoseconds():
    extra = {"timings": {"prompt_ms": 1.5, "predicted_ms": 2, "prompt_n": 3}}
    assert encode_usage(None, extra, 0, (0.5, 1.0)) == {
        "total_duration": 0,
        "prompt_eval_duration": 1_500_000,
        "eval_duration": 2000000,
    }


def test_what_nobody_told_is_left_out():
    unknown = encode_usage({"prompt_tokens": None}, {"timings": {"prompt_ms": None}}, 0, (0, 0))
    assert unknown == {"total_duration": 0}


def test_what_is_measured_counts_where_the_server_tells_nothing():
    assert encode_usage({"completion_tokens": 6}, {}, 4, (0.5, 3)) == {
        "total_duration": 4_000_000_000,
        "prompt_eval_duration": 500_000_000,
        "eval_duration": 3_000_000_000,
        "eval_count": 6,
    }


def test_the_package_reads_it():
    reply = Reply(calls=(PARIS,), content="Hi", reasoning="Hm.", finish_reason="tool_calls")
    body = mark_done(encode_line(ENVELOPE, encode_message(reply.content, reply.reasoning, reply.calls)), reply)
    read = ollama.ChatResponse(**body, **encode_usage({"prompt_tokens": 1, "completion_tokens": 2}, {}, 0.1, (0, 0.1)))
    assert (read.message.content, read.message.thinking, read.done_reason) == ("Hi", "Hm.", "stop")
    assert read.message.tool_calls[0].function.arguments == {"city": "Zürich"}
    assert (read.prompt_eval_count, read.eval_count, read.total_duration) == (1, 2, 100_000_000)


def test_we_read_what_we_write():
    reply = Reply(calls=(PARIS, ROME), content="Hi", reasoning="Hm.", finish_reason="tool_calls")
    body = mark_done(encode_line(ENVELOPE, encode_message(reply.content, reply.reasoning, reply.calls)), reply)
    (delta,) = decode_reply(json.loads(json.dumps(body)))
    assert (delta.content, delta.reasoning, delta.finish_reason) == ("Hi", "Hm.", "stop")
    assert [(each.id, each.name, json.loads(each.arguments)) for each in delta.tool_calls] == [
        (call.id, call.name, call.arguments) for call in reply.calls
    ]
    assert (decode_envelope(body).model, decode_envelope(body).created) == ("m", ENVELOPE.created)
