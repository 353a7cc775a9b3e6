"""How a required call begins in raw mode where no dialect is known: by calls that the template itself has rendered."""

from dataclasses import replace

import pytest

from promptools.modes.prepared_request import PreparedRequest
from promptools.modes.raw_mode import beginning_in_examples, beginning_of_call, example_calls
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.wire.chat_template import RenderedPrompt

TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "get_time"}}
USER = {"role": "user", "content": "What time is it?"}
PROMPT = "[INST]What time is it?[/INST]"
THINKING = f"{PROMPT}<think>\n"
CONVERSATION = PreparedRequest({"messages": [USER], "tools": [TOOL]})


def request_of(choice, family="mistral"):
    body = {"model": "m", "messages": [USER], "tools": [TOOL], "tool_choice": choice}
    return parse_request(body, Profile(family=family))


def rendered(*texts):
    return [RenderedPrompt(text, text) for text in texts]


def examples(name_a, name_b, prompt=PROMPT):
    return rendered(
        f'{prompt}[TOOL_CALLS][{{"name": "{name_a}", "arguments": {{}}}}]</s>[TOOL_RESULTS]ok',
        f'{prompt}[TOOL_CALLS][{{"name": "{name_b}", "arguments": {{"q": "x"}}}}]</s>[TOOL_RESULTS]ok',
    )


@pytest.mark.parametrize("family", ["mistral", "deepseek", None])
def test_where_the_own_format_is_not_certain_the_template_is_asked(family):
    assert beginning_of_call(request_of("required", family), CONVERSATION, *rendered(PROMPT)) is None


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_where_no_call_is_required_none_is_begun(choice):
    assert beginning_of_call(request_of(choice), CONVERSATION, *rendered(PROMPT)) == ""


def test_in_open_reasoning_none_is_begun_at_first():
    assert beginning_of_call(request_of("required"), CONVERSATION, *rendered(THINKING)) == ""


def test_the_examples_have_a_call_and_its_result_after_the_conversation():
    first, second = example_calls(request_of(NAMED), CONVERSATION)
    for body in (first, second):
        user, call, result = body["messages"]
        assert (user, body["tools"]) == (USER, [TOOL])
        assert call["tool_calls"][0]["function"]["name"] == "get_time"
        assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert first["messages"][1] != second["messages"][1]


def test_a_call_of_any_tool_is_begun_up_to_its_name():
    head = beginning_in_examples(request_of("required"), *rendered(PROMPT), examples("a", "b"))
    assert head == '[TOOL_CALLS][{"name": "'


def test_a_call_of_a_named_tool_is_begun_up_to_its_arguments():
    head = beginning_in_examples(request_of(NAMED), *rendered(PROMPT), examples("get_time", "get_time"))
    assert head == '[TOOL_CALLS][{"name": "get_time", "arguments":'


def test_reasoning_that_the_examples_do_not_have_is_closed():
    head = beginning_in_examples(request_of("required"), *rendered(THINKING), examples("a", "b"))
    assert head == '\n</think>\n\n[TOOL_CALLS][{"name": "'


def test_reasoning_is_closed_as_the_examples_close_it():
    closed = examples("a", "b", prompt=f"{THINKING}</think>")
    assert (
        beginning_in_examples(request_of("required"), *rendered(THINKING), closed) == '</think>[TOOL_CALLS][{"name": "'
    )


def test_examples_that_do_not_continue_the_prompt_teach_nothing():
    assert beginning_in_examples(request_of("required"), *rendered("something else"), examples("a", "b")) == ""


@pytest.mark.parametrize("family", ["hermes", "mistral"])
def test_a_renamed_tool_is_begun_by_the_name_that_the_template_shows(family):
    request = request_of(NAMED, family)
    renamed = replace(CONVERSATION, client_names={"get_time_1": "get_time"})
    if family == "hermes":
        assert (
            beginning_of_call(request, renamed, *rendered(PROMPT)) == '<tool_call>\n{"name": "get_time_1", "arguments":'
        )
    else:
        (_, call, _) = example_calls(request, renamed)[0]["messages"]
        assert call["tool_calls"][0]["function"]["name"] == "get_time_1"
