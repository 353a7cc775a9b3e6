import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptools.jsontext.read import Unreadable, read_value
from promptools.jsontext.strict import read_members

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
SOUP = st.text(alphabet='{}[]",: \\u001e\n\t-ab\x00', max_size=40)
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_object(text, start=0):
    """Return value, spans and end of a strict JSON object; None where it is none."""
    value, spans, end = read_members(text, start)
    return None if end is None else (value, spans, end)


def test_members_give_places():
    text = ' {"a": 1, "b" : [2, {"c": "}"}] , "\\u0064\\"": {}} x'
    found = read_object(text, 1)
    assert found is not None
    value, places, end = found
    assert value == {"a": 1, "b": [2, {"c": "}"}], 'd"': {}}
    assert {key: text[start:end] for key, (start, end) in places.items()} == {
        "a": "1",
        "b": '[2, {"c": "}"}]',
        'd"': "{}",
    }
    assert text[end:] == " x"
    assert read_object("{ }") == ({}, {}, 3)


@pytest.mark.parametrize("levels", [198, 199, 200])
@pytest.mark.parametrize(("opener", "closer"), [('{"a":', "}"), ("[", "]")])
def test_200_levels_are_read(levels, opener, closer):
    assert read_object('{"a":' + opener * (levels - 1) + "1" + closer * (levels - 1) + "}") is not None


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "{", "{a: 1}", '{"a" 1}', '{"a": 1 2}', '{"a": 1,}', '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}}',
     '{"a": 1, "\\u0061": 2}', '{"\\x": 1}', '{"\\\n": 1}', '{"a\n": 1}', '{"a": "\n"}', '{"a": }', '{"a": {"b": }}',
     '{"a": NaN}', '{"a": 1e999}', '{"a', '{"a": ', '{"a": 1', "{'a': 1}", '{"a":' * 201 + "1" + "}" * 201,
     '{"a":' + "[" * 200 + "]" * 200 + "}", '{,"a": 1}', '{"a": 1 "b": 2}', '{"a": 1,,"b": 2}'],
)  # fmt: skip
def test_what_is_not_strict_is_refused(text):
    assert read_object(text) is None


@SLOW
@given(value=st.dictionaries(st.text(), VALUES), indent=st.sampled_from([None, 1]))
def test_members_agree_with_json(value, indent):
    text = json.dumps(value, indent=indent)
    found = read_object(text)
    assert found is not None
    assert found[0] == value
    assert {key: json.loads(text[start:end]) for key, (start, end) in found[1].items()} == value
    assert found[2] == len(text)


@SLOW
@given(inside=SOUP)
def test_members_agree_with_the_reader(inside):
    """What is an object without a liberty there is one here, and the other way round."""
    text = "{" + inside + "}"
    found = read_object(text)
    try:
        value = read_value(text)
    except Unreadable:
        assert found is None
    else:
        assert (found is not None) == (value.fixes == ())
        if found is not None:
            assert (found[0], found[2]) == (value.value, value.end)
