"""The page about the Ollama wire says what the code does."""

import re
from pathlib import Path

from promptools.fallback.overflow import CONTEXT_STEP, DEFAULT_ANSWER_TOKENS
from promptools.wire.ollama_upstream import EFFORTS
from promptools.wire.parameters import PARAMETERS, UNKNOWN_PARAMETER

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "ollama-wire.md").read_text(encoding="utf-8")
RULES = {key: row.ollama for key, row in PARAMETERS.items() if row.ollama != UNKNOWN_PARAMETER.ollama}
ROWS = {
    key: fate
    for keys, fate in re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    for key in re.findall(r"`(\w+)`", keys)
}


def test_every_parameter_has_its_row():
    assert set(ROWS) == set(RULES)


def test_every_row_tells_the_fate():
    for key, fate in RULES.items():
        assert ROWS[key].startswith(fate.handling), key
        if fate.target:
            assert f"`{fate.target}`" in ROWS[key], key


def test_every_effort_that_changes_is_told():
    for effort, think in EFFORTS.items():
        assert f"`{effort}`" in ROWS["reasoning_effort"]
        assert str(think).lower() in ROWS["reasoning_effort"]


def test_the_numbers_are_right():
    assert f"({DEFAULT_ANSWER_TOKENS} without it), in steps of {CONTEXT_STEP}" in " ".join(PAGE.split())
