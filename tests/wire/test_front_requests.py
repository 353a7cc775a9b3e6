"""Requests that come in as /api/chat, read as Chat Completions bodies: what becomes of every key."""

import json

import ollama
import pytest
from odd_images import EMPTY, IMAGES, NONE, WRONG

from promptools.errors import UsageError
from promptools.profiles import Profile, resolve
from promptools.wire.ollama_in import decode_chat_request, encode_as_chat
from promptools.wire.ollama_upstream import encode_chat_request
from promptools.wire.parameters import PARAMETERS, UNKNOWN_PARAMETER

CHAT = Profile()
OLLAMA = Profile(kind="ollama", wire="ollama")
USER = {"role": "user", "content": "Hi"}
PIXEL = "iVBORw0KGgo="


def read(profile=CHAT, **keys):
    return decode_chat_request({"model": "m", "messages": [USER], **keys}, profile)


def messages(*said):
    body, notes = read(messages=list(said))
    assert notes == ()
    return body["messages"]


# --- messages


def test_plain_messages_stay():
    said = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Yes."}]
    assert messages(*said) == said


def test_content_is_never_missing():
    assert messages({"role": "assistant", "tool_calls": []}) == [{"role": "assistant", "content": ""}]
    assert messages({"role": "user", "content": None}) == [{"role": "user", "content": ""}]


def test_calls_and_results():
    call = {"function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
    said, result = messages(
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_name": "get_weather"},
    )
    function = {"name": "get_weather", "arguments": '{"city": "Zürich"}'}
    assert said == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm.",
        "tool_calls": [{"type": "function", "function": function}],
    }
    assert result == {"role": "tool", "content": "sunny", "name": "get_weather"}


@pytest.mark.parametrize(
    ("arguments", "written"), [({}, "{}"), (None, "{}"), ('{"a": 1}', '{"a": 1}'), ({"a": [1, {"b": None}]}, None)]
)
def test_arguments_are_text(arguments, written):
    call = {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": arguments}}
    (said,) = messages({"role": "assistant", "content": "", "tool_calls": [call]})
    (got,) = said["tool_calls"]
    assert got["id"] == "call_1"
    assert got["function"]["arguments"] == (written if written is not None else json.dumps(arguments))


@pytest.mark.parametrize("profile", [CHAT, OLLAMA])
@pytest.mark.parametrize("given", [*WRONG, *EMPTY])
def test_what_is_not_an_image_is_refused(profile, given):
    with pytest.raises(UsageError, match=r"^'messages\[1\]\.images(\[[01]\])?' must be "):
        read(profile, messages=[USER, {**USER, "images": given}])
    with pytest.raises(UsageError, match=r"^'images(\[[01]\])?' must be "):
        encode_as_chat({"model": "m", "prompt": "Hi", "images": given})


@pytest.mark.parametrize("profile", [CHAT, OLLAMA])
def test_what_is_an_image_is_none_that_is_lost(profile):
    for given in NONE:
        assert read(profile, messages=[{**USER, "images": given}])[0]["messages"] == [USER]
    for given in IMAGES:
        said = read(profile, messages=[{**USER, "images": given}])[0]["messages"]
        (image, text) = said[0]["content"]
        assert image["image_url"]["url"].startswith("data:image/png;base64,iVBORw")
        assert "\n" not in image["image_url"]["url"]
        assert text == {"type": "text", "text": "Hi"}


@pytest.mark.parametrize("profile", [CHAT, OLLAMA])
@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"options": 1}, "'options' must be an object, not 1"),
        ({"options": []}, "'options' must be an object"),
        ({"messages": [{**USER, "tool_calls": 1}]}, r"'messages\[0\].tool_calls' must be a list of objects"),
        ({"messages": [USER, {**USER, "tool_calls": [1]}]}, r"'messages\[1\].tool_calls' must be a list of objects"),
    ],
)
def test_what_ollama_refuses_is_not_left_out(profile, keys, what):
    with pytest.raises(UsageError, match=f"^{what}"):
        read(profile, **keys)


@pytest.mark.parametrize(
    ("data", "kind"),
    [(PIXEL, "png"), ("/9j/4AAQ", "jpeg"), ("R0lGODlh", "gif"), ("UklGRg==", "webp"), ("Qk0=", "bmp"), ("AAAA", "png")],
)
def test_images_are_parts_before_the_text(data, kind):
    (said,) = messages({**USER, "images": [data]})
    image = {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}
    assert said == {"role": "user", "content": [image, {"type": "text", "text": "Hi"}]}


def test_an_image_alone():
    (said,) = messages({"role": "user", "content": "", "images": [PIXEL]})
    assert [part["type"] for part in said["content"]] == ["image_url"]


def test_what_is_not_a_message_is_left_to_the_check_that_refuses_it():
    assert read(messages=["Hi"])[0]["messages"] == ["Hi"]
    assert read(messages="Hi")[0]["messages"] == "Hi"


@pytest.mark.parametrize("said", [{"messages": []}, {"messages": None}])
def test_a_request_that_would_load_a_model_needs_an_ollama(said):
    with pytest.raises(UsageError, match="takes as loading a model"):
        read(**said)
    body, notes = read(OLLAMA, keep_alive=0, **said)
    assert (body["messages"], body["keep_alive"], notes) == (said["messages"], 0, ())


# --- tools


def test_tools_stay():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    assert read(tools=[tool])[0]["tools"] == [tool]
    assert "tools" not in read()[0]
    assert read(tools="f")[0]["tools"] == "f", "to be refused by the check"


def test_the_packages_types_of_unions_are_json_schema():
    def look(city: str, when: int | str, exact: bool | None = None) -> str:
        """Look."""
        return f"{city}{when}{exact}"

    tool = ollama._utils.convert_function_to_tool(look).model_dump(exclude_none=True)
    assert ", " in tool["function"]["parameters"]["properties"]["when"]["type"], "why it is done"
    (read_tool,) = read(tools=[tool])[0]["tools"]
    types = {key: each["type"] for key, each in read_tool["function"]["parameters"]["properties"].items()}
    assert types == {"city": "string", "when": ["integer", "string"], "exact": "boolean"}


def test_what_only_looks_like_a_type_is_left():
    schema = {"type": "string", "enum": ["integer, string", {"type": "integer, string"}]}
    odd = {"type": "integer, text"}
    tool = {"function": {"name": "f", "parameters": {"properties": {"a": schema, "type": odd}}}}
    assert read(tools=[tool])[0]["tools"] == [tool]


# --- parameters, for a server that is no Ollama


def test_options_become_parameters():
    options = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["x"], "num_predict": 9, "presence_penalty": None}
    body, notes = read(options=options | {"frequency_penalty": 1})
    assert body == {
        "model": "m",
        "messages": [USER],
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["x"],
        "max_tokens": 9,
        "frequency_penalty": 1,
    }
    assert notes == ()


@pytest.mark.parametrize("limit", [-1, -2, 0])
def test_no_limit_is_none(limit):
    body, notes = read(options={"num_predict": limit})
    assert "max_tokens" not in body
    assert notes == ()


SAMPLING = {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "mirostat": 1}


@pytest.mark.parametrize(
    ("kind", "sent", "lost"),
    [
        ("vllm", {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}, "mirostat"),
        ("sglang", {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}, "mirostat"),
        ("lmstudio", {"top_k": 5, "repeat_penalty": 1.1}, "min_p, mirostat"),
        ("llamacpp", SAMPLING, None),
        ("openai-compatible", {}, "top_k, min_p, repeat_penalty, mirostat"),
    ],
)
def test_sampling_goes_to_servers_that_are_known_to_take_it(kind, sent, lost):
    body, notes = read(resolve(provider=kind, base_url="http://localhost/v1").profile, options=SAMPLING)
    assert {key: value for key, value in body.items() if key not in {"model", "messages", "stream"}} == sent
    said = f"not sent: {lost} of options; this server is not known to take it with a request"
    assert notes == ((said,) if lost else ())


def test_what_only_ollama_knows_is_named():
    body, notes = read(options={"num_ctx": 8192, "num_gpu": 1}, keep_alive="5m", truncate=True, shift=None)
    assert set(body) == {"model", "messages", "stream"}
    assert notes == (
        "not sent: num_ctx, num_gpu of options; this server is not known to take it with a request",
        "not sent: keep_alive; only Ollama knows it",
        "not sent: truncate; only Ollama knows it",
    )


def test_thinking():
    kwargs = Profile(template_kwargs=True)
    assert read(kwargs, think=True)[0]["chat_template_kwargs"] == {"enable_thinking": True}
    assert read(kwargs, think=False)[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert read(kwargs, think="low")[0]["reasoning_effort"] == "low"
    assert read(think="high") == (read()[0] | {"reasoning_effort": "high"}, ())
    assert read(think=True) == (read()[0], ("not sent: think; how this server takes it is not known",))
    assert read(think=None) == read()


def test_formats():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert read(format="json")[0]["response_format"] == {"type": "json_object"}
    assert read(format=schema)[0]["response_format"]["json_schema"]["schema"] == schema
    assert read(format="") == read(format=None) == read()
    with pytest.raises(UsageError, match=r"'format' must be 'json' or a JSON Schema object, not 'xml'"):
        read(format="xml")


def test_the_rest_is_passed_on():
    body, notes = read(logprobs=True, top_logprobs=2, promptools={"trace": True}, unheard_of=1)
    assert body == read()[0] | {"logprobs": True, "top_logprobs": 2, "promptools": {"trace": True}, "unheard_of": 1}
    assert notes == ()


@pytest.mark.parametrize(("said", "read_as"), [({}, True), ({"stream": None}, True), ({"stream": False}, False)])
def test_the_default_is_a_stream(said, read_as):
    assert read(**said)[0]["stream"] is read_as


# --- for an Ollama


def test_nothing_is_lost_on_the_way_to_an_ollama():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}
    sent = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi", "images": [PIXEL]},
            {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call]},
            {"role": "tool", "content": "ok", "tool_name": "f"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "stream": False,
        "format": schema,
        "options": {"num_ctx": 8192, "temperature": 0, "num_gpu": 1, "made_up": 1},
        "think": "low",
        "keep_alive": "5m",
        "truncate": True,
        "shift": False,
        "logprobs": True,
        "top_logprobs": 2,
    }
    body, notes = decode_chat_request(sent, OLLAMA)
    written = encode_chat_request(body)
    assert (notes, written.notes) == ((), ())
    assert written.body == sent


def test_what_ollama_will_refuse_is_left_to_it():
    assert read(OLLAMA, format="xml")[0]["format"] == "xml"


def test_every_key_of_the_package_has_a_fate():
    keys = set(ollama._types.ChatRequest.model_fields)
    assert all(PARAMETERS[key].ollama is not UNKNOWN_PARAMETER.ollama for key in keys)
    assert keys - {"format", "options", "think", "keep_alive"} == {
        "model", "messages", "tools", "stream", "logprobs", "top_logprobs",
    }  # fmt: skip
