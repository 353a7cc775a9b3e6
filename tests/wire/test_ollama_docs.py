"""The page about the Ollama wire says what the code does."""

import re
from pathlib import Path

from promptools.fallback.overflow import ROOM, STEP
from promptools.wire.ollama.request import EFFORTS, FATES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "ollama-wire.md").read_text(encoding="utf-8")
ROWS = {
    key: fate
    for keys, fate in re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    for key in re.findall(r"`(\w+)`", keys)
}


def test_every_parameter_has_its_row():
    assert set(ROWS) == set(FATES)


def test_every_row_tells_the_fate():
    for key, fate in FATES.items():
        assert ROWS[key].startswith(fate.how), key
        if fate.to:
            assert f"`{fate.to}`" in ROWS[key], key


def test_every_effort_that_changes_is_told():
    for effort, think in EFFORTS.items():
        assert f"`{effort}`" in ROWS["reasoning_effort"]
        assert str(think).lower() in ROWS["reasoning_effort"]


def test_the_numbers_are_right():
    assert f"({ROOM} without it), in steps of {STEP}" in " ".join(PAGE.split())
