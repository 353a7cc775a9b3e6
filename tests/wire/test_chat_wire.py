"""Bodies are those of real servers: llama.cpp b9800, vLLM 0.28 and 0.32, Ollama 0.32, transformers serve 5.19."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.wire.chat_decoder import (
    Delta,
    Envelope,
    ErrorBody,
    ToolDelta,
    decode_chunk,
    decode_envelope,
    decode_reply,
    error_of,
)


def message(**keys):
    return decode_reply({"choices": [{"index": 0, "message": {"role": "assistant", **keys}, "finish_reason": "stop"}]})[
        0
    ]


def test_a_whole_reply_becomes_one_delta_a_choice_and_one_for_the_usage():
    body = {
        "id": "chatcmpl-a458565b466bf5e9",
        "object": "chat.completion",
        "created": 1795176611,
        "model": "gptoss-rand",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [], "reasoning": "Need the tool."},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": 200012,
            },
            {"message": {"content": "b"}, "finish_reason": "length", "logprobs": {"content": []}},
        ],
        "system_fingerprint": "vllm-0.32.0-78e08dde",
        "usage": {"prompt_tokens": 124, "completion_tokens": 29},
    }
    end = {"stop_reason": 200012}
    assert decode_reply(body) == [
        Delta(index=0, reasoning="Need the tool.", finish_reason="stop", **end, choice_extra=end),
        Delta(index=1, content="b", finish_reason="length", logprobs={"content": []}),
        Delta(index=None, usage={"prompt_tokens": 124, "completion_tokens": 29}),
    ]
    assert decode_envelope(body) == Envelope(
        "chatcmpl-a458565b466bf5e9", "gptoss-rand", 1795176611, {"system_fingerprint": "vllm-0.32.0-78e08dde"}
    )


def test_chunks_read_like_replies():
    chunk = {"choices": [{"index": 0, "delta": {"reasoning_content": "Ne"}, "finish_reason": None}], "usage": None}
    assert decode_chunk(chunk) == [Delta(reasoning="Ne")]
    assert decode_chunk({"choices": [], "usage": {"total_tokens": 3}}) == [Delta(index=None, usage={"total_tokens": 3})]
    assert decode_chunk({"choices": [{"index": 1, "delta": {}, "finish_reason": "tool_calls"}]}) == [
        Delta(index=1, finish_reason="tool_calls")
    ]
    assert decode_chunk({"choices": [{"delta": None, "message": {"content": "x"}}]}) == [Delta(content="x")]


@pytest.mark.parametrize(
    ("call", "read"),
    [
        (
            {"id": "call_1", "index": 1, "type": "function", "function": {"name": "f", "arguments": '{"a":'}},
            ToolDelta(1, "call_1", "f", '{"a":'),
        ),
        ({"index": 0, "id": None, "function": {"name": None, "arguments": "1}"}}, ToolDelta(0, None, None, "1}")),
        (
            {"id": "", "function": {"index": 2, "name": "", "arguments": {"a": "ü"}}},
            ToolDelta(2, None, None, '{"a": "ü"}'),
        ),
        ({"index": "3", "name": "f", "arguments": None}, ToolDelta(3, None, "f", "")),
        ({"index": "x", "function": {"name": "f"}}, ToolDelta(None, None, "f", "")),
    ],
)
def test_sloppy_calls_are_straightened(call, read):
    assert message(tool_calls=[call, "junk"]).tool_calls == (read,)


def test_the_old_function_call_counts_only_alone():
    old = {"name": "f", "arguments": "{}"}
    assert message(function_call=old).tool_calls == (ToolDelta(0, None, "f", "{}"),)
    new = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    assert message(function_call=old, tool_calls=new).tool_calls == (ToolDelta(None, "a", "f", "{}"),)


def test_content_in_parts_is_joined_and_thoughts_are_told_apart():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "thinking", "thinking": "!"},
        {"type": "text", "text": "a"},
        "b",
        {"type": "image_url"},
    ]
    assert message(content=parts) == Delta(content="ab", reasoning="hm!", finish_reason="stop")


def test_of_two_fields_for_thoughts_one_is_read():
    assert message(reasoning="a", reasoning_content="a", content="b").reasoning == "a"
    assert message(thinking="c", reasoning=None).reasoning == "c"


def test_refusals_and_text_completions_are_read():
    assert message(refusal="no").refusal == "no"
    assert decode_chunk({"choices": [{"index": 0, "text": "raw"}]}) == [Delta(content="raw")]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            {
                "error": {
                    "message": "Unexpected token 173781",
                    "type": "InternalServerError",
                    "param": None,
                    "code": 500,
                }
            },
            ("Unexpected token 173781", "InternalServerError", 500),
        ),
        ({"error": "model 'nope' not found"}, ("model 'nope' not found", None, None)),
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, ("m", "BadRequestError", 400)),
        ({"code": 400, "message": "Unknown role: x"}, ("Unknown role: x", None, 400)),
        ({"detail": "prompt must be a string."}, ("prompt must be a string.", None, None)),
        ({"detail": [{"msg": "x"}]}, ('[{"msg": "x"}]', None, None)),
        ({"error parsing tool call": "invalid character"}, ("error parsing tool call: invalid character", None, None)),
        (
            {"error": {"code": "context_length_exceeded"}},
            ('{"code": "context_length_exceeded"}', None, "context_length_exceeded"),
        ),
        ({"error": '{"error":{"code":400,"message":"too long"}}'}, ("too long", None, 400)),
        ({"error": '{"raw":1}'}, ('{"raw":1}', None, None)),
        ({"error": "{not json"}, ("{not json", None, None)),
        ({"error": ["a"]}, ('["a"]', None, None)),
        ([{"error": {"message": "g", "code": 429}}], ("g", None, 429)),
        ("Internal Server Error", ("Internal Server Error", None, None)),
        ('{"error": "x"}', ("x", None, None)),
    ],
)
def test_errors_of_every_shape_are_found(body, problem):
    found = error_of(body)
    assert (found.message, found.type, found.code) == problem
    assert found.body == (body[0] if isinstance(body, list) else body)


def test_the_inner_error_of_a_string_keeps_its_code():
    found = error_of({"error": '{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}'})
    assert (found.status, found.type) == (400, "exceed_context_size_error")


@pytest.mark.parametrize(
    "body",
    [{"choices": []}, {"choices": [], "error": None}, {"data": []}, {}, None, 3, [], {"choices": [], "message": "x"}],
)
def test_what_is_not_an_error_is_none(body):
    assert error_of(body) is None


def test_a_string_code_is_not_a_status():
    assert ErrorBody("m", code="context_length_exceeded").status is None
    assert ErrorBody("m", code=200).status is None


def test_errors_come_as_deltas_of_no_choice():
    deltas = decode_chunk({"error": {"message": "m", "code": 500}, "choices": []})
    assert [(each.index, each.error.message) for each in deltas] == [(None, "m")]
    inside = decode_chunk({"choices": [{"index": 0, "error": {"message": "m"}, "finish_reason": "error"}]})
    assert [(each.index, each.error.message) for each in inside] == [(0, "m")]


KEYS = [
    "choices",
    "delta",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "index",
    "id",
    "error",
    "usage",
    "code",
    "text",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(),
            inner,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_no_body_raises(body):
    for read in (decode_reply, decode_chunk):
        assert all(isinstance(each, Delta) for each in read(body))
    assert isinstance(decode_envelope(body), Envelope)


def test_the_body_of_a_reply_survives_json():
    assert decode_reply(json.loads('{"choices":[{"message":{"content":"\\ud800"}}]}'))[0].content == "\ud800"
