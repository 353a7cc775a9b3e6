"""The endpoints that render a chat template: what they are sent, and what their answers hold."""

import pytest

from promptools.wire.chat_template import (
    BYTE_LETTERS,
    RenderedPrompt,
    decode_rendered_prompt,
    encode_template_request,
    encode_tokenize_request,
)

ENDPOINTS = ("llamacpp", "tokenize", "ollama")
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BODY = {"model": "m", "messages": [USER], "tools": [TOOL]}


def test_a_plain_request():
    asked = encode_template_request(BODY, "llamacpp")
    assert (asked.path, asked.body, asked.notes) == ("/apply-template", BODY, ())
    asked = encode_template_request(BODY, "tokenize")
    assert (asked.path, asked.body, asked.notes) == ("/tokenize", {**BODY, "return_token_strs": True}, ())
    asked = encode_template_request(BODY, "ollama")
    assert (asked.path, asked.notes) == ("/api/chat", ())
    assert asked.body == {**BODY, "stream": False, "truncate": False, "_debug_render_only": True}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_does_not_concern_the_template_is_not_sent(endpoint):
    more = {"temperature": 0, "stream": True, "max_tokens": 5, "tool_choice": "auto", "stop": ["x"], "n": 2,
            "response_format": {"type": "json_object"}, "documents": None, "think": None}  # fmt: skip
    assert encode_template_request({**BODY, **more}, endpoint) == encode_template_request(BODY, endpoint)


def test_arguments_of_the_template():
    more = {"documents": [{"text": "d"}], "reasoning_effort": "low", "chat_template": "{{ x }}"}
    assert encode_template_request({**BODY, **more}, "llamacpp").body == {**BODY, **more}
    sent = encode_template_request({**BODY, **more}, "tokenize").body
    assert sent["chat_template_kwargs"] == {"documents": [{"text": "d"}], "reasoning_effort": "low"}
    assert sent["chat_template"] == "{{ x }}"
    assert not {"documents", "reasoning_effort"} & sent.keys()
    own = {"chat_template_kwargs": {"reasoning_effort": "high", "x": 1}, "reasoning_effort": "low"}
    sent = encode_template_request({**BODY, **own}, "tokenize").body
    assert sent["chat_template_kwargs"] == {"reasoning_effort": "high", "x": 1}, "the request's own win"


@pytest.mark.parametrize(("value", "sent"), [(True, False), (False, None), (None, None)])
def test_a_message_that_is_continued_has_no_generation_prompt(value, sent):
    body = encode_template_request({**BODY, "continue_final_message": value}, "tokenize").body
    assert body.get("add_generation_prompt") is sent


def test_what_tokenize_does_not_know_is_noted():
    asked = encode_template_request({**BODY, "think": False, "reasoning": {"effort": "low"}}, "tokenize")
    assert asked.body == {**BODY, "return_token_strs": True}
    assert asked.notes == ("not sent: think, reasoning; /tokenize does not know it",)


def test_what_ollama_does_not_know_is_noted():
    asked = encode_template_request({**BODY, "documents": [{"text": "d"}], "think": False}, "ollama")
    assert asked.body["think"] is False
    assert asked.notes == ("not sent: documents; Ollama does not know it",)
    assert encode_template_request({**BODY, "reasoning_effort": "none"}, "ollama").body["think"] is False


def test_the_context_to_ask_ollama_for():
    assert encode_template_request(BODY, "ollama", num_ctx=8192).body["options"] == {"num_ctx": 8192}


def test_ollama_loads_the_model_as_for_the_reply():
    own = {"options": {"num_ctx": 4096, "num_gpu": 0}, "keep_alive": "1m", "truncate": True}
    asked = encode_template_request({**BODY, **own}, "ollama", num_ctx=8192)
    assert {key: asked.body[key] for key in own} == own
    assert encode_template_request({**BODY, "num_ctx": 4096}, "ollama").body["options"] == {"num_ctx": 4096}
    for endpoint in ("llamacpp", "tokenize"):
        assert encode_template_request({**BODY, **own}, endpoint) == encode_template_request(BODY, endpoint)


def test_a_conversation_that_ollamas_api_has_no_place_for():
    assert encode_template_request({**BODY, "messages": []}, "ollama") is None


def test_the_body_is_not_changed():
    body = {**BODY, "chat_template_kwargs": {"x": 1}, "continue_final_message": True, "reasoning_effort": "low"}
    before = {**body, "chat_template_kwargs": {"x": 1}}
    for endpoint in ENDPOINTS:
        encode_template_request(body, endpoint)
    assert body == before


def test_the_ids_of_a_text():
    asked = encode_tokenize_request("m", "<tool_call>")
    assert (asked.path, asked.body) == (
        "/tokenize",
        {"model": "m", "prompt": "<tool_call>", "add_special_tokens": False},
    )


# --- answers


def test_a_prompt_in_text():
    assert decode_rendered_prompt({"prompt": "<|im_start|>"}, "llamacpp") == RenderedPrompt(
        "<|im_start|>", "<|im_start|>"
    )
    debug = {"_debug_info": {"rendered_template": "<s>Hi", "image_count": 0}, "message": {"content": ""}}
    assert decode_rendered_prompt(debug, "ollama") == RenderedPrompt("<s>Hi", "<s>Hi")


def test_a_prompt_in_ids():
    reply = {"count": 3, "max_model_len": 4096, "tokens": [1, 2, 3], "token_strs": ["<|im_start|>", "userĊ", "▁HiĠyou"]}
    assert decode_rendered_prompt(reply, "tokenize") == RenderedPrompt(
        (1, 2, 3), "<|im_start|>user\n Hi you", context=4096
    )
    del reply["token_strs"], reply["max_model_len"]
    assert decode_rendered_prompt(reply, "tokenize") == RenderedPrompt((1, 2, 3), None)


def test_the_strings_of_a_vocabulary():
    strings = ["<s>", "▁Hi", "▁▁you", "<0x0A>", "<｜end▁of▁sentence｜>", "<｜User｜>", "Ġa", "ĊĊ", "ĉ", "<think>", "Ċ"]
    reply = {"tokens": list(range(len(strings))), "token_strs": strings}
    text = "<s> Hi  you\n<｜end▁of▁sentence｜><｜User｜> a\n\n\t<think>\n"
    assert decode_rendered_prompt(reply, "tokenize").text == text


def test_letters_outside_of_ascii_are_read_in_either_kind_of_vocabulary():
    text = "<|é|> ⟦call⟧ Größe: 5 °C\n"
    letters = ["".join(BYTE_LETTERS[byte] for byte in word.encode()) for word in (" ⟦ca", "ll⟧", " Größe: 5 °C\n")]
    split = [letters[0][:2], letters[0][2:], *letters[1:]]  # in the middle of a character
    pieces = ["▁", "<0xE2>", "<0x9F>", "<0xA6>", "call", "⟧", "▁Größe:", "▁5", "▁°C", "<0x0A>"]
    for strings in (["<|é|>", *split], ["<|é|>", *pieces]):
        reply = {"tokens": list(range(len(strings))), "token_strs": strings}
        assert decode_rendered_prompt(reply, "tokenize").text == text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "reply",
    [
        None, [], "x", 7, {}, {"prompt": ""}, {"prompt": 7}, {"prompt": ["x"]}, {"error": {"message": "no"}},
        {"_debug_info": {}}, {"_debug_info": "x"}, {"_debug_info": {"rendered_template": ""}},
        {"message": {"role": "assistant", "content": "Hi"}, "done": True},
        {"tokens": []}, {"tokens": None}, {"tokens": "abc"}, {"tokens": [1, "2"]}, {"tokens": [1, None]},
        {"tokens": [1.5]}, {"tokens": [True]},
    ],
)  # fmt: skip
def test_an_answer_without_a_prompt(endpoint, reply):
    assert decode_rendered_prompt(reply, endpoint) is None
