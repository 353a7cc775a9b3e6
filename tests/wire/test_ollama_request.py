"""Chat Completions bodies as /api/chat bodies: every parameter has its fate."""

import base64
from typing import get_type_hints

import pytest

from promptools.wire.ollama_upstream import encode_chat_request, requested_context
from promptools.wire.parameters import PARAMETERS, UNKNOWN_PARAMETER

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
RULES = {key: row.ollama for key, row in PARAMETERS.items() if row.ollama != UNKNOWN_PARAMETER.ollama}
PIXEL = base64.b64encode(b"\x89PNG").decode()


def write(**more):
    written = encode_chat_request({"model": "m", "messages": [USER], **more})
    assert written.body is not None
    return written


def sent(*messages):
    return encode_chat_request({"model": "m", "messages": list(messages)}).body["messages"]


def test_a_plain_request():
    assert write().body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": False,
        "truncate": False,
    }
    assert write().notes == ()


def test_every_parameter_of_openai_has_its_fate():
    from openai.types.chat import completion_create_params as params

    known = {*get_type_hints(params.CompletionCreateParamsBase), "stream"}
    assert known <= set(RULES)


@pytest.mark.parametrize("key", RULES)
def test_every_parameter_meets_its_fate(key):
    rule, value = RULES[key], {"x": 1} if key == "options" else 7
    if rule.handling == "shaped":
        return
    written = write(**{key: value})
    options = written.body.get("options", {})
    match rule.handling:
        case "kept":
            assert written.body[key] == value
        case "option":
            assert options[rule.target or key] == value
        case "dropped":
            assert written.notes == (f"not sent: {key}; {rule.reason}",)
    assert (key in written.body, bool(written.notes)) == (rule.handling == "kept", rule.handling == "dropped")


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"max_tokens": 5}, "num_predict", 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, "num_predict", 6),
        ({"temperature": 0}, "temperature", 0),
        ({"top_p": 0.5}, "top_p", 0.5),
        ({"seed": 7}, "seed", 7),
        ({"stop": "x"}, "stop", ["x"]),
        ({"stop": ["x", "y"]}, "stop", ["x", "y"]),
        ({"frequency_penalty": 1}, "frequency_penalty", 1),
        ({"presence_penalty": 1}, "presence_penalty", 1),
        ({"top_k": 4}, "top_k", 4),
        ({"min_p": 0.1}, "min_p", 0.1),
        ({"typical_p": 0.1}, "typical_p", 0.1),
        ({"repeat_penalty": 1.1}, "repeat_penalty", 1.1),
        ({"repetition_penalty": 1.1}, "repeat_penalty", 1.1),
        ({"repeat_last_n": 3}, "repeat_last_n", 3),
        ({"num_ctx": 8192}, "num_ctx", 8192),
    ],
)
def test_parameters_become_options(given, key, value):
    assert write(**given).body["options"] == {key: value}
    assert write(**given).notes == ()


def test_options_of_the_request_win():
    written = write(max_tokens=5, temperature=1, options={"num_predict": 9, "num_gpu": 0})
    assert written.body["options"] == {"num_predict": 9, "temperature": 1, "num_gpu": 0}


def test_options_that_are_none_are_the_servers_to_refuse():
    assert write(options="many", temperature=1).body["options"] == "many"


def test_null_is_as_good_as_nothing():
    assert write(max_tokens=None, stop=None, user=None, think=None, options=None) == write()


def test_the_context_to_ask_for():
    body = {"model": "m", "messages": [USER]}
    assert encode_chat_request(body, num_ctx=8192).body["options"] == {"num_ctx": 8192}
    assert encode_chat_request({**body, "options": {"num_ctx": 4}}, num_ctx=8192).body["options"] == {"num_ctx": 4}
    assert encode_chat_request({**body, "num_ctx": 4}, num_ctx=8192).body["options"] == {"num_ctx": 4}


@pytest.mark.parametrize(
    ("body", "own"), [({}, None), ({"options": {"num_ctx": 4}}, 4), ({"num_ctx": 5}, 5), ({"options": 3}, None)]
)
def test_the_context_that_a_request_names_itself(body, own):
    assert requested_context(body) == own


@pytest.mark.parametrize(
    ("given", "think"),
    [
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "xhigh"}, "max"),
        ({"reasoning_effort": "bogus"}, "bogus"),
        ({"reasoning": {"effort": "medium"}}, "medium"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": {"reasoning_effort": "none"}}, False),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, "high"),
        ({"think": False, "reasoning_effort": "high"}, False),
    ],
)
def test_how_much_to_think(given, think):
    assert write(**given).body["think"] == think
    assert write(**given).notes == ()


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}}}, {"enum": [1]}),
        ({"response_format": {"type": "json_schema"}}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}, "format": {"type": "array"}}, {"type": "array"}),
    ],
)
def test_the_form_of_the_answer(given, form):
    assert write(**given).body.get("format") == form
    assert write(**given).notes == ()


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"logit_bias": {"1": 1}}, "not sent: logit_bias; Ollama has nothing like it"),
        ({"user": "u", "store": True}, "not sent: user, store; it is for OpenAI's own accounts"),
        ({"n": 2}, "not sent: n; it gives one choice"),
        ({"tool_choice": "required"}, "not sent: tool_choice; it is ignored there: the reply is checked instead"),
        ({"guided_json": {}}, "not sent: guided_json; Ollama does not know it"),
        ({"response_format": {"type": "grammar"}}, "not sent: response_format of type 'grammar'"),
        ({"chat_template_kwargs": {"b": 1, "a": 1}}, "not sent: chat_template_kwargs of a, b"),
        ({"tools": [TOOL, {"type": "web_search"}]}, "not sent: tools of type 'web_search'"),
    ],
)
def test_what_is_left_out_is_named(given, note):
    (said,) = write(**given).notes
    assert said.startswith(note)
    assert not set(given) & set(write(**given).body) - {"tools"}


@pytest.mark.parametrize(
    "given",
    [
        {"n": 1},
        {"tool_choice": "auto"},
        {"parallel_tool_calls": True},
        {"store": False},
        {"modalities": ["text"]},
        {"service_tier": "auto"},
        {"stream_options": {"include_usage": True}},
    ],
)
def test_what_changes_nothing_is_left_out_without_a_word(given):
    assert write(**given) == write()


def test_what_the_server_knows_passes():
    own = {"keep_alive": "10m", "truncate": True, "shift": False, "logprobs": True, "top_logprobs": 2, "think": "low"}
    assert write(**own).body == {**write().body, **own}


def test_stream_and_tools():
    body = write(stream=True, tools=[TOOL]).body
    assert body["stream"] is True
    assert body["tools"] == [TOOL]
    assert "tools" not in write(tools=[]).body


# --- the conversation


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("x", "x"),
        ([{"type": "text", "text": "a"}, "b"], "a\nb"),
        ([], ""),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_content_is_a_string(content, text):
    assert sent({"role": "user", "content": content}) == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": f"DATA:;base64,{PIXEL}"},
        {"type": "image_url", "image_url": {"url": "data:image/png,%89PNG"}},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
    ],
)
def test_images_stand_beside_the_text(part):
    (message,) = sent({"role": "user", "content": [{"type": "text", "text": "What is it?"}, part], "images": ["own"]})
    assert message == {"role": "user", "content": "What is it?", "images": ["own", PIXEL]}


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "image_url", "image_url": {"url": "https://secret.example/a.png?key=1"}}, "an image by its address"),
        ({"type": "image_url", "image_url": {"url": PIXEL}}, "an image by its address"),
        ({"type": "image_url"}, "an image by its address"),
        ({"type": "file", "file": {"file_id": "1"}}, "a part of type 'file'"),
    ],
)
def test_what_cannot_be_carried_goes_by_v1(part, why):
    written = encode_chat_request({"model": "m", "messages": [{"role": "user", "content": [part]}]})
    assert written.body is None
    (note,) = written.notes
    assert note.startswith(f"sent by /v1/chat/completions: /api/chat has no place for {why}")
    assert "secret" not in note


@pytest.mark.parametrize("messages", [[], None, "Hi"])
def test_no_messages_would_only_load_the_model(messages):
    written = encode_chat_request({"model": "m", "messages": messages})
    assert written.body is None
    assert "a request without messages" in written.notes[0]


def test_calls_and_results():
    given = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}, "index": 0}
    bare = {"function": {"name": "g", "arguments": {"b": 2}}}
    assert sent(
        {"role": "developer", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [given, bare], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "tool", "name": "g", "content": "ok"},
        {"role": "tool", "tool_call_id": "c9", "content": "ok"},
        {"role": "tool", "tool_name": "h", "name": "g", "content": "ok"},
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [
                {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}},
                {"function": {"name": "g", "arguments": {"b": 2}}},
            ],
        },
        {"role": "tool", "content": "ok", "tool_name": "f", "tool_call_id": "c1"},
        {"role": "tool", "content": "ok", "tool_name": "g"},
        {"role": "tool", "content": "ok", "tool_call_id": "c9"},
        {"role": "tool", "content": "ok", "tool_name": "h"},
    ]


def test_the_old_form_of_calls():
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    said, result = sent(call, {"role": "function", "name": "f", "content": "ok"})
    assert said["tool_calls"] == [{"function": {"name": "f", "arguments": {}}}]
    assert result == {"role": "tool", "content": "ok", "tool_name": "f"}


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "no", 7])
def test_arguments_that_are_not_an_object_are_named(arguments):
    call = {"id": "c1", "function": {"name": "f", "arguments": arguments}}
    written = encode_chat_request({"messages": [{"role": "assistant", "tool_calls": [call]}]})
    assert written.body["messages"][0]["tool_calls"][0]["function"]["arguments"] == {}
    assert written.notes == ("the arguments of a past call of 'f' are not a JSON object and were sent as {}",)


@pytest.mark.parametrize("arguments", [None, ""])
def test_no_arguments_are_none(arguments):
    call = {"id": "c1", "function": {"name": "f", "arguments": arguments}}
    written = encode_chat_request({"messages": [{"role": "assistant", "tool_calls": [call]}]})
    assert written.body["messages"][0]["tool_calls"][0]["function"]["arguments"] == {}
    assert written.notes == ()


def test_keys_of_messages_that_have_no_place_are_named():
    written = write(messages=[{**USER, "name": "Ann", "refusal": None}, {**USER, "annotations": []}])
    assert written.body["messages"] == [{"role": "user", "content": "Hi"}] * 2
    assert written.notes == ("keys of messages were not sent, /api/chat has no place for them: annotations, name",)


def test_the_name_of_a_result_is_not_a_lost_key():
    assert write(messages=[{"role": "tool", "name": "f", "content": "ok"}]).notes == ()
    both = [{**USER, "name": "Ann"}, {"role": "tool", "name": "f", "content": "ok"}]
    assert "name" in write(messages=both).notes[0]
