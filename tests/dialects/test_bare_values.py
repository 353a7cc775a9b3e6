"""Values written as bare text: which type they get."""

import pytest

from promptools.dialects.calls.bare_values import read_typed


@pytest.mark.parametrize("text", ["007", "-007", "+49", "00"])
@pytest.mark.parametrize("types", [[], ["integer", "string"], ["number", "string", "null"]])
def test_a_number_that_json_does_not_write_is_text_where_text_is_allowed(text, types):
    assert read_typed(text, frozenset(types)) == (text, ())


@pytest.mark.parametrize(("text", "value"), [("007", 7), ("+49", 49), ("00", 0)])
def test_it_is_a_number_where_only_a_number_is_allowed(text, value):
    assert read_typed(text, frozenset(["integer"])) == (value, ())


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-0.5", -0.5), ("10", 10), ("1e3", 1000.0), (" 7 ", 7)])
def test_a_json_number_is_a_number(text, value):
    assert read_typed(text, frozenset()) == (value, ())
    assert read_typed(text, frozenset(["number", "string"])) == (value, ())
