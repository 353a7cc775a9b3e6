"""Answers of /v1/messages: whole ones, and the events of a stream, as Anthropic's SDK accumulates them."""

import random
import typing

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, stop_reason

from promptools.parsing.events import CallArgs, CallEnd, CallStart, Discarded, Reasoning, Text
from promptools.types import Call, Malformed, Reply, Span
from promptools.wire.chat_decoder import Envelope
from promptools.wire.messages_out import (
    SIGNATURE,
    BlockWriter,
    encode_content,
    encode_error,
    encode_message,
    encode_stop,
    encode_usage,
    error_type,
    own_error_type,
)

ENVELOPE = Envelope("chatcmpl-1", "m", 7)
PARIS = Call("call_1", "get_weather", {"city": "Zürich"}, '{"city": "Zürich"}')
ROME = Call("call_2", "get_weather", {"city": "Rome"}, '{"city":"Rome"}')
AT = Span(0, 0)


def write(*events):
    writer = BlockWriter(ENVELOPE)
    return [writer.role(), *(item for event in events for item in writer.write(event)), *writer.close()]


def accumulated(events):
    """The content as the SDK sees it, and a check of the order: one block at a time, counted from 0."""
    open_block, count = None, 0
    snapshot, buffers = None, {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert open_block is None
                assert event["index"] == count
                open_block, count = count, count + 1
            case "content_block_delta":
                assert event["index"] == open_block
            case "content_block_stop":
                assert event["index"] == open_block
                open_block = None
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    assert open_block is None
    blocks = [block.to_dict() for block in snapshot.content]
    return [{key: value for key, value in block.items() if value is not None} for block in blocks]


def tool_use(call):
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def live(index, call, size=5):
    """The events of a call that is streamed."""
    text = call.arguments_json
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    parts = [CallArgs(index, piece, AT) for piece in pieces]
    return [CallStart(index, call.id, call.name, AT, early=True), *parts, CallEnd(index, call, AT)]


def test_a_whole_answer():
    reply = Reply(calls=(PARIS, ROME), content="Look:", reasoning="Hm.", finish_reason="tool_calls")
    assert encode_content(reply) == [
        {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
        {"type": "text", "text": "Look:"},
        tool_use(PARIS),
        tool_use(ROME),
    ]
    assert encode_content(Reply()) == []
    message = encode_message(ENVELOPE)
    assert (message["id"], message["model"], message["role"]) == ("msg_1", "m", "assistant")
    Message.model_validate({**message, "content": encode_content(reply)})


@pytest.mark.parametrize(
    ("reply", "stop", "sent"),
    [
        (Reply(finish_reason="stop"), None, ("end_turn", None)),
        (Reply(), None, ("end_turn", None)),
        (Reply(finish_reason="stop"), "###", ("stop_sequence", "###")),
        (Reply(finish_reason="stop"), "<|im_end|>", ("end_turn", None)),
        (Reply(finish_reason="stop"), 200012, ("end_turn", None)),
        (Reply(calls=(PARIS,), finish_reason="stop"), None, ("tool_use", None)),
        (Reply(calls=(PARIS,), finish_reason="stop"), "###", ("tool_use", None)),
        (Reply(calls=(PARIS,), finish_reason="length"), None, ("tool_use", None)),
        (Reply(finish_reason="length"), None, ("max_tokens", None)),
        (Reply(finish_reason="content_filter"), None, ("refusal", None)),
        (
            Reply(malformed=(Malformed(0, "{", "truncated", "it was cut off"),), finish_reason="length"),
            None,
            ("max_tokens", None),
        ),
    ],
)
def test_why_it_ended(reply, stop, sent):
    assert encode_stop(reply, stop, ["###"]) == {"stop_reason": sent[0], "stop_sequence": sent[1]}
    assert sent[0] in typing.get_args(stop_reason.StopReason)


@pytest.mark.parametrize(
    ("usage", "sent"),
    [
        (None, (0, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 4}, (10, 0, 4)),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}},
            (3, 7, 4),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, (10, 0, 0)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, (0, 10, 0)),
    ],
)
def test_usage(usage, sent):
    told = encode_usage(usage)
    assert (told["input_tokens"], told["cache_read_input_tokens"], told["output_tokens"]) == sent


def test_blocks_in_order():
    events = write(
        Reasoning("H", AT),
        Text("", AT),
        Reasoning("m.", AT),
        Text("Look", AT),
        Text(":", AT),
        *live(0, PARIS),
        Discarded("</tool_call>", AT, "markup"),
        CallEnd(1, ROME, AT),
        Text("Done.", AT),
    )
    assert [event["type"].removeprefix("content_block_") for event in events] == [
        "message_start",
        *("start", "delta", "delta", "delta", "stop"),  # the last delta is the signature
        *("start", "delta", "delta", "stop"),
        *("start", "delta", "delta", "delta", "delta", "stop"),
        *("start", "delta", "stop"),
        *("start", "delta", "stop"),
    ]
    assert accumulated(events) == [
        {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
        {"type": "text", "text": "Look:"},
        tool_use(PARIS),
        tool_use(ROME),
        {"type": "text", "text": "Done."},
    ]


def test_a_stream_without_content():
    assert [event["type"] for event in write()] == ["message_start"]


def test_a_call_that_is_cut_off_is_ended():
    events = write(CallStart(0, "call_1", "get_weather", AT, early=True), CallArgs(0, '{"city": "Zü', AT))
    assert accumulated(events) == [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}]


def test_one_block_at_a_time_however_calls_are_mixed():
    numbers = random.Random(7)
    calls = [Call(f"call_{n}", "f", {"n": n}, f'{{"n":   {n}}}') for n in range(4)]
    for _ in range(200):
        rows = [live(n, call, size=numbers.randint(1, 9)) for n, call in enumerate(calls)]
        rows.append([Text("a", AT), Text("b", AT), Reasoning("c", AT)])
        mixed = []
        while rows:
            row = numbers.choice(rows)
            mixed.append(row.pop(0))
            rows = [row for row in rows if row]
        content = accumulated(write(*mixed))
        assert sorted(block["id"] for block in content if block["type"] == "tool_use") == [call.id for call in calls]
        assert all(block["input"] == calls[int(block["id"][-1])].arguments for block in content if "input" in block)
        assert "".join(block.get("text", "") for block in content) == "ab"
        assert "".join(block.get("thinking", "") for block in content) == "c"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors(status, kind):
    assert error_type(status) == kind
    assert encode_error("No.", kind) == {"type": "error", "error": {"type": kind, "message": "No."}}


@pytest.mark.parametrize(
    ("kind", "code", "sent"),
    [
        ("UsageError", "usage", "invalid_request_error"),
        ("UpstreamError", "context_length_exceeded", "invalid_request_error"),
        ("UpstreamError", "timeout", "timeout_error"),
        ("ModelError", "malformed", "api_error"),
        ("InternalError", "promptools_bug", "api_error"),
        ("invalid_request_error", "invalid_api_key", "authentication_error"),
        ("UsageError", "body_too_large", "request_too_large"),
        ("invalid_request_error", "header_too_large", "invalid_request_error"),
        ("UpstreamError", "no_answer", "api_error"),
    ],
)
def test_our_own_errors(kind, code, sent):
    assert own_error_type(kind, code) == sent
