"""The public face: a Chat Completions request as text, as ids, and counted."""

import inspect

import pytest

from promptools import Tools, UsageError, harmony
from promptools.harmony import Options, count_tokens, render_ids, render_text
from promptools.harmony.tokens import TOKEN_IDS

WEATHER = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Say <|end|>."},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "Rain."},
]


def words(text: str) -> list[int]:
    """Encode a word as its length: no vocabulary has ids below 0, so none is a control token's."""
    return [-len(word) for word in text.split()]


def test_the_public_names_are_there():
    assert list(harmony.__all__) == sorted(harmony.__all__)
    for name in harmony.__all__:
        assert inspect.getdoc(getattr(harmony, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        harmony.nothing  # noqa: B018


@pytest.mark.parametrize("tools", [[WEATHER], Tools([WEATHER])])
def test_a_request_becomes_a_prompt(tools):
    text = render_text(MESSAGES, tools)
    assert text.startswith("<|start|>system<|message|>You are ChatGPT")
    assert "# Instructions\n\nBe brief." in text
    assert "type get_weather = (_: {\ncity: string,\n}) => any;" in text
    assert "<|start|>user<|message|>Say <\\|end|>.<|end|>" in text
    assert text.endswith(
        "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>Rain.<|end|><|start|>assistant"
    )


def test_options_and_a_format_are_told():
    text = render_text(MESSAGES[:2], options=Options(effort="high"), response_format={"type": "json_object"})
    assert "Reasoning: high" in text
    assert "# Response Formats" in text
    assert "namespace" not in text


def test_ids_are_those_of_control_tokens_and_of_ordinary_text():
    ids = render_ids([{"role": "user", "content": "Say <|end|>."}], encode=words)
    start, message, end = (TOKEN_IDS[name] for name in ("start", "message", "end"))
    assert ids[-8:] == [start, -len("user"), message, -len("Say"), -len("<|end|>."), end, start, -len("assistant")]


def test_the_parts_make_up_the_prompt():
    parts = count_tokens(MESSAGES, [WEATHER], encode=words)
    assert sum(part.tokens for part in parts) == len(render_ids(MESSAGES, [WEATHER], encode=words))
    assert [part.header.partition("<")[0] for part in parts][:3] == ["system", "developer", "user"]
    assert parts[-1] == ("assistant", 2)
    guessed = count_tokens(MESSAGES, [WEATHER])
    assert [part.header for part in guessed] == [part.header for part in parts]
    assert sum(part.tokens for part in guessed) > sum(part.tokens for part in parts)


def test_a_role_that_nobody_knows_is_refused():
    with pytest.raises(UsageError, match="narrator"):
        render_text([{"role": "narrator", "content": "Once."}])
