"""Requests in raw mode: what is to be rendered, how the prompt ends, what ends the reply."""

import json
from dataclasses import replace

import pytest

from promptools import dialects
from promptools.errors import UsageError
from promptools.modes.prepared_request import MIN_ANSWER_TOKENS
from promptools.modes.raw_mode import beginning_of_call, prepare_conversation, prepare_raw, shows_tools
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile, families, family_dialect, load_builtin
from promptools.types import Call
from promptools.wire.chat_decoder import Delta
from promptools.wire.chat_template import RenderedPrompt

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get it", "parameters": CITY}}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "hi"}
CALLED = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "hm",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4 C"}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
PROFILE = Profile(
    raw="completions",
    raw_ids=True,
    template_endpoint="tokenize",
    family="qwen",
    reasoning_field="reasoning_content",
)
TEXT = "<|im_start|>system\nget_weather<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
FORM = {"type": "json_schema", "json_schema": {"schema": CITY}}
REFUSED = ({"role": "assistant", "content": "No."}, {"role": "user", "content": "Call it."})


def asked(messages=(USER,), profile=PROFILE, options=None, **body):
    return parse_request({"model": "m", "messages": list(messages), **body, "promptools": options or {}}, profile)


def template(*args, **keys):
    """What is sent to be rendered."""
    ask = asked(*args, **keys)
    before = json.dumps(ask.body)
    conversation = prepare_conversation(ask)
    assert json.dumps(ask.body) == before
    return conversation


def sent(prompt=TEXT, *args, rendered=None, **keys):
    ask = asked(*args, **keys)
    return prepare_raw(ask, prepare_conversation(ask), rendered or RenderedPrompt(prompt, prompt))


# --- what is to be rendered


def test_history_calls_and_results_are_untouched():
    assert template([USER, CALLED, RESULT], tools=[WEATHER]).body["messages"] == [USER, CALLED, RESULT]


@pytest.mark.parametrize("choice", [None, "auto", "required", NAMED])
def test_no_instruction_is_written_for_a_choice(choice):
    upstream = template(tools=[WEATHER], tool_choice=choice)
    assert upstream.body["messages"] == [USER]
    assert upstream.body["tools"] == [WEATHER]
    assert upstream.notes == ()


def test_only_the_tools_that_may_be_called_are_shown():
    assert template(tools=[WEATHER, PING], tool_choice=NAMED).body["tools"] == [WEATHER]
    one = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    assert template(tools=[WEATHER, PING], tool_choice=one).body["tools"] == [WEATHER]
    assert "tools" not in template(tools=[WEATHER], tool_choice="none").body


def test_a_form_beside_tools_is_an_instruction():
    upstream = template(tools=[WEATHER], response_format=FORM)
    assert "response_format" not in upstream.body
    assert upstream.body["messages"][0]["role"] == "system"
    assert template(response_format=FORM).body["response_format"] == FORM
    for choice in ("required", NAMED):
        upstream = template(tools=[WEATHER], response_format=FORM, tool_choice=choice)
        assert upstream.body["messages"] == [USER]
        assert "response_format" not in upstream.body


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_audio", "input_audio": {}}]
)
def test_parts_that_a_prompt_cannot_hold(part):
    for message in ({"role": "user", "content": [part]}, {**RESULT, "content": [part]}):
        with pytest.raises(UsageError, match="a prompt cannot hold"):
            template([USER, CALLED, message] if message["role"] == "tool" else [message])
    text = [{"type": "text", "text": "hi"}]
    assert template([{**USER, "content": text}]).body["messages"][0]["content"] == text


# --- the prompt


def test_text_and_ids_are_continued_as_they_are():
    upstream = sent()
    assert (upstream.prompt.content, upstream.prefill, upstream.dialect) == (TEXT, "", "hermes")
    upstream = sent(rendered=RenderedPrompt((1, 2, 3), TEXT))
    assert upstream.prompt.content == (1, 2, 3)


def test_the_room_that_is_left():
    assert sent(rendered=RenderedPrompt((1, 2, 3), None, context=100_000)).prompt.max_tokens == 99_997
    small = replace(PROFILE, context=50_000)
    assert sent(profile=small, rendered=RenderedPrompt((1, 2, 3), None)).prompt.max_tokens == 49_997
    assert sent(profile=small).prompt.max_tokens == 50_000 - len(TEXT) // 2
    assert sent(rendered=RenderedPrompt((1, 2, 3), None)).prompt.max_tokens == MIN_ANSWER_TOKENS
    assert sent(rendered=RenderedPrompt((1,) * 999, None, context=1000)).prompt.max_tokens == MIN_ANSWER_TOKENS


def test_nothing_of_the_template_is_left_in_the_body():
    body = sent(tools=[WEATHER], tool_choice="auto", chat_template_kwargs={"x": 1}, reasoning_effort="low",
                documents=[], think=True, seed=1, chat_template="x", add_generation_prompt=True).body  # fmt: skip
    assert body == {"model": "m", "seed": 1}


def test_notes_of_the_rendering_go_into_the_trace():
    rendered = RenderedPrompt(TEXT, TEXT, notes=("not sent: think; why",))
    assert sent(rendered=rendered).notes == ("not sent: think; why",)


# --- reasoning that is open


@pytest.mark.parametrize(
    ("end", "is_open"),
    [
        ("", False), ("<think>\n", True), ("<think>", True), ("<think>\n\n</think>\n\n", False),
        ("<seed:think>", True), ("[THINK]", True), ("Say <think> now", False),
    ],
)  # fmt: skip
def test_reasoning_is_open_where_the_prompt_ends_with_its_tag(end, is_open):
    assert sent(TEXT + end).in_reasoning is is_open


def test_where_the_prompt_cannot_be_read_the_profile_decides():
    unread = RenderedPrompt((1, 2), None)
    assert sent(rendered=unread).in_reasoning is None
    for known in (False, True):
        ask = asked(profile=replace(PROFILE, in_reasoning=known), tools=[WEATHER])
        upstream = prepare_raw(ask, prepare_conversation(ask), unread)
        reader = ReplyReader(ask, upstream, lambda: "x")
        reader.feed(Delta(content="Hm.</think>Sunny."))
        reader.close("stop")
        assert (reader.reply.reasoning, reader.reply.content) == ("Hm.", "Sunny.")
        reader = ReplyReader(ask, upstream, lambda: "x")
        reader.feed(Delta(content="Hm."))
        reader.close("length")
        assert bool(reader.reply.reasoning) is known


# --- the end of the turn


@pytest.mark.parametrize(
    ("text", "family", "ends"),
    [
        (TEXT, "qwen", ("<|im_end|>\n<|im_start|>",)),
        (TEXT, None, ("<|im_end|>\n<|im_start|>",)),
        (
            "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            None, ("<|eot_id|><|start_header_id|>",),
        ),
        ("<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", None, ("<end_of_turn>\n<start_of_turn>",)),
        ("<|user|>hi<|assistant|>", None, ()),
        ("<s>[INST]one[/INST]two</s>[INST]hi[/INST]", None, ("</s>[INST]",)),
        ("<s>[INST]hi[/INST]", "mistral", ()),
        ("Hi there", None, ()),
        ("<｜User｜>hi<｜Assistant｜>", "deepseek", ("<｜end▁of▁sentence｜>", "<|end▁of▁sentence|>", "<|EOT|>")),
        ("Say <|im_end|> and stop", None, ()),
    ],
)  # fmt: skip
def test_what_ends_the_turn(text, family, ends):
    upstream = sent(text, profile=replace(PROFILE, family=family))
    assert upstream.turn_ends == ends
    assert upstream.prompt.stops == ends


def test_a_prompt_that_cannot_be_read_has_the_ends_of_its_family():
    unread = RenderedPrompt((1, 2), None)
    assert sent(rendered=unread).turn_ends == ()
    assert "<|EOT|>" in sent(rendered=unread, profile=replace(PROFILE, family="deepseek")).turn_ends


def test_gpt_oss_ends_its_turn_by_its_own_tokens():
    profile = replace(PROFILE, family="gpt-oss")
    upstream = sent("<|start|>user<|message|>hi<|end|><|start|>assistant", profile=profile)
    assert (upstream.dialect, upstream.turn_ends) == ("harmony", ()), "its messages end, and others of it follow"
    assert upstream.prompt.stops == ("<|return|>", "<|call|>")
    upstream = sent(profile=profile, rendered=RenderedPrompt((1, 2), "<|start|>assistant"))
    assert (upstream.prompt.stops, upstream.prompt.stop_ids) == ((), (200002, 200012))


def test_the_tokens_that_are_kept():
    known = sent().prompt.preserved
    assert {"<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|channel|>"} <= set(known)
    assert list(known) == sorted(set(known))
    assert not [token for token in known if "{" in token]
    every = sent(profile=replace(PROFILE, family=None)).prompt.preserved
    assert {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<｜tool▁calls▁begin｜>"} <= set(every)


# --- the tools are shown


@pytest.mark.parametrize(
    ("text", "shown"), [("get_weather", True), ("ping", True), ("weather", False), ("", False), (None, True)]
)
def test_a_prompt_shows_the_tools_by_any_of_their_names(text, shown):
    assert shows_tools(template(tools=[WEATHER, PING]), RenderedPrompt("x", text)) is shown
    assert shows_tools(template(), RenderedPrompt("x", text)) is True


# --- a required call


CERTAIN = [name for name in families() if family_dialect(name) and load_builtin(name).template_dialect is None]
"""The families whose templates all write calls in one way."""


def begun(text=TEXT, feedback=(), profile=PROFILE, **body):
    ask = asked(profile=profile, **{"tools": [WEATHER], "tool_choice": "required", **body}).with_feedback(feedback)
    return beginning_of_call(ask, prepare_conversation(ask), RenderedPrompt(text or "x", text))


@pytest.mark.parametrize(
    ("family", "required", "named"),
    [
        ("qwen", '<tool_call>\n{"name": "', '<tool_call>\n{"name": "get_weather", "arguments":'),
        ("qwen3-coder", "<tool_call>\n<function=", "<tool_call>\n<function=get_weather>\n"),
        ("llama", '{"name": "', '{"name": "get_weather", "parameters":'),
        ("glm", "<tool_call>", "<tool_call>get_weather"),
    ],
)  # fmt: skip
def test_what_all_calls_have_in_common(family, required, named):
    profile = replace(PROFILE, family=family)
    assert begun(profile=profile) == required
    assert begun(profile=profile, tool_choice=NAMED) == named


@pytest.mark.parametrize("family", CERTAIN)
def test_a_beginning_ends_where_a_token_does(family):
    profile = replace(PROFILE, family=family)
    assert not begun(profile=profile, tool_choice=NAMED).endswith(("<", "<|", "[", "{", " ", '"', "|"))
    assert "get_weather" not in begun(profile=profile)
    assert not begun(profile=profile, tool_choice=NAMED).startswith("```"), (
        "a format of prompt mode, which no template teaches"
    )


@pytest.mark.parametrize("family", CERTAIN)
def test_a_reply_that_goes_on_from_the_beginning_is_the_call(family):
    name = family_dialect(family)
    if name is None or family == "gpt-oss":
        return
    ask = asked(profile=replace(PROFILE, family=family), tools=[WEATHER], tool_choice=NAMED)
    conversation = prepare_conversation(ask)
    head = beginning_of_call(ask, conversation, RenderedPrompt(TEXT, TEXT))
    upstream = prepare_raw(ask, conversation, RenderedPrompt(TEXT + head, TEXT, prefill=head))
    call = Call("call00001", "get_weather", {"city": "Paris"}, '{"city": "Paris"}')
    written = dialects.get(name).render_calls([call])
    assert written.startswith(head)
    reader = ReplyReader(ask, upstream, lambda: "x")
    reader.feed(Delta(content=written.removeprefix(head)))
    reader.close("stop")
    assert [(made.name, made.arguments) for made in reader.reply.calls] == [("get_weather", {"city": "Paris"})]


def test_no_call_is_begun_where_none_is_required():
    assert begun(tool_choice="auto") == ""
    assert begun(tools=[], tool_choice=None) == ""
    assert begun(tool_choice="none") == ""
    assert begun(profile=replace(PROFILE, family="gpt-oss")) == ""


def test_where_the_family_is_not_known_its_template_has_to_show_a_call():
    assert begun(profile=replace(PROFILE, family=None)) is None


def test_open_reasoning_is_closed_only_after_a_reply_without_the_call():
    opened = TEXT + "<think>\n"
    assert begun(opened) == ""
    assert begun(opened, REFUSED) == '\n</think>\n\n<tool_call>\n{"name": "'
    assert begun(TEXT, REFUSED) == '<tool_call>\n{"name": "'
    assert begun(TEXT + "[THINK]", REFUSED).startswith("\n[/THINK]\n\n<tool_call>")


def test_where_the_prompt_cannot_be_read_no_call_is_begun():
    assert begun(None) == ""


def test_the_name_of_a_tool_is_the_one_that_was_sent():
    odd = {"type": "function", "function": {"name": "my.tool", "parameters": CITY}}
    choice = {"type": "function", "function": {"name": "my.tool"}}
    head = begun(profile=replace(PROFILE, tool_names="[a-z_]+"), tools=[odd], tool_choice=choice)
    assert head == '<tool_call>\n{"name": "my_tool", "arguments":'


# --- a required form


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        ("llamacpp", {"json_schema": CITY}), ("generate", {"format": CITY}), ("completions", {"response_format": FORM}),
    ],
)  # fmt: skip
def test_a_form_is_forced_by_the_endpoints_own_keys(raw, keys):
    profile = replace(PROFILE, raw=raw)
    assert sent(profile=profile, response_format=FORM).prompt.constraint == keys
    assert sent(profile=profile, response_format=FORM, tools=[WEATHER]).prompt.constraint == {}
    assert sent(profile=profile, response_format={"type": "text"}).prompt.constraint == {}
    upstream = sent(TEXT + "<think>\n", profile=profile, response_format=FORM)
    assert upstream.prompt.constraint == {}
    assert any("response_format is not enforced" in note for note in upstream.notes)
    unread = sent(profile=profile, response_format=FORM, rendered=RenderedPrompt((1,), None))
    assert unread.prompt.constraint == keys
