"""What goes out of a server's call before it is whole, and how the rest is written so that it reads as was mended."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.dialects.calls.argument_stream import MIN_STREAMED, ArgumentStream, complete_arguments
from promptools.schema import Tools

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
SCHEMA = {
    "type": "object",
    "$defs": {"User": USER},
    "properties": {
        "path": {"type": "string", "description": "A path"},
        "content": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number", "minimum": 0},
        "force": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "string", "enum": ["x"]}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "few": {"type": "array", "items": {"type": "string"}, "maxItems": 1},
        "users": {"type": "array", "items": {"$ref": "#/$defs/User"}},
        "closed": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        "any": {},
        "map": {"type": "object"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
    },
}


def graph(schema=SCHEMA):
    return Tools([{"type": "function", "function": {"name": "f", "parameters": schema}}]).graph("f")


def sent(text, cuts=(1,), schema=SCHEMA, least=0, **kind):
    arguments = ArgumentStream(graph(schema), least, **kind)
    sizes, at, out = itertools.cycle(cuts), 0, ""
    while at < len(text):
        size = next(sizes)
        out += arguments.feed(text[at : at + size])
        at += size
        assert arguments.sent == out
        assert text.lstrip().startswith(out)
    return out


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('{"path": "a/b", "content": "on and o', '{"path": "a/b", "content": "on and o'),
        ('{"path": ', ""),
        ('{"path": "', '{"path": "'),
        ('{"path": "a"', '{"path": "a'),
        ('{"path": "a"}', '{"path": "a"'),
        ('  {"path":"a" , "co', '{"path":"a" '),
        ('{"path": "a\\', '{"path": "a'),
        ('{"path": "a\\n\\u00e9', '{"path": "a\\n\\u00e9'),
        ('{"path": "\\ud83d', '{"path": "'),
        ('{"path": "\\ud83d\\ude00 "', '{"path": "\\ud83d\\ude00 '),
        ('{"count": 12', ""),
        ('{"count": 12,', '{"count": 12'),
        ('{"ratio": 0.5e1, "force": true}', '{"ratio": 0.5e1, "force": true'),
        ('{"mode": "a", "path": "x', '{"mode": "a", "path": "x'),
        ('{"mode": "a"', ""),
        ('{"note": null, "note": "lon', '{"note": null, "note": "lon'),
        ('{"either": "x', ""),
        ('{"either": "x",', '{"either": "x"'),
        ('{"tags": ["a", "b', '{"tags": ["a", "b'),
        ('{"tags": [], "path": "x', '{"tags": [], "path": "x'),
        ('{"few": ["a", "path', ""),
        ('{"few": ["a"], "path": "x', '{"few": ["a"], "path": "x'),
        ('{"users": [{"name": "A", "age": 3}, {"name": "B', '{"users": [{"name": "A", "age": 3}, {"name": "B'),
        ('{"any": {"a": [1, {"b": "c', '{"any": {"a": [1, {"b": "c'),
        ('{"map": {"x": "y', '{"map": {"x": "y'),
    ],
)
def test_what_goes_out_of_what_is_right(text, out):
    assert sent(text) == sent(text, (len(text),)) == out


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('{"path": 5, "content": "x', ""),
        ('{"path": "a", "count": "5", "content": "x', '{"path": "a"'),
        ('{"path": "a", "count": 5.5, "content": "x', '{"path": "a"'),
        ('{"path": "a", "ratio": -1, "content": "x', '{"path": "a"'),
        ('{"path": "a", "mode": "c", "content": "x', '{"path": "a"'),
        ('{"path": "a", "tags": "b", "content": "x', '{"path": "a"'),
        ('{"path": "a", "few": ["b", "c"], "content": "x', '{"path": "a"'),
        ('{"path": "a", "Content": "x', '{"path": "a"'),
        ('{"path": "a", "other": "x', '{"path": "a"'),
        ('{"users": [{"name": "A"}, {"age": 3}], "content": "x', '{"users": [{"name": "A"}, {"age": 3'),
        ('{"closed": {"a": "x", "b": "y"}, "content": "x', '{"closed": {"a": "x"'),
        ('{"path": "a" "content": "x', '{"path": "a'),
        ('{"path": "a "quoted" word", "content": "x', '{"path": "a '),
        ('{"path": "a\nb", "content": "x', '{"path": "a'),
        ('{"path": "a\\x", "content": "x', '{"path": "a'),
        ('{"path": "a\\ud83dx", "content": "x', '{"path": "a'),
        ('{"path": "a",}', '{"path": "a"'),
        ("{'path': 'a', \"content\": \"x", ""),
        ('{"count": 1{"count": 12', ""),
        ('{"count": 1x, "content": "x', ""),
        ('[{"path": "x', ""),
        ('"{\\"path\\": \\"x', ""),
        ('word {"path": "x', ""),
        ('{"path": "a"}{"path": "b', '{"path": "a"'),
        ('{"path": "a", "pair": ["b"], "content": "x', '{"path": "a"'),  # only the slow check knows `prefixItems`
        ("{}", ""),
    ],
)
def test_what_is_not_right_ends_it(text, out):
    assert sent(text) == sent(text, (len(text),)) == out


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('{"path": "a/b", "content": "on and o', '{"path": "a/b"'),
        ('{"path": "a"', ""),
        ('{"path": "a" , "co', '{"path": "a" '),
        ('{"path": "a</tool_call>', ""),
        ('{"users": [{"name": "A", "age": 3}, {"name": "B', ""),
        ('{"users": [{"name": "A", "age": 3}], "path": "x', '{"users": [{"name": "A", "age": 3}]'),
        ('{"users": [{"name": "A"}, {"age": 3}], "path": "x', ""),
        (
            '{"mode": "a", "any": {"a": [1, {"b": "c"}]}, "few": ["a", "b"], "path": "x",',
            '{"mode": "a", "any": {"a": [1, {"b": "c"}]}',
        ),
    ],
)
def test_of_a_call_in_text_whole_members_go_out(text, out):
    assert sent(text, whole_members=True) == sent(text, (len(text),), whole_members=True) == out


def test_nothing_goes_out_of_a_tool_without_parameters_of_its_own_or_that_asks_for_more():
    for schema in (
        {"type": "object"},
        {"type": "object", "properties": {"path": {"type": "string"}}, "minProperties": 2},
        {"allOf": [{"properties": {"path": {"type": "string"}}}]},
    ):
        assert sent('{"path": "x', schema=schema) == ""
    assert ArgumentStream(None).feed('{"path": "x') == ""


def test_nesting_has_an_end():
    deep = '{"any": ' + "[" * 10_000
    assert sent(deep) == ""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)
users = st.lists(st.fixed_dictionaries({"name": st.text()}, optional={"age": st.integers(), "x": values}))
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": st.text() | st.integers(),
        "content": st.text(),
        "count": st.integers() | st.text(max_size=3),
        "mode": st.sampled_from("abc"),
        "note": st.none() | st.text(),
        "tags": st.lists(st.text()),
        "users": users,
        "any": values,
        "map": st.dictionaries(st.text(), values),
        "other": values,
    },
)
cuts = st.lists(st.integers(1, 9), min_size=1)


@settings(max_examples=50, deadline=None)
@given(arguments, cuts, st.booleans(), st.sampled_from([None, 1]))
def test_what_goes_out_is_the_same_however_it_is_cut_and_can_be_gone_on_with(value, sizes, escaped, indent):
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    out = sent(text, sizes)
    assert out == sent(text, (len(text),)) == sent(text)
    whole = complete_arguments(out, value) if out else "{}"
    assert whole is not None
    assert whole.startswith(out)
    assert json.loads(whole) == value or not out


@pytest.mark.parametrize(
    ("out", "value", "whole"),
    [
        ('{"a": "x', {"a": "xy", "b": 1}, '{"a": "xy", "b": 1}'),
        ('{"a": "x"', {"a": "x", "b": [1]}, '{"a": "x", "b": [1]}'),
        ('{"a":[1, {"b": "c', {"a": [1, {"b": "cd", "e": 2}, 3]}, '{"a":[1, {"b": "cd", "e": 2}, 3]}'),
        ('{"a": [[], {}', {"a": [[], {}], "b": 0}, '{"a": [[], {}], "b": 0}'),
        ('{"a": "x', {"a": "y"}, None),
        ('{"a": "x"', {"b": "x"}, None),
        ('{"a": "x', {"a": 5}, None),
        ('{"a": [1, "x', {"a": [1]}, None),
        ('{"a": 1', {"a": 2}, None),
    ],
)
def test_the_rest_of_a_call_that_was_mended(out, value, whole):
    assert complete_arguments(out, value) == whole


@pytest.mark.parametrize("begin", ['{"any": {"a": ["', '{"few": ["', '{"either": "', '{"content": "'])
def test_the_cost_of_a_long_value_is_flat(begin):
    text = begin + "x" * 100_000
    arguments, steps = ArgumentStream(graph()), 0
    for at in range(0, len(text), 4):
        arguments.feed(text[at : at + 4])
        steps += len(arguments._unread)
    assert steps < len(text)


def test_a_short_call_waits():
    short = '{"path": "' + "a" * (MIN_STREAMED - 12)
    assert sent(short, least=MIN_STREAMED) == sent(short + '"}', least=MIN_STREAMED) == ""
    assert sent(short + "aa", least=MIN_STREAMED) == sent(short + "aa", (1000,), least=MIN_STREAMED) == short + "aa"
