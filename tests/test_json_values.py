"""Reading JSON that may be broken, and writing values as TOML."""

from __future__ import annotations

import json
import tomllib
from math import inf

import pytest

from promptools.json_values import parse_finite_float, reject_constant, toml_value, try_json

MISSING = object()


@pytest.mark.parametrize(
    "text", ["", "{", "{'a': 1}", "[1] 2", '"\t"', "[" * 200_000, b"\xff", b'"\xc3"', "\ufeff[]", "9" * 5000]
)
def test_what_is_not_json_is_the_default(text: str | bytes) -> None:
    """Syntax, encoding, depth and the length of integers alike."""
    assert try_json(text, MISSING) is MISSING
    assert try_json(text) is None


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"a": [1, "\u00e9"]}])
def test_json_is_never_the_default(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert try_json(text, MISSING) == value
    assert try_json(text.encode(), MISSING) == value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_the_constants_of_python_are_rejected_where_that_is_asked(text: str) -> None:
    assert try_json(text, MISSING) is not MISSING
    assert try_json(text, MISSING, parse_constant=reject_constant) is MISSING


def test_a_float_out_of_range_is_rejected_where_that_is_asked() -> None:
    assert try_json("1e999") == inf
    assert try_json("1e999", MISSING, parse_float=parse_finite_float) is MISSING
    assert try_json("1e99", MISSING, parse_float=parse_finite_float) == 1e99


def test_control_characters_are_read_where_that_is_asked() -> None:
    assert try_json('"\t"', MISSING, strict=False) == "\t"


def test_what_is_not_text_is_a_fault_of_the_caller() -> None:
    with pytest.raises(TypeError):
        try_json(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ['a "b" \\ \n\t', "\x7f", "é 🙂", True, 3, -1.5, ["x", "y\x7f"], []])
def test_what_is_written_as_toml_is_read_back(value: object) -> None:
    assert tomllib.loads(f"key = {toml_value(value)}")["key"] == value
