"""Work grows with the text and no faster, whatever it is made of: random mixtures of everything that dialects write.

The mixtures are those of `tools/fuzz_linear.py`, which looks for slow ones by the clock, for as long as it is let.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from casebook import feed, tiled
from counted import functions_called

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from fuzz_linear import TOOLS, Mixture, mixture, tokens

pytestmark = pytest.mark.exhaustive

SMALL, LARGE, LARGER = 3_000, 9_000, 27_000
EACH = 3
"""Mixtures of one test."""
KNOWN = [
    Mixture("<think>", "function call<|role_sep|>", "", None, None, {}),
    Mixture("<think>", "assistant -> tool/function_call", "", None, None, {}),
    Mixture("", "assistant -> tool/function_call", "", None, None, {}),
    Mixture("", "\n    ", "x", 7, None, {"in_reasoning": True}),
    Mixture("<think>", "<think:a1>", "", 7, None, {}),
]
"""What was slow once."""
HELD = Mixture(
    "<tool_call>\n<function=get_weather>\n<parameter=c",
    '", "days": 2}}[arguments:\nassistantfinal to',
    "",
    50,
    "length",
    {"expect": "deepseek"},
)
"""Held as one tag up to the limit of a tag, and then read as words, which cost more."""


def found(each: Mixture, size: int) -> int:
    """Count the functions called for a mixture of this size; its text is told whole."""
    text = each.text(size)
    step = each.step or len(text)
    pieces = [text[at : at + step] for at in range(0, len(text), step)]

    def read() -> None:
        events, _ = feed(pieces, TOOLS, each.finish_reason, **each.options)
        told.extend(events)

    told: list[Any] = []
    count = functions_called(read)
    tiled(told, text)
    return count


def in_proportion(less: tuple[int, int], more: tuple[int, int]) -> bool:
    """Whether `more` functions for more characters are no more than `less` for fewer allow."""
    return more[0] <= less[0] * more[1] / less[1] * 1.25 + 400


def assert_linear(each: Mixture) -> None:
    found(each, LARGE)  # tools are prepared and patterns compiled once
    small, large = ((found(each, size), len(each.text(size))) for size in (SMALL, LARGE))
    if in_proportion(small, large):
        return
    # Text that is held up to a limit costs little before it: what each further part of the text adds is compared.
    larger = found(each, LARGER), len(each.text(LARGER))
    assert in_proportion((large[0] - small[0], large[1] - small[1]), (larger[0] - large[0], larger[1] - large[1]))


@pytest.mark.parametrize("seed", range(20))
def test_mixtures(seed: int) -> None:
    dice = random.Random(seed)
    marks, calls = tokens()
    for _ in range(EACH):
        assert_linear(mixture(dice, marks, calls))


@pytest.mark.parametrize("each", KNOWN, ids=lambda each: repr(each.begin + each.unit))
def test_what_was_slow_once(each: Mixture) -> None:
    assert_linear(each)


def test_text_is_held_up_to_a_limit() -> None:
    assert_linear(HELD)
