"""JSON off the wire: read as it is meant where that is certain, and not at all where it is not."""

import json
import math

import pytest
from clock import assert_linear

from promptools.wire.json_body import decode_json, is_shallow


@pytest.mark.parametrize("value", [{"a": [1, "é", None]}, [], "x", 7, True, None, 1.5])
def test_strict_json_is_one_value_without_a_fix(value):
    assert decode_json(json.dumps(value)) == ([value], ())


@pytest.mark.parametrize(
    ("text", "value", "fix"),
    [
        ('{"a": "x\ny\tz\x01"}', {"a": "x\ny\tz\x01"}, "not strict JSON"),
        ('{"a": %s}' % ("9" * 5000), {"a": None}, "not strict JSON"),
        ('{"a": "x",}', {"a": "x"}, "trailing comma"),
        ("{'a': None, 'b': True}", {"a": None, "b": True}, "single quotes (2 times)"),
        (r'{"a": "\x"}', {"a": "\\x"}, "backslash that escapes nothing kept"),
    ],
)
def test_what_is_nearly_json_is_read_and_the_liberty_told(text, value, fix):
    found = decode_json(text)
    assert found.values == [value]
    assert fix in found.fixes


def test_what_python_reads_as_json_is_read():
    assert decode_json('\ufeff {"a": 1}\x00').values == [{"a": 1}]
    assert decode_json(r'{"a": "\ud800"}').values == [{"a": "\ud800"}]
    assert math.isnan(decode_json('{"a": NaN}').values[0]["a"])
    assert decode_json('{"a": -Infinity, "b": 1e999}').values == [{"a": -math.inf, "b": math.inf}]
    assert decode_json('{"a": 1, "a": 2}').values == [{"a": 2}]


@pytest.mark.parametrize("between", ["", " ", "\n", "\r\n\x00"])
def test_values_that_nothing_separates_are_several(between):
    assert decode_json(f'{{"a": 1}}{between}{{"b": 2}}{between}').values == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"a": "x',
        '{"a": "x"',
        '{"a": 1}}',
        '{"a": "say "hi" now", "b": 1}',
        "[" * 100_000,
        '{"a": 1} and more',
    ],
)
def test_what_leaves_a_doubt_is_not_read(text):
    with pytest.raises(ValueError, match=r".*"):
        decode_json(text)


def test_levels_are_counted_without_recursion():
    deep = json.loads("[" * 500 + "]" * 500)
    assert not is_shallow(deep)
    assert not is_shallow({"a": [deep]})
    assert is_shallow({"a": [[{"b": 1}]], "c": "x"})
    assert is_shallow(7)


@pytest.mark.clock
def test_control_characters_cost_no_more_for_the_length_of_the_text():
    assert_linear(lambda size: decode_json('{"a": "%s"}' % ("x\ny" * size)), 10_000, 160_000)
