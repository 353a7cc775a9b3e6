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

SMALL, LARGE = 3_000, 9_000
EACH = 8
"""Mixtures of one test."""
KNOWN = [
    Mixture("<think>", "function call<|role_sep|>", "", None, None, {}),
    Mixture("<think>", "assistant -> tool/function_call", "", None, None, {}),
    Mixture("", "assistant -> tool/function_call", "", None, None, {}),
    Mixture("", "\n    ", "x", 7, None, {"in_reasoning": True}),
    Mixture("<think>", "<think:a1>", "", 7, None, {}),
]
"""What was slow once."""


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


def assert_linear(each: Mixture) -> None:
    found(each, LARGE)  # tools are prepared and patterns compiled once
    small, large = found(each, SMALL), found(each, LARGE)
    assert large <= small * len(each.text(LARGE)) / len(each.text(SMALL)) * 1.25 + 400


@pytest.mark.parametrize("seed", range(20))
def test_mixtures(seed: int) -> None:
    dice = random.Random(seed)
    marks, calls = tokens()
    for _ in range(EACH):
        assert_linear(mixture(dice, marks, calls))


@pytest.mark.parametrize("each", KNOWN, ids=lambda each: repr(each.begin + each.unit))
def test_what_was_slow_once(each: Mixture) -> None:
    assert_linear(each)
