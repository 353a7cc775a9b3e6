"""Work grows with the text and no faster: counted in characters looked at and in functions called, not timed."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import pytest
from casebook import SETS, feed
from clock import assert_linear, seconds
from counted import functions_called

from promptools import StreamParser, Tools, dialects, parse
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.tags import CLOSER_AND_TAG_LIMIT, TagNames
from promptools.types import Call

HOSTILE = {
    "braces": "{",
    "brackets": "[",
    "angles": "<",
    "backticks": "`",
    "quotes": '"',
    "single quotes": "'",
    "openers": "<tool_call>",
    "closers": "</tool_call>",
    "thinking": "<think>",
    "thought": "</think>",
    "fences": "```json\n",
    "call heads": '{"name": "ping", "arguments": {',
    "nested calls": '{"name": "get_weather", "arguments": ',
    "whole calls": '{"name": "ping", "arguments": {}}\n',
    "calls and prose": '{"name": "ping", "arguments": {}} and ',
    "opened calls": '<tool_call>{"name": "ping", "arguments": {}}\n',
    "broken calls": "{'name': 'ping', 'arguments': {},},\n",
    "data": '{"id": 1, "name": "Bo"}\n',
    "escapes": '{"name": "write_file", "arguments": {"content": "\\\\\\"',
    "spaces": " ",
    "lines": "\n",
    "doubled braces": "{{",
    "inner quotes": '{"name": "write_file", "arguments": {"content": "say "hi" ',
    "comments": "/* ",
    "inline code": "`{` ",
    "starts": "<|start|>",
    "speakers": "<|start|>assistant ",
    "channels": "<|channel|>",
    "thoughts in Harmony": "<|channel|>analysis<|message|>",
    "messages": "<|start|>assistant<|channel|>final<|message|>x<|end|>",
    "calls without their tokens": "assistantcommentary to=",
    "turns without their tokens": "assistantfinal",
    "recipients": "to=functions.f ",
}
SMALL, LARGE = 2_000, 12_000
FEW, MANY = 1_000, 4_000
"""Where functions are counted, which takes four times as long as what they do."""


def cost(text: str, step: int | None, **options: Any) -> int:
    """Count the characters that every strategy looked at."""
    cut = [text] if step is None else [text[at : at + step] for at in range(0, len(text), step)]
    _, reply = feed(cut, SETS["demo"], **options)
    return sum(attempt.cost for attempt in reply.trace.tries)


def interpreted(text: str, step: int | None, **options: Any) -> int:
    """Count the functions called, ours and the interpreter's, while a text is parsed."""
    cut = [text] if step is None else [text[at : at + step] for at in range(0, len(text), step)]
    return functions_called(lambda: feed(cut, SETS["demo"], **options))


def grown(unit: str, size: int) -> str:
    """Give whole units only, so that a text of any size ends alike."""
    return unit * (size // len(unit))


@pytest.mark.parametrize("step", [None, 4], ids=["whole", "in pieces"])
@pytest.mark.parametrize("strictness", ["balanced", "lenient"])
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_characters_looked_at(unit: str, strictness: str, step: int | None) -> None:
    small, large = (cost(grown(unit, size), step, strictness=strictness) for size in (SMALL, LARGE))
    assert large <= 12 * LARGE
    assert large <= small * (LARGE / SMALL) * 1.25 + 400


@pytest.mark.parametrize("step", [None, 4], ids=["whole", "in pieces"])
@pytest.mark.parametrize("expect", [None, "json", "hermes"])
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_functions_called(unit: str, expect: str | None, step: int | None) -> None:
    interpreted(grown(unit, SMALL), step, expect=expect)  # patterns are compiled once, some for long texts only
    small, large = (interpreted(grown(unit, size), step, expect=expect) for size in (FEW, MANY))
    assert large <= small * (MANY / FEW) * 1.25 + 400


def argument(size: int, wrapped: bool) -> str:
    words = "x { } < > ` \\n "
    body = '{"name": "write_file", "arguments": {"path": "a", "content": "' + words * (size // len(words)) + '"}}'
    return f"<tool_call>{body}</tool_call>" if wrapped else body


class Copied(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        part = Copied(super().__getitem__(place))
        Copied.copied += len(part)
        return part

    def __radd__(self, before: str) -> str:
        return Copied(before.__add__(self))


def test_a_list_in_python_is_not_copied_for_each_part_of_it() -> None:
    numbers = ", ".join(["1"] * 5_000)
    text = Copied(f"get_weather(a=[{numbers}]), get_weather(a=[{numbers}])]")
    options = ParseOptions(Tools.prepare(SETS["demo"]), "balanced", None, json_answer=False, anchors=frozenset())
    evidence = Evidence("pythonic", wrapped=False, expected=True)
    reader = dialects.get("pythonic").candidate("[", options, evidence, definite=True)
    Copied.copied = 0
    assert reader.feed(text, 0) is not None
    assert len(text) / 2 <= Copied.copied <= 20 * len(text)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("expect", [None, "json", "hermes"])
def test_one_long_argument(expect: str | None, wrapped: bool) -> None:
    """A long string is looked at a bounded number of times, in pieces of any size."""
    text = argument(10_000, wrapped)
    assert cost(text, None, expect=expect) <= 6 * len(text)
    assert cost(text, 4, expect=expect) <= 6 * len(text)


VALUES = {
    "qwen3_coder": "<tool_call>\n<function=write_file>\n<parameter=content>\n",
    "glm": "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>",
    "tool_name_xml": "<write_file>\n<content>",
}
CLOSERS = ["</parameter>", "</parameter> ", "</function>\n", "</arg_value> ", "</tool_call>", "</content> ", "</args>"]


@pytest.mark.parametrize("step", [None, 1], ids=["whole", "in pieces"])
@pytest.mark.parametrize("unit", CLOSERS)
@pytest.mark.parametrize("opener", VALUES.values(), ids=VALUES)
def test_closing_tags_in_a_row(opener: str, unit: str, step: int | None) -> None:
    """What follows closing tags inside a value is looked at once, however many they are."""
    interpreted(opener + unit, step)
    small, large = (interpreted(f"{opener}{grown(unit, size)}x", step) for size in (FEW, MANY))
    assert large <= small * (MANY / FEW) * 1.25 + 400


def test_a_value_that_seems_to_end_again_and_again_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing tag after the call makes all before it a part of the value, which then ends once more."""
    searched: list[int] = []
    find = TagNames.find_damaged_tag

    def counted(names: TagNames, text: str) -> tuple[bool, int]:
        searched.append(len(text))
        return find(names, text)

    monkeypatch.setattr(TagNames, "find_damaged_tag", counted)
    value = "O" + "</parameter>\n</function>\n</seed:too" * 200
    opener, closer = (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">',
        "</parameter>\n</invoke>",
    )
    reply = parse(f"{opener}{value}{closer}\n</minimax:tool_call>", SETS["demo"], finish_reason="length")
    assert [call.arguments["city"] for call in reply.calls] == [value]
    assert len(searched) > 200
    assert max(searched) <= 2 * CLOSER_AND_TAG_LIMIT


def fed(text: str, **options: Any) -> None:
    feed([text[at : at + 4] for at in range(0, len(text), 4)], SETS["demo"], **options)


# A pattern matched again from its start at every piece hides from every count: here alone the clock decides.
# Sixteen times the text may cost 48 times as much; with rescanning it costs 256 times as much.


@pytest.mark.clock
@pytest.mark.parametrize("name", ["phi4", "firefunction", "pangu", "jamba"])
def test_a_list_of_many_calls_by_the_clock(name: str) -> None:
    """The marker at the end of a list is looked for once, not once a call."""
    call = Call("call00001", "ping", {}, "{}")
    texts = {count: dialects.get(name).render_calls([call] * count) for count in (500, 4_000)}
    assert_linear(lambda count: parse(texts[count], SETS["demo"], dialect=name), 500, 4_000)


@pytest.mark.clock
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("expect", [None, "json", "hermes"])
def test_one_long_argument_by_the_clock(expect: str | None, wrapped: bool) -> None:
    assert_linear(lambda size: fed(argument(size, wrapped), expect=expect), 2_000, 32_000)


def took(text: str, count: int, **options: Any) -> float:
    """Return the median cost of `count` pieces amid a long string, the beginning of which came at once."""
    parser = StreamParser(SETS["demo"], **options)
    begin, end = len(text) - 400 - 4 * count, len(text) - 400
    parser.feed(text[:begin])
    costs = [seconds(lambda at=at: parser.feed(text[at : at + 4])) for at in range(begin, end, 4)]
    parser.feed(text[end:])
    parser.close()
    assert parser.reply.calls
    return median(costs)


@pytest.mark.clock
@pytest.mark.parametrize("name", dialects.names())
def test_a_piece_costs_the_same_however_much_came_before(name: str) -> None:
    """No count sees what is copied with each piece; but to copy 2 MB takes many times what a piece does."""
    words = "some words of it, " * 120_000
    short, long = (
        dialects.get(name).render_calls([Call("c", "write_file", given, json.dumps(given))])
        for given in ({"path": "a", "content": said} for said in (words[:8_000], words))
    )
    few, many = (took(text, 100, expect=name) for text in (short, long))
    assert many <= 5 * few


@pytest.mark.clock
@pytest.mark.parametrize("separator", [" ", "\n"], ids=["a line", "lines"])
def test_a_piece_of_inline_code_costs_the_same_however_much_came_before(separator: str) -> None:
    """Inline code that begins with a call is held until its end shows whether it is quoted."""

    def piece_cost(begin: int) -> float:
        text = 'See `{"name": "write_file", "arguments": {"content": "' + f"some words of it,{separator}" * 240
        parser = StreamParser(SETS["demo"])
        parser.feed(text[:begin])
        return median(seconds(lambda at=at: parser.feed(text[at : at + 4])) for at in range(begin, begin + 300, 4))

    assert piece_cost(3_600) <= 2.5 * piece_cost(100)


@pytest.mark.clock
@pytest.mark.parametrize("before", ["", "```json\n"], ids=["bare", "fenced"])
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_by_the_clock(unit: str, before: str) -> None:
    assert_linear(lambda size: fed(before + grown(unit, size)), 2_000, 32_000)


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_depth_and_length_never_raise(unit: str) -> None:
    text = grown(unit, 60_000)
    reply = parse(text, SETS["demo"])
    assert len(reply.content) + sum(len(failed.raw) for failed in reply.malformed) <= len(text)
