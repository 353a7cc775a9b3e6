"""A call is a call however many markers before it began none, of its own kind or of others."""

from __future__ import annotations

import pytest
from casebook import feed, tiled

from promptools import dialects, parse
from promptools.dialects.sample import CALL, TOOL, sample_text
from promptools.types import Reply

pytestmark = pytest.mark.exhaustive

OTHERS = [
    ("qwen3_coder", "<function= \n"),
    ("qwen3_coder", "<tool_call>\n<function=>\n"),
    ("functionary", ">>>get_weather\nno body\n"),
    ("kimi_k2", "<|tool_call_begin|>functions.get_weather:0<nothing>"),
    ("tool_code", "```tool_code is a marker?\n"),
]
"""Beginnings that are more than a marker in a sentence."""


def failing() -> list[tuple[str, str]]:
    """Return what begins no call: each marker of each dialect, in a sentence, or else the first word of its call."""
    found: list[tuple[str, str]] = []
    for name in dialects.names():
        dialect = dialects.get(name)
        literals = dict.fromkeys(text for head in dialect.heads for text in head.literals)
        first = sample_text(dialect).split(maxsplit=1)[0][:12]
        found += [(name, f"{text}? A marker.\n") for text in literals or (first,)]
    return [*found, *OTHERS]


def read(name: str, unit: str, count: int, step: int | None) -> Reply:
    """Read a call after `count` units that begin none."""
    text = unit * count + "\n" + sample_text(dialects.get(name))
    step = step or len(text)
    events, reply = feed([text[at : at + step] for at in range(0, len(text), step)], [TOOL], expect=name)
    tiled(events, text)
    return reply


def assert_called(name: str, unit: str, count: int, step: int | None) -> None:
    reply = read(name, unit, count, step)
    assert [(call.name, call.arguments) for call in reply.calls] == [(CALL.name, CALL.arguments)]
    assert reply.malformed == ()


UNITS = failing()
FIRSTS = list(dict(reversed(UNITS)).items())
"""One for each dialect."""


@pytest.mark.parametrize("step", [None, 7], ids=["whole", "in pieces"])
@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_a_call_after_65_failed_markers_of_its_own(name: str, unit: str, step: int | None) -> None:
    assert_called(name, unit, 65, step)


@pytest.mark.parametrize("step", [None, 50], ids=["whole", "in pieces"])
@pytest.mark.parametrize(("name", "unit"), FIRSTS)
def test_a_call_after_1000(name: str, unit: str, step: int | None) -> None:
    assert_called(name, unit, 1_000, step)


@pytest.mark.parametrize("step", [None, 1_000], ids=["whole", "in pieces"])
@pytest.mark.parametrize(("name", "unit"), [*FIRSTS[::12], *OTHERS[:3]])
def test_a_call_after_4000(name: str, unit: str, step: int | None) -> None:
    assert_called(name, unit, 4_000, step)


def test_a_call_after_failed_markers_of_many_dialects() -> None:
    heads = [
        *("<function= \n", "<|tool_call>no\n", "<|tool_calls_section_begin|>no {\n", "<tool_call>\n<function=>\n"),
        *("<seed:tool_call>no\n", "<minimax:tool_call>no\n", "<|tool_call_start|>no\n", "<|START_ACTION|>no\n"),
        *("<｜DSML｜function_calls>no\n", "<|tool_call|>no\n", "<|tools_prefix|>no\n", "[TOOL_CALLS]no\n"),
    ]
    text = "".join(head * 65 for head in heads)
    reply = parse(text + sample_text(dialects.get("hermes")), [TOOL])
    assert [call.dialect for call in reply.calls] == ["hermes"]
    lone = [each.raw for each in reply.discarded if each.span.end <= len(text)]
    kept = (reply.content, *lone, *(each.raw for each in reply.malformed))
    assert sorted("".join(text.split())) == sorted("".join("".join(kept).split()))


@pytest.mark.parametrize("before", ["<think>", "<think>Hm.</think>"], ids=["in a zone", "after a zone"])
def test_failed_markers_and_reasoning(before: str) -> None:
    text = f"{before}{'<function= ' * 1_000}\n{sample_text(dialects.get('qwen3_coder'))}"
    _, reply = feed([text], [TOOL])
    assert [call.name for call in reply.calls] == [CALL.name]


def test_a_marker_that_is_held_until_more_text_comes_begins_the_call() -> None:
    text = f'<tool_calls>{"x" * 128}\n<tool_calls>{{"name": "get_weather", "arguments": {{"city": "a"}}}}</tool_calls>'
    _, reply = feed(list(text), [TOOL], expect="minimax_m1")
    assert [call.dialect for call in reply.calls] == ["minimax_m1"]
    assert [each.outcome for each in reply.trace.tries] == ["call"]


def test_lone_openers_beside_calls_are_none_of_the_words_however_many() -> None:
    section = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "a"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    _, reply = feed([section * 66], [TOOL])
    assert len(reply.calls) == 66
    assert reply.content == ""
