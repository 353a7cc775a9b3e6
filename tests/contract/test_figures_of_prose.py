"""Calls that nobody makes may only become fewer, and those that are meant may not be lost for it."""

from __future__ import annotations

import pytest
from figures_of_prose import MADE_UP, MEANT, count_made_up, count_meant, recorded

from promptools import dialects

FIGURES = recorded()
NAMES = [name for name in FIGURES["dialects"] if name in dialects.BUILT_IN]
RENEW = "write it down: .venv/bin/python tests/contract/figures_of_prose.py"


def test_every_place_has_a_figure_of_every_dialect() -> None:
    assert FIGURES["dialects"] == sorted(dialects.BUILT_IN), f"there are others; {RENEW}"
    assert (set(FIGURES["made_up"]), set(FIGURES["meant"])) == (set(MADE_UP), set(MEANT))


@pytest.mark.parametrize("place", MADE_UP)
def test_no_more_calls_are_made_up(place: str) -> None:
    count, before = count_made_up(place, NAMES), FIGURES["made_up"][place]
    assert count <= before, "more replies than before are taken for calls where nobody makes one"
    assert count == before, f"fewer than before; {RENEW}"


@pytest.mark.parametrize("place", MEANT)
def test_no_call_that_is_meant_is_lost(place: str) -> None:
    count, before = count_meant(place, NAMES), FIGURES["meant"][place]
    assert count >= before, "fewer replies than before are read as the calls that they mean"
    assert count == before, f"more than before; {RENEW}"
