"""What the contract suite feeds: text made of markers, of calls, of anything; and where it is cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from promptools import dialects
from promptools.dialects.sample import sample_text

STEADY = settings(deadline=None, max_examples=150, derandomize=True)
"""The same examples on every run: a red test is a change of ours, not of the dice."""

MARKERS = [
    "<tool_call>", "</tool_call>", "<tool_call", "<tool_calls>", "</tool_calls>", "<tools>", "</tools>", "<tool>",
    "</tool>", "<function_call>", "</function_call>", "<|tool_call|>", "<TOOLCALL>", "</TOOLCALL>",
    "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<tool_response>", "</tool_response>", "<think>", "</think>", "[THINK]",
    "[/THINK]", "<thinking>", "</thinking>", "<|im_end|>", "<|eot_id|>", "</s>", "<|python_tag|>", "```", "```json",
    "```json\n", "\n```\n", "~~~", "`", "``", "{", "}", "[", "]", "{{", "}}", '"', "'", "\\", ",", ":", ";", "\n",
    "\r\n", " ", "“", "”", "//", "/*", "*/", "#", '"name"', '"tool"', '"arguments"', '"parameters"',
    '"name": "ping"', '"arguments": {}', "'name': 'ping'", "get_weather", "ping", '{"name": "',
    '{"tool": "ping", "arguments": {', '{"name": "get_weather", "arguments": {"city": "', "Oslo", "true", "null",
    "NaN", "1", "-", ".", "1e999", "\\n", "\\u00", "\\ud83d", "\ud83d", "\x00", "\u200b", "\ufeff", "é", "日本", "😀",
    "Action:", "prose ", "Observation:", "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>",
    "<|call|>", "<|return|>", "<|start|>assistant", "assistant", "analysis", "commentary", "final", "to=functions.",
    " to=functions.ping", "json", "user", "system",
    "name: x\n", "<", ">", "/>", "=", "(", ")", "call:", "\n\n",
]  # fmt: skip

_ALL = [dialects.get(name) for name in dialects.names()]
MARKERS += sorted(
    {
        mark
        for dialect in _ALL
        for mark in (*dialect.closers, *(text for head in dialect.heads for text in head.literals))
    }
)

CALLS = [
    '{"name": "ping", "arguments": {}}',
    '{"tool": "get_weather", "arguments": {"city": "Oslo"}}',
    "{'name': 'add', 'parameters': {'a': 1, 'b': 2,}}",
    '<tool_call>{"name": "ping", "arguments": {}}</tool_call>',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": "2"}}\n',
    '```json\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n```',
    '[{"name": "ping", "arguments": {}}, {"name": "ping", "arguments": {}}]',
    '{"name": "nope", "arguments": {}}',
    '{"name": "get_weather", "arguments": {}}',
    "<think>hm</think>",
    "Some words. ",
    "<|channel|>analysis<|message|>hm<|end|>",
    "<|start|>assistant<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>",
    "<|channel|>final<|message|>Well.<|return|>",
    'assistantcommentary to=functions.get_weather json{"city": "Oslo"}',
    "assistantfinalWell.",
    "analysisHm.",
    *(sample_text(each) for each in _ALL),
]

noise = st.lists(st.sampled_from(MARKERS), max_size=24).map("".join)
said = st.lists(st.one_of(st.sampled_from(CALLS), st.sampled_from(MARKERS)), max_size=8).map("".join)
anything = st.text(max_size=60)
texts = st.one_of(noise, said, anything)

options = st.fixed_dictionaries(
    {},
    optional={
        "strictness": st.sampled_from(["strict", "balanced", "lenient"]),
        "expect": st.sampled_from(dialects.names()),
        "dialect": st.sampled_from(dialects.names()),
        "rescue": st.booleans(),
        "in_reasoning": st.booleans(),
        "json_answer": st.booleans(),
    },
)
offered = st.sampled_from(["demo", "all", "none", "empty", "agent"])
reasons = st.sampled_from([None, "stop", "length", "tool_calls"])


def pieces(text: str) -> st.SearchStrategy[list[str]]:
    """Cut `text` anywhere, into empty pieces too."""
    places = st.lists(st.integers(0, len(text)), max_size=6).map(sorted)
    return places.map(lambda at: [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)])


spoilings = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.sampled_from(["", *MARKERS])),
    min_size=1,
    max_size=3,
)
"""Where (as a part of the whole), how many characters are lost there, and what stands there instead."""


def spoiled(text: str, spoiling: list[tuple[float, int, str]]) -> str:
    """Lose characters of `text` and put others in their place."""
    for where, lost, instead in spoiling:
        at = int(where * len(text))
        text = text[:at] + instead + text[at + lost :]
    return text


words = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.sampled_from([marker for marker in MARKERS if marker != "\ud83d"]), max_size=5).map("".join),
    st.sampled_from(CALLS),
)
"""What an argument may say: anything, markers of every dialect, and whole calls, the dialect's own among them."""
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Compare as JSON does, so that True is not 1 and 1.0 is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
