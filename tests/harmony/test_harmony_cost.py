"""Anything hostile costs what it is long: half headers, words of headers, tokens, brackets, one after the other.

The functions called are counted. What no count sees is left to the clock (`make fuzz`): sixteen times the text may cost
48 times as much; where something is looked at again and again it costs 256 times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from clock import assert_linear
from counted import functions_called

from promptools import StreamParser
from promptools.errors import ModelError
from promptools.harmony import transcript as harmony

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
HEADER = "<|channel|>commentary to=functions.f<|message|>"
SMALL, LARGE = 2_000, 32_000

UNITS = {
    "angles": "<",
    "half tokens": "<|",
    "channels": "<|channel|>",
    "channels and words": "<|channel|>final",
    "starts": "<|start|>assistant",
    "ends": "<|end|>",
    "messages": "<|channel|>final<|message|>",
    "turns": "<|start|>user<|message|>x",
    "half headers": "<|start|>assistant<|channel|>commentary to=functions.f",
    "headers without a message": "<|channel|>commentary to=functions.f{",
    "speakers": "assistant",
    "the beginning of a speaker": "as",
    "recipients": "to=",
    "recipients of a tool": " to=f",
    "calls without their tokens": "assistantcommentary to=f {",
    "turns without their tokens": "assistantfinalX",
    "spaces": " ",
    "stops": ".",
    "shown tokens": "`<|start|>` ",
    "fences": "```\n<|channel|>",
    "quotes that never close": ' "a<|end|>',
    "messages with such quotes": ' "a<|end|><|start|>assistant<|channel|>final<|message|>',
    "quotes that close late": ' "a<|end|> b" ',
    "marks": " \"'`",
    "calls whose strings never close": '<|start|>assistant to=functions.f<|message|>{"a": "<|call|>',
    "calls whose brackets never close": '<|start|>assistant to=functions.f<|message|>{"a": "b"<|call|>',
    "JSON for nobody": '<|channel|>commentary<|message|>{"a": 1}',
}


def plain(text: str, step: int) -> None:
    _feed(StreamParser(TOOLS), text, step)


def asked(text: str, step: int) -> None:
    _feed(StreamParser(TOOLS, dialect="harmony"), text, step)


def answered(text: str, step: int) -> None:
    _feed(StreamParser(TOOLS, dialect="harmony"), f"<|channel|>final<|message|>{text}", step)


def called(text: str, step: int) -> None:
    _feed(StreamParser(TOOLS, dialect="harmony"), f'{HEADER}{{"a": "{text}', step)


def strict(text: str, step: int) -> None:
    with suppress(ModelError):
        _feed(harmony.StreamParser(strict=True), f"<|start|>user<|message|>{text}", step)


def _feed(parser: StreamParser | harmony.StreamParser, text: str, step: int) -> None:
    for at in range(0, len(text), step):
        parser.feed(text[at : at + step])
    parser.close()


@pytest.mark.parametrize("read", [plain, asked, answered, called, strict])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_functions_called(unit: str, read: Callable[[str, int], None]) -> None:
    for step in (16, LARGE):
        read(unit * (6_000 // len(unit)), step)  # what is compiled once, some for long texts only
        small, large = (functions_called(partial(read, unit * (size // len(unit)), step)) for size in (1_500, 6_000))
        assert large <= small * 4 * 1.25 + 400


@pytest.mark.clock
@pytest.mark.parametrize("read", [plain, asked, answered, called, strict])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_hostile_text_by_the_clock(unit: str, read: Callable[[str, int], None]) -> None:
    text = unit * (LARGE // len(unit))
    for step in (16, LARGE):
        assert_linear(partial(_read, read, text, step), SMALL, LARGE)


@pytest.mark.clock
@pytest.mark.parametrize("unit", ['{"a": "x"}', "{'a': 'x'}", '{"a": ', '"', '\\"', "[", "x ", "`<|call|>` "])
def test_hostile_arguments_by_the_clock(unit: str) -> None:
    text = HEADER + unit * (LARGE // len(unit))
    for step in (16, len(text)):
        assert_linear(partial(_read, asked, text, step), SMALL, LARGE)


def _read(read: Callable[[str, int], None], text: str, step: int, size: int) -> None:
    read(text[:size], step)
