"""Requests that come in as /v1/messages, read as Chat Completions bodies: what becomes of every key and block."""

import typing

import anthropic
import pytest
from anthropic.types import content_block_param, message_create_params

from promptools.errors import UsageError
from promptools.profiles import Profile
from promptools.wire import messages_in
from promptools.wire.messages_in import decode_messages_request
from promptools.wire.parameters import PARAMETERS

CHAT = Profile()
USER = {"role": "user", "content": "Hi"}
PIXEL = "iVBORw0KGgo="
TOOL = {"name": "get_weather", "description": "Weather", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"name": "get_weather", "description": "Weather", "parameters": {"type": "object", "properties": {}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PIXEL}"}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.160.abc; cc_entrypoint=cli; cch=1f2e3;"


def read(profile=CHAT, **keys):
    return decode_messages_request({"model": "m", "messages": [USER], **keys}, profile)


def body_of(profile=CHAT, **keys):
    body, notes = read(profile, **keys)
    assert notes == ()
    return {key: value for key, value in body.items() if key not in {"model", "messages"}}


def messages(*said, **keys):
    body, notes = read(messages=list(said), **keys)
    assert notes == ()
    return body["messages"]


def text(words, **more):
    return {"type": "text", "text": words, **more}


# --- the system prompt


@pytest.mark.parametrize(
    ("system", "sent"),
    [
        ("Be brief.", "Be brief."),
        ([text("Be brief.", cache_control={"type": "ephemeral"}), text("Be kind.")], "Be brief.\n\nBe kind."),
        ([text(BILLING), text("Be brief.")], "Be brief."),
        (f"{BILLING}\nBe brief.", "Be brief."),
        (f"Be brief.\n{BILLING}\nBe kind.", "Be brief.\nBe kind."),
        (f"Never write {BILLING}", f"Never write {BILLING}"),
        ("", None),
        ([], None),
        (BILLING, None),
        (None, None),
    ],
)
def test_the_system_prompt_is_a_message(system, sent):
    assert messages(USER, system=system) == [*([{"role": "system", "content": sent}] if sent else []), USER]


def test_the_billing_line_can_be_kept():
    body, _ = read(Profile(strip_billing_header=False), system=[text(BILLING), text("Be brief.")])
    assert body["messages"][0] == {"role": "system", "content": f"{BILLING}\n\nBe brief."}


# --- the conversation


def test_strings_and_text_blocks():
    said = [text("a", cache_control={"type": "ephemeral"}), text("b", citations=None)]
    assert messages(USER, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": said}) == [
        USER,
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "a\n\nb"},
    ]


@pytest.mark.parametrize("content", ["", None, []])
def test_empty_messages_stay(content):
    assert messages({"role": "user", "content": content}, {"role": "assistant", "content": content}) == [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": ""},
    ]


def test_calls_results_and_thoughts():
    said = [
        {"type": "thinking", "thinking": "Hm.", "signature": "promptools"},
        text("Let me "),
        text("look."),
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}, "caller": {"type": "direct"}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("sunny"), text("21 degrees")]},
        text("And tomorrow?"),
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no clock", "is_error": True},
    ]
    assert messages({"role": "assistant", "content": said}, {"role": "user", "content": results}) == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "toolu_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'},
                },
                {"id": "toolu_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny\n\n21 degrees"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "no clock", "is_error": True},
        {"role": "user", "content": "And tomorrow?"},
    ]


def test_a_call_alone_has_null_content():
    call = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    assert messages({"role": "assistant", "content": [call]})[0]["content"] is None


def test_results_without_content():
    said = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}
    assert messages(said) == [{"role": "tool", "tool_call_id": "toolu_1", "content": ""}]


def test_images_in_messages_and_results():
    by_url = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("A shot:"), IMAGE]}
    tool, user = messages({"role": "user", "content": [result, text("And this?"), by_url]})
    assert tool["content"] == [text("A shot:"), IMAGE_PART]
    assert user["content"] == [
        text("And this?"),
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        ({"source": {"type": "text", "media_type": "text/plain", "data": "Once"}, "title": "A tale"}, "A tale\n\nOnce"),
        ({"source": {"type": "content", "content": "Once"}}, "Once"),
        ({"source": {"type": "content", "content": [text("Once"), IMAGE]}}, [text("Once"), IMAGE_PART]),
        (
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, "title": "a.pdf"},
            [
                text("a.pdf"),
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
                },
            ],
        ),
    ],
)
def test_documents(block, content):
    assert messages({"role": "user", "content": [{"type": "document", **block}]})[0]["content"] == content


def test_search_results():
    block = {"type": "search_result", "title": "Oslo", "source": "https://a.example", "content": [text("Rain.")]}
    assert messages({"role": "user", "content": [block]})[0]["content"] == "Oslo\nhttps://a.example\n\nRain."


def test_blocks_of_anthropics_own_servers_are_left_out_with_a_note():
    said = [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        text("It rains."),
    ]
    body, notes = read(messages=[{"role": "assistant", "content": said}])
    assert body["messages"] == [{"role": "assistant", "content": "It rains."}]
    (note,) = notes
    assert note.startswith(
        "not sent: content blocks of type redacted_thinking, server_tool_use, web_search_tool_result;"
    )


def test_every_block_of_the_sdk_is_known_or_left_out():
    kinds = [
        typing.get_args(typing.get_type_hints(block)["type"])[0]
        for block in typing.get_args(content_block_param.ContentBlockParam)
    ]
    for role in ("user", "assistant"):
        for kind in kinds:
            block = {"type": kind, "source": {"type": "text", "data": "x"} if kind == "document" else IMAGE["source"]}
            read(messages=[{"role": role, "content": [block]}])


def test_a_system_message_in_mid_conversation_stays_one():
    body, notes = read(messages=[USER, {"role": "system", "content": "The date has changed."}])
    assert body["messages"] == [USER, {"role": "system", "content": "The date has changed."}]
    assert notes == ()


def test_other_roles_are_the_users():
    body, notes = read(messages=[USER, {"role": "critic", "content": "The date has changed."}])
    assert body["messages"] == [USER, {"role": "user", "content": "The date has changed."}]
    assert notes == ("messages of the roles 'critic' were sent as the user's",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (7, r"messages\[0\].content must be a string or a list"),
        ([7], r"messages\[0\].content\[0\] must be a content block"),
        ([{"type": "image", "source": {"type": "file", "file_id": "f"}}], r"content\[0\] is an image .* 'file'"),
        ([{"type": "document", "source": {"type": "url", "url": "u"}}], r"content\[0\] is a document .* 'url'"),
        (
            [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"type": "file"}}]}],
            r"messages\[0\].content\[0\].content\[0\] is an image",
        ),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_its_place(content, words):
    with pytest.raises(UsageError, match=words):
        read(messages=[{"role": "user", "content": content}])


# --- tools


def test_tools():
    more = {"type": "custom", "cache_control": {"type": "ephemeral"}, "input_examples": [{}], "defer_loading": False}
    assert body_of(tools=[TOOL, {**TOOL, **more, "strict": True}, {"name": "now"}])["tools"] == [
        {"type": "function", "function": FUNCTION},
        {"type": "function", "function": {**FUNCTION, "strict": True}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]


def test_tools_of_anthropic_are_left_out_beside_others_and_refused_alone():
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    body, notes = read(tools=[search, TOOL])
    assert body["tools"] == [{"type": "function", "function": FUNCTION}]
    assert notes == (
        "not sent: tools of type 'web_search_20250305'; only Anthropic's own servers and models know them",
    )
    with pytest.raises(UsageError, match="'tools' holds only 'web_search_20250305'"):
        read(tools=[search])


def test_tools_of_chat_completions_stay():
    own = [{"type": "function", "function": FUNCTION}]
    assert body_of(tools=own)["tools"] == own
    assert body_of(tools=own, tool_choice="required")["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        (
            {"type": "tool", "name": "get_weather"},
            {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        ),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ],
)
def test_tool_choice(choice, sent):
    body = body_of(tools=[TOOL], tool_choice=choice)
    del body["tools"]
    assert body == sent


def test_an_unknown_tool_choice_is_refused():
    with pytest.raises(UsageError, match="'auto', 'any', 'tool' or 'none'"):
        read(tools=[TOOL], tool_choice={"type": "some"})


# --- parameters


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ({"max_tokens": 100}, {"max_tokens": 100}),
        ({"stop_sequences": ["\n\nHuman:"]}, {"stop": ["\n\nHuman:"]}),
        ({"stop_sequences": []}, {}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"stream": True}, {"stream": True}),
        ({"metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["x"]}, {}),
        ({"promptools": {"trace": True}, "seed": 3}, {"promptools": {"trace": True}, "seed": 3}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ],
)
def test_parameters(keys, sent):
    assert body_of(**keys) == sent


def test_thinking_is_switched_where_the_server_has_a_switch():
    template, ollama = Profile(template_kwargs=True), Profile(kind="ollama", wire="ollama")
    off, on = {"type": "disabled"}, {"type": "adaptive"}
    assert body_of(template, thinking=off) == {"chat_template_kwargs": {"enable_thinking": False}}
    assert body_of(template, thinking=on) == {"chat_template_kwargs": {"enable_thinking": True}}
    assert body_of(template, thinking=on, chat_template_kwargs={"a": 1}) == {
        "chat_template_kwargs": {"a": 1, "enable_thinking": True}
    }
    assert body_of(ollama, thinking=off) == {"think": False}
    assert read(thinking=off)[1] == ("not sent: thinking; how this server switches it off is not known",)


def test_the_format_of_the_answer():
    form = {"type": "json_schema", "schema": {"type": "object"}}
    sent = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    assert body_of(output_config={"format": form}) == {"response_format": sent}
    assert body_of(output_format=form) == {"response_format": sent}
    with pytest.raises(UsageError, match="its type must be 'json_schema'"):
        read(output_config={"format": {"type": "regex"}})


def test_top_k_is_sent_where_the_server_takes_it():
    assert body_of(Profile(sampling=frozenset({"top_k"})), top_k=40) == {"top_k": 40}
    assert read(top_k=40)[1] == ("not sent: top_k; this server is not known to take it with a request",)


def test_more_tokens_than_the_context_holds_are_not_asked_for():
    small = Profile(context=8192)
    assert body_of(small, max_tokens=8000) == {"max_tokens": 8000}
    assert body_of(Profile(context=8192, wire="ollama"), max_tokens=32_000) == {"max_tokens": 32_000}
    note = "not sent: max_tokens of {}; the context holds 8192 tokens with the prompt"
    assert read(small, max_tokens=32_000)[1] == (note.format(32_000),)
    long = [{"role": "user", "content": "long " * 1000}]
    assert read(small, max_tokens=6000, messages=long)[1] == (note.format(6000),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mcp_servers", [{"type": "url", "url": "https://mcp.example"}]),
        ("compaction", {"type": "compact"}),
        ("thread", {"type": "continue", "previous_message_id": "msg_1"}),
    ],
)
def test_what_only_anthropics_servers_do_is_refused(key, value):
    with pytest.raises(UsageError, match=f"'{key}' needs Anthropic's own servers") as refused:
        read(tools=[TOOL], **{key: value})
    assert refused.value.code == ("thread_not_found" if key == "thread" else "usage")
    assert body_of(**{key: None}) == body_of(thread={"type": "create"}) == {}


def test_a_summary_is_text():
    block = {"type": "compaction", "content": "So far: rain."}
    assert messages({"role": "user", "content": [block]}) == [{"role": "user", "content": "So far: rain."}]
    assert messages({"role": "assistant", "content": [block]}) == [{"role": "assistant", "content": "So far: rain."}]


def test_unknown_keys_are_left_out_with_a_note():
    body, notes = read(context_management={"edits": []}, container=None, n=2)
    assert body == {"model": "m", "messages": [USER]}
    assert notes == ("not sent: context_management, n; Chat Completions has nothing like it",)


def test_every_key_of_the_sdk_is_handled():
    keys = {
        *typing.get_type_hints(message_create_params.MessageCreateParamsBase),
        *typing.get_type_hints(anthropic.types.beta.message_create_params.MessageCreateParamsBase),
    }
    left_out = {"container", "context_management", "fallback_credit_token", "fallbacks"}
    handled = messages_in._KEPT | messages_in._CONVERTED | messages_in._NEEDLESS
    assert keys - handled <= left_out
    assert messages_in._KEPT - {"promptools"} <= PARAMETERS.keys()
