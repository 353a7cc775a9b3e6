"""What a dialect writes, the parser reads: `parse(render(calls)) == calls`, for any arguments, in every dialect."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from casebook import bare, feed
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import STEADY, same, values, words

from promptools import dialects, parse
from promptools.types import Call, Result

EACH = settings(STEADY, max_examples=10)
"""For each of some sixty dialects."""

TOOLS: list[dict[str, Any]] = [
    {"name": "free", "description": "Takes anything", "parameters": {"type": "object"}},
    {
        "name": "typed",
        "description": "Takes a text",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
    {
        "name": "declared",
        "description": "Takes one of each",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "flag": {"type": "boolean"},
                "rows": {"type": "array"},
                "opts": {"type": "object"},
            },
        },
    },
]
ENVELOPE = {
    "name", "tool", "tool_name", "function", "function_name", "action", "command", "recipient_name", "toolName",
    "arguments", "parameters", "args", "input", "action_input", "params", "kwargs", "tool_input", "parameter",
    "toolInput", "inputs",
}  # fmt: skip
plain_keys = words.filter(lambda key: key not in ENVELOPE)
"""Arguments that are themselves an envelope are taken for a call inside a call; nobody can tell them apart."""

free = st.builds(lambda arguments: ("free", arguments), st.dictionaries(plain_keys, values, max_size=4))
typed = st.builds(lambda text: ("typed", {"text": text}), words)
declared = st.builds(
    lambda arguments: ("declared", arguments),
    st.fixed_dictionaries(
        {},
        optional={
            "text": words,
            "count": st.integers(),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.booleans(),
            "rows": st.lists(values, max_size=3),
            "opts": st.dictionaries(words, values, max_size=3),
        },
    ),
)
TYPED = [name for name in dialects.names() if dialects.get(name).typed]
some_calls = st.lists(st.one_of(free, typed), min_size=1, max_size=3)
declared_calls = st.lists(st.one_of(declared, typed), min_size=1, max_size=3)


def made(said: list[tuple[str, dict[str, Any]]]) -> list[Call]:
    return [
        Call(id=f"c{at}", name=name, arguments=arguments, arguments_json=json.dumps(arguments, ensure_ascii=False))
        for at, (name, arguments) in enumerate(said)
    ]


@pytest.mark.parametrize("name", TYPED)
@EACH
@given(said=some_calls)
def test_rendered_calls_are_read_back_without_a_schema(name: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    read_back(name, said)


@pytest.mark.parametrize("name", TYPED)
def test_a_key_may_be_a_long_text(name: str) -> None:
    read_back(name, [("free", {'a "long" <key> & ' * 40: 1})])


@pytest.mark.parametrize("name", dialects.names())
@EACH
@given(said=declared_calls)
def test_rendered_calls_are_read_back(name: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    read_back(name, said)


def read_back(name: str, said: list[tuple[str, dict[str, Any]]]) -> None:
    text = dialects.get(name).render_calls(made(said))
    reply = parse(text, TOOLS, expect=name)
    assert [call.name for call in reply.calls] == [name for name, _ in said]
    for call, (_, arguments) in zip(reply.calls, said, strict=True):
        assert same(call.arguments, arguments)
        assert call.fixes == ()
        assert call.dialect == name
    assert reply.content == ""
    assert reply.malformed == ()
    _, pieced = feed([text[at : at + 5] for at in range(0, len(text), 5)], TOOLS, expect=name)
    assert bare(pieced) == bare(reply)


@pytest.mark.parametrize("name", dialects.names())
def test_rendered_calls_stand_between_words(name: str) -> None:
    text = dialects.get(name).render_calls(made([("declared", {"count": 1})]))
    reply = parse(f"Before.\n{text}\nAfter.", TOOLS, expect=name)
    assert [(call.name, call.arguments) for call in reply.calls] == [("declared", {"count": 1})]
    assert reply.content.split() == ["Before.", "After."]


APART = {"kimi_k2", "solar"}
"""Dialects whose example begins a line and calls nothing, as a placeholder is no name: only its tokens are lost."""


@pytest.mark.parametrize("name", dialects.names())
def test_rendered_tools_are_not_a_call(name: str) -> None:
    """A model that echoes its instructions calls nothing."""
    from promptools import Tools

    text = dialects.get(name).render_tools(Tools(TOOLS))
    assert "free" in text
    assert "Takes a text" in text
    reply = parse(text, TOOLS)
    assert (reply.calls, reply.malformed) == ((), ())
    if name in APART:
        text = re.sub(r"<\|tool_call[^|]*\|>", "", text)
    assert reply.content == text


@pytest.mark.parametrize("name", dialects.names())
def test_rendered_results_are_not_a_call(name: str) -> None:
    call = '{"name": "free", "arguments": {"a": 1}}'
    text = dialects.get(name).render_results(
        [Result(call_id="c1", name="free", content=call), Result(call_id="c2", name="typed", content="ok")]
    )
    assert call in text
    assert "ok" in text
