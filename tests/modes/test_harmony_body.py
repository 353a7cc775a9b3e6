"""Requests in Harmony: what the prompt says, how the reply begins, how long it may be."""

import json
from dataclasses import replace
from datetime import datetime

import pytest

from promptools.errors import UsageError
from promptools.harmony.bpe_vocabulary import TokenCodec
from promptools.harmony.tokens import TOKEN_IDS
from promptools.modes.harmony_mode import RECOMMENDED_SAMPLING, prepare_harmony
from promptools.modes.prepared_request import MIN_ANSWER_TOKENS
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get it", "parameters": CITY}}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
EXEC = {"type": "function", "function": {"name": "container.exec", "parameters": CITY}}
OPEN = {"type": "function", "function": {"name": "container.open", "parameters": CITY}}
SPACED = {"type": "function", "function": {"name": "get weather", "parameters": CITY}}
USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALLED = {
    "role": "assistant",
    "content": None,
    "reasoning": "hm",
    "tool_calls": [{"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4 C"}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
PROFILE = Profile(raw="completions", family="gpt-oss", context=131_072)
REFUSED = ({"role": "assistant", "content": "No."}, {"role": "user", "content": "Call it."})


def asked(messages=(USER,), profile=PROFILE, options=None, system_prompt="", **body):
    request = {"model": "m", "messages": list(messages), **body, "promptools": options or {}}
    return parse_request(request, profile, system_prompt=system_prompt)


def sent(*args, **keys):
    ask = asked(*args, **keys)
    before = json.dumps(ask.body)
    upstream = prepare_harmony(ask)
    assert json.dumps(ask.body) == before
    return upstream


def text(*args, **keys):
    return sent(*args, **keys).prompt.content


def developer(*args, **keys):
    """What the developer message says; nothing where there is none."""
    return text(*args, **keys).partition("<|start|>developer<|message|>")[2].partition("<|end|>")[0]


def test_a_whole_request():
    upstream = sent([SYSTEM, USER], tools=[WEATHER], seed=1, reasoning_effort="low")
    assert upstream.prompt.content == (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\n\nReasoning: low\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.\n"
        "Calls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n"
        "# Tools\n\n## functions\n\nnamespace functions {\n\n"
        "// Get it\ntype get_weather = (_: {\ncity: string,\n}) => any;\n\n} // namespace functions<|end|>"
        "<|start|>user<|message|>hi<|end|><|start|>assistant"
    )
    assert upstream.body == {
        "temperature": 1,
        "top_p": 1,
        "model": "m",
        "seed": 1,
        "reasoning_effort": "low",
    }
    assert (upstream.dialect, upstream.notes, upstream.client_names, upstream.prefill) == ("harmony", (), {}, "")


# --- tools


def test_history_is_told_in_harmony():
    said = text([USER, CALLED, RESULT], tools=[WEATHER])
    assert said.endswith(
        "<|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>'
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>4 C<|end|><|start|>assistant"
    )


def test_under_tool_choice_none_no_tools_are_declared_and_the_history_is_told():
    said = text([USER, CALLED, RESULT], tools=[WEATHER], tool_choice="none")
    assert "namespace" not in said
    assert "developer" not in said
    assert "to=functions.get_weather" in said


def test_only_the_allowed_tools_are_declared():
    one = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    said = developer(tools=[WEATHER, PING], tool_choice=one)
    assert "type get_weather" in said
    assert "ping" not in said


def test_names_that_a_header_does_not_take():
    upstream = sent(tools=[SPACED, EXEC])
    assert upstream.client_names == {"get_weather": "get weather"}
    assert upstream.notes == ("the tool 'get weather' was sent as 'get_weather'",)
    assert "namespace container {\n\ntype exec" in upstream.prompt.content


def test_tools_of_other_types_are_named():
    assert sent(tools=[WEATHER, {"type": "web_search"}]).notes == (
        "harmony mode cannot offer the tool of type 'web_search'",
    )


def test_tools_may_stand_in_the_system_message():
    said = text(tools=[WEATHER], options={"tools_in": "system"})
    assert "developer" not in said
    assert "type get_weather" in said.partition("<|end|>")[0]


# --- the conversation


@pytest.mark.parametrize(
    ("placement", "said"),
    [("prepend", "House.\n\nBe brief."), ("append", "Be brief.\n\nHouse."), ("replace", "House.")],
)
def test_the_configs_system_prompt(placement, said):
    profile = replace(PROFILE, system_prompt_placement=placement)
    assert developer([SYSTEM, USER], profile, system_prompt="House.") == f"# Instructions\n\n{said}"


def test_the_configs_system_prompt_in_place_of_nothing():
    profile = replace(PROFILE, system_prompt_placement="replace")
    only = [{"role": "developer", "content": "Be brief."}]
    assert developer(only, profile, system_prompt="House.") == "# Instructions\n\nHouse."
    assert developer(profile=profile, system_prompt="House.") == "# Instructions\n\nHouse."


def test_parts_that_are_not_text_are_named():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    upstream = sent([{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}])
    assert upstream.notes == ("message 0: 1 parts that are not text were left out; Harmony has only text",)


def test_a_form_of_the_answer_is_told():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    said = developer(response_format=form)
    assert said == f"# Response Formats\n\n## sum\n\n{json.dumps(schema, separators=(',', ':'))}"


def test_corrections_are_told_like_any_messages():
    ask = asked(tools=[WEATHER]).with_feedback(({"role": "user", "content": "Mend <|end|> it."},))
    assert "<|start|>user<|message|>Mend <\\|end|> it.<|end|><|start|>assistant" in prepare_harmony(ask).prompt.content


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({}, "medium"),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "none", "think": "high"}, "low"),
        ({"reasoning": {"effort": "minimal"}}, "low"),
        ({"reasoning": {}}, "medium"),
        ({"think": False}, "low"),
        ({"think": True}, "medium"),
        ({"think": "max"}, "high"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "high"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "low"),
    ],
)
def test_the_effort(body, effort):
    upstream = sent(**body)
    assert f"\n\nReasoning: {effort}\n\n" in upstream.prompt.content
    assert upstream.notes == ()


def test_an_effort_that_nobody_knows():
    with pytest.raises(UsageError, match="'bogus'"):
        sent(reasoning_effort="bogus")


def test_what_templates_are_told():
    upstream = sent(chat_template_kwargs={"model_identity": "You are Pip.", "builtin_tools": ["browser"], "x": 1})
    assert upstream.prompt.content.startswith("<|start|>system<|message|>You are Pip.\nKnowledge cutoff")
    assert upstream.notes == ("not sent: builtin_tools, x of chat_template_kwargs; no template is applied",)


def test_the_date():
    ask = replace(asked(), clock=lambda: datetime(2026, 11, 21))
    assert "Current date: 2026-11-21\n" in prepare_harmony(ask).prompt.content
    assert "date" not in text()


def test_past_thoughts_stay_as_the_option_says():
    messages = [USER, {**CALLED, "content": "Let me look."}, RESULT, USER]
    assert "analysis<|message|>hm" in text(messages)
    assert "analysis<|message|>hm" not in text(messages, options={"thoughts": "turn"})
    told = text(messages, options={"order": "commentary-first"})
    assert told.index("Let me look.") < told.index("analysis<|message|>hm")


# --- how the reply begins


HEADER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


@pytest.mark.parametrize("choice", [NAMED, "required"])
def test_a_call_that_must_come_is_asked_for_in_words_first(choice):
    upstream = sent(tools=[WEATHER], tool_choice=choice)
    what = "the tool get_weather" if choice is NAMED else "one of the tools"
    assert f"Call {what} now; do not answer in plain text." in upstream.prompt.content
    assert upstream.prefill == ""
    assert any("put into the prompt" in note for note in upstream.notes)


@pytest.mark.parametrize("choice", [NAMED, "required"])
def test_where_it_did_not_come_the_reply_begins_with_it(choice):
    upstream = prepare_harmony(asked(tools=[WEATHER], tool_choice=choice).with_feedback(REFUSED))
    assert upstream.prefill == HEADER
    assert upstream.prompt.content.endswith("<|start|>assistant" + HEADER)
    assert "do not answer in plain text" not in upstream.prompt.content
    assert upstream.notes == ()


def test_a_call_that_came_and_has_to_be_mended_is_not_forced():
    mend = (CALLED, {"role": "tool", "tool_call_id": "c1", "content": "city is missing"})
    assert prepare_harmony(asked(tools=[WEATHER], tool_choice="required").with_feedback(mend)).prefill == ""


@pytest.mark.parametrize(
    ("tools", "header"),
    [
        ([WEATHER], HEADER),
        ([WEATHER, PING], "<|channel|>commentary to=functions"),
        ([EXEC], "<|channel|>analysis to=container.exec code<|message|>"),
        ([EXEC, OPEN], "<|channel|>analysis to=container"),
        ([EXEC, PING], "<|channel|>commentary to="),
    ],
)
def test_the_header_of_a_call_as_far_as_it_is_known(tools, header):
    assert sent(tools=tools, tool_choice="required", options={"prefill": "call"}).prefill == header


@pytest.mark.parametrize(
    ("prefill", "choice", "begins", "words"),
    [
        ("none", "required", "", True),
        ("none", "auto", "", False),
        ("call", "auto", "", False),
        ("channel", "auto", "<|channel|>analysis", False),
        ("thought", "required", "<|channel|>analysis<|message|>", True),
    ],
)
def test_how_a_reply_begins_may_be_said(prefill, choice, begins, words):
    for feedback in ((), REFUSED):
        ask = asked(tools=[WEATHER, PING], tool_choice=choice, options={"prefill": prefill}).with_feedback(feedback)
        upstream = prepare_harmony(ask)
        assert upstream.prefill == begins
        assert upstream.prompt.content.endswith("<|start|>assistant" + begins)
        assert ("do not answer in plain text" in upstream.prompt.content) is words


def test_without_a_tool_that_can_be_told_no_call_is_demanded():
    upstream = sent(tools=[{"type": "web_search"}], tool_choice="required")
    assert "Call one" not in upstream.prompt.content
    assert sent(tools=[{"type": "web_search"}], tool_choice="required", options={"prefill": "call"}).prefill == ""


# --- the prompt


def encode(said):
    return [ord(each) for each in said]


LETTERS = TokenCodec(encode, lambda token: chr(token).encode())


@pytest.mark.parametrize("prefill", ["none", "thought", "channel"])
def test_token_ids_where_the_server_takes_them_and_there_is_a_vocabulary(prefill):
    ask = asked([{"role": "user", "content": "a<|end|>b"}], replace(PROFILE, raw_ids=True), {"prefill": prefill})
    ask = replace(ask, vocabulary=lambda: LETTERS)
    upstream = prepare_harmony(ask)
    begins = {"none": [], "thought": [TOKEN_IDS["channel"], *encode("analysis"), TOKEN_IDS["message"]]}
    begins["channel"] = begins["thought"][:-1]
    tail = (
        TOKEN_IDS["message"],
        *encode("a<|end|>b"),
        TOKEN_IDS["end"],
        TOKEN_IDS["start"],
        *encode("assistant"),
        *begins[prefill],
    )
    assert upstream.prompt.content[-len(tail) :] == tail
    assert upstream.prompt.max_tokens == 131_072 - len(upstream.prompt.content)


def test_text_where_there_is_none_or_the_server_takes_none():
    for profile, vocabulary in (
        (replace(PROFILE, raw_ids=True), None),
        (replace(PROFILE, raw_ids=True), lambda: None),
        (PROFILE, lambda: LETTERS),
    ):
        prompt = prepare_harmony(replace(asked(profile=profile), vocabulary=vocabulary)).prompt
        assert isinstance(prompt.content, str)
        assert prompt.decode is None


@pytest.mark.parametrize(("stop", "asked_for"), [(None, True), ("END", False), (["END"], False)])
def test_the_reply_s_ids_are_asked_for_where_the_text_does_not_end_before_them(stop, asked_for):
    ask = replace(asked(profile=replace(PROFILE, raw_ids=True), stop=stop), vocabulary=lambda: LETTERS)
    assert (prepare_harmony(ask).prompt.decode is not None) == asked_for


def test_what_is_left_of_the_context():
    upstream = sent()
    assert upstream.prompt.max_tokens == 131_072 - len(upstream.prompt.content) // 2
    long = [{"role": "user", "content": "ö\ud800" * 60_000}]
    assert sent(long).prompt.max_tokens == MIN_ANSWER_TOKENS
    assert sent(profile=replace(PROFILE, context=None)).prompt.max_tokens == MIN_ANSWER_TOKENS
    assert prepare_harmony(replace(asked(long), tokens_left=77)).prompt.max_tokens == 77


# --- parameters


def test_sampling_is_as_the_makers_advise_unless_the_request_says():
    full = replace(PROFILE, sampling=frozenset(("top_k", "min_p")))
    assert {key: sent(profile=full).body[key] for key in RECOMMENDED_SAMPLING} == RECOMMENDED_SAMPLING
    assert "top_k" not in sent().body
    assert (
        sent(profile=full, top_k=5, temperature=0, top_p=None).body.items()
        >= {
            "top_k": 5,
            "temperature": 0,
            "top_p": 1,
        }.items()
    )


def test_what_the_server_does_not_heed_is_not_sent():
    assert "n" not in sent(profile=replace(PROFILE, n=False), n=2).body
    assert sent(n=2).body["n"] == 2
    assert sent(stream=True).body["stream_options"] == {"include_usage": True}


def test_a_conversation_that_cannot_be_told():
    with pytest.raises(UsageError, match="role 'critic'"):
        sent([{"role": "critic", "content": "x"}])


PYTHON = {"type": "function", "function": {
    "name": "python", "description": "Runs code.", "x-promptools": {"free_text": "code"},
    "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}}  # fmt: skip


def ran(code):
    call = {"id": "c1", "function": {"name": "python", "arguments": json.dumps({"code": code})}}
    return [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "1"}]


def test_a_tool_that_takes_free_text():
    prompt = text(ran('print("<|end|>")'), tools=[PYTHON, WEATHER])
    assert "## python\n\nRuns code.<|end|>" in prompt
    assert 'assistant to=python<|channel|>analysis code<|message|>print("<\\|end|>")<|call|>' in prompt
    assert "<|start|>python to=assistant<|channel|>analysis<|message|>1<|end|>" in prompt


def test_a_required_call_of_one_begins_with_its_header():
    named = {"type": "function", "function": {"name": "python"}}
    keys = {"tools": [PYTHON, WEATHER], "tool_choice": named, "options": {"prefill": "call"}}
    assert sent(**keys).prefill == "<|channel|>analysis to=python code<|message|>"
    assert "Call the tool python now" in text(**keys | {"options": {}})
