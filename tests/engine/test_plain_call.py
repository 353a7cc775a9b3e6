"""The short way for a plain call takes what the engine would read alike, or nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from casebook import SETS, feed

from promptools import Tools, dialects, parse
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.reply_markers import reply_markers
from promptools.dialects.sample import sample_text
from promptools.engine.plain_call import PlainCall, find_plain_call
from promptools.engine.scan_plan import default_plan
from promptools.jsontext.brackets import MAX_DEPTH
from promptools.jsontext.strict import FEW_KEYS, MAX_HOOKED_LENGTH

TOOLS = Tools(SETS["demo"] or [])
OSLO = '{"tool": "get_weather", "arguments": {"city": "Oslo"}}'
NAMED = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'


def plain_call(text: str, tools: Tools = TOOLS, expect: str | None = None) -> PlainCall | None:
    """Return the call that is taken at once."""
    options = ParseOptions(tools, "balanced", expect, json_answer=False, anchors=tools.all_keys)
    return find_plain_call(options, default_plan(expect), text)


def taken(text: str, expect: str | None = None, reason: str | None = None) -> PlainCall | None:
    """Return the call that is taken at once, and check that the engine gives the same reply, its trace too."""
    _, reply = feed([text], TOOLS, reason, expect=expect)
    assert parse(text, TOOLS, expect=expect, finish_reason=reason) == reply
    call = plain_call(text, expect=expect)
    assert call is None or [(call.name, call.arguments)] == [(each.name, each.arguments) for each in reply.calls]
    return call


@pytest.mark.parametrize("expect", [None, "json", "hermes"])
@pytest.mark.parametrize("reason", [None, "stop", "length"])
@pytest.mark.parametrize(
    "text",
    [
        OSLO,
        NAMED,
        f"\n {OSLO} \n",
        f"I will look.\n\n{OSLO}",
        f"Let me see: {NAMED}\n",
        f"```json\n{OSLO}\n```",
        f"```\n{OSLO}\n```\n",
        f"I will look (it won't take long).\n\n```json\n{NAMED}\n```",
        f"<tool_call>\n{NAMED}\n</tool_call>",
        f"<tool_call>{NAMED}</tool_call>\n",
        f"\n\nI'll ask.\n<tool_call>\n{OSLO}\n</tool_call>",
        '{ "tool" : "ping" , "arguments" : {} }',
        '{"tool": "get_weather", "arguments": {"city": "\\u00d8 \\"x\\" } ] ``` </tool_call> <think>"}}',
        '日本語で。\n{"name": "get_weather", "arguments": {"city": "大阪 😀"}}',
    ],
)
def test_what_is_taken(text: str, expect: str | None, reason: str | None) -> None:
    assert taken(text, expect, reason) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello.",
        "{",
        f"> {OSLO}",
        f"> ```json\n{OSLO}\n```",
        f"You said:\n> <tool_call>{NAMED}</tool_call>",
        f"`{OSLO}`",
        f"{OSLO} is what I would say.",
        f"{OSLO}\n{OSLO}",
        f'"call": {OSLO}',
        f"x = {OSLO}",
        f"call({OSLO}",
        f"{{}} {OSLO}",
        f"<think>{OSLO}",
        f"<think>Hm.</think>{OSLO}",
        f"Hm.</think>{OSLO}",
        f"<think>Hm.</think>\n```json\n{OSLO}\n```",
        f"````json\n{OSLO}\n````",
        f"```json\n{OSLO}\n```\nDone.",
        f"```python\n{OSLO}\n```",
        f"```json\n{OSLO}",
        f"<tool_call>\n{NAMED}",
        f"<tool_call>\n{NAMED}\n</tool_call>\n<tool_call>\n{NAMED}\n</tool_call>",
        f"<|channel|>analysis<|message|>Hm.<|end|>{OSLO}",
        f"Thought: I look.\nAction: ping\nAction Input: {OSLO}",
        f"ping\n{OSLO}",
        f"functions.ping\n{OSLO}",
        f"{OSLO}}}",
        f"{OSLO[:-1]}",
        f"[{OSLO}]",
        OSLO.replace('"', "'"),
        OSLO.replace('"}}', '",}}'),
        OSLO.replace("get_weather", "getWeather"),
        OSLO.replace("get_weather", "fly"),
        OSLO.replace('"city"', '"town"'),
        OSLO.replace('"Oslo"', "5"),
        OSLO.replace('"Oslo"', '"Oslo", "city": "Bergen"'),
        OSLO.replace('"Oslo"', '"Os\nlo"'),
        OSLO.replace('{"city": "Oslo"}', "{}"),
        OSLO.replace('{"city": "Oslo"}', '"{}"'),
        OSLO.replace('"}}', '"}, "id": 1}'),
        f"{' ' * 5_000}{OSLO}",
        f"x{' ' * 5_000}{OSLO}",
    ],
)
def test_what_is_left_to_the_other_states(text: str) -> None:
    assert taken(text) is None


def test_many_objects_are_left_to_the_engine() -> None:
    """They take so long to read that little would be saved, and to read them twice would cost much."""
    rows = [{"a": number} for number in range(MAX_HOOKED_LENGTH)]
    tools = Tools([{"name": "add_rows", "parameters": {"type": "object", "properties": {"rows": {"type": "array"}}}}])
    for count, goes in ((FEW_KEYS - 2, True), (MAX_HOOKED_LENGTH, False)):
        text = json.dumps({"tool": "add_rows", "arguments": {"rows": rows[:count]}})
        assert (plain_call(text, tools) is not None) == goes
        assert parse(text, tools) == feed([text], tools)[1]


def test_depth_is_limited_as_ever() -> None:
    tools = Tools([{"name": "tree", "parameters": {"type": "object", "properties": {"leaf": {}}}}])
    went = 0
    for levels in range(MAX_DEPTH - 10, MAX_DEPTH + 10):
        text = f'{{"tool": "tree", "arguments": {{"leaf": {"[" * levels}{"]" * levels}}}}}'
        assert parse(text, tools) == feed([text], tools)[1]
        went += plain_call(text, tools) is not None
    assert 0 < went < 20


WORDS = [
    "I will look. ",
    "One moment:\n",
    "\n",
    "\n\n",
    " ",
    "(now) ",
    "It's 5 o'clock. ",
    "analysis ",
    "ping ",
    "日本 ",
]
DIALECTS = [dialects.get(name) for name in dialects.names()]
KNOWN = reply_markers()
MARKERS = [
    "```", "```json", "```json\n", "\n```\n", "~~~", "`", "``", "{", "}", "[", "]", "{{", "}}", '"', "'", "\\", ",",
    ":", "\n", "\r\n", "\n\n", " ", "“", "”", "//", "/*", "#", '"name"', '"arguments"', '"name": "ping"',
    "'name': 'ping'", "get_weather", "ping", '{"name": "', '{"tool": "ping", "arguments": {', "Oslo", "true", "null",
    "NaN", "1", "-", ".", "1e999", "\\n", "\\u00", "\ud83d", "\x00", "\u200b", "\ufeff", "é", "日本", "😀", "Action:",
    "prose ", "<|start|>", "<|channel|>", "<|message|>", "assistant", "analysis", "commentary", "final",
    "to=functions.", " to=functions.ping", "json", "user", "system", "name: x\n", "<", ">", "/>", "=", "(", ")",
    "call:",
    *KNOWN.reasoning_tags,
    *KNOWN.lone_closers,
    *KNOWN.answer_tags,
    *KNOWN.result_openers,
    *KNOWN.end_tokens,
    *(mark for each in DIALECTS for mark in (*each.closers, *(text for head in each.heads for text in head.literals))),
]  # fmt: skip
CALLS = [*map(sample_text, DIALECTS), "<think>Hm.</think>", "Some words. "]
ENVELOPES = [OSLO, NAMED, '{"name": "ping", "arguments": {}}', '{"tool": "add", "arguments": {"a": 1, "b": 2.50}}']
AROUND = [("", ""), ("```json\n", "\n```"), ("```\n", "\n```"), ("<tool_call>\n", "\n</tool_call>"), ("```json\n", "")]


def test_texts_of_all_kinds(share: Callable[[Iterable[int]], list[int]]) -> None:
    """Plain replies, and such with something strange in one place of them."""
    dice = random.Random(20)
    went = 0
    rounds = share(range(6_000))
    for _ in rounds:
        opener, closer = dice.choice(AROUND)
        pieces = [*dice.choices(WORDS, k=dice.randrange(4)), opener, dice.choice(ENVELOPES), closer]
        pieces += dice.choice([[], [], ["\n"], [" \n"], ["Done."]])
        if dice.random() < 0.5:
            pieces.insert(dice.randrange(len(pieces) + 1), dice.choice([*MARKERS, *CALLS]))
        text = "".join(pieces)
        if dice.random() < 0.25:
            at = dice.randrange(len(text))
            text = text[:at] + dice.choice(["", *MARKERS]) + text[at + dice.randrange(3) :]
        went += taken(text, dice.choice([None, "json", "hermes"]), dice.choice([None, "length"])) is not None
    assert went > len(rounds) / 6


@pytest.mark.parametrize("text", [OSLO, f"```json\n{OSLO}\n```", f"<tool_call>\n{NAMED}\n</tool_call>"])
@pytest.mark.parametrize(
    "options",
    [
        *({"dialect": name} for name in ("json", "hermes", "glm")),
        *({"expect": name} for name in ("glm", "exaone", "qwen3_coder")),
        *({"strictness": name} for name in ("strict", "lenient")),
        {"accept": ["glm"]},
        {"in_reasoning": True},
        {"json_answer": True},
        {"rescue": True},
        {"sources": [f"<tool_call>{NAMED}</tool_call> {OSLO}"]},
        {"new_id": lambda: "a1"},
    ],
)
def test_with_every_option(text: str, options: dict[str, Any]) -> None:
    assert parse(text, TOOLS, **options) == feed([text], TOOLS, **options)[1]
