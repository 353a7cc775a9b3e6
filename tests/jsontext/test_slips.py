"""Mistakes repaired a run at a time are repaired as step by step: the same value, end and fixes."""

import json
import re
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from promptools.jsontext import repair
from promptools.jsontext.brackets import BracketScanner
from promptools.jsontext.read import ParsedValue, Unreadable, read_complete_object, read_value

SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = st.sampled_from(["a", "id", "it's", "True", 'say "x"', "b,}", "None: 1", "{", "\\", "", "é", ": ,"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner), max_leaves=30)
SOUP = st.text(alphabet="{}[]\"',: \n-1aTrueNone_$\\/#\u00a0“", max_size=60)

SLIPS = [
    (re.compile(r'"([^"\\\']*)"'), r"'\1'"),
    (re.compile(r'"([a-zé]+)"(?=:)'), r"\1"),
    (re.compile(r"\btrue\b"), "True"),
    (re.compile(r"\bnull\b"), "None"),
    (re.compile(r"(?<=[^{\[ ])(?=[}\]])"), ","),
    (re.compile(r": "), " : "),
    (re.compile(r"(?=[}\]])"), "\n"),
]
"""What makes a slip of strict JSON, and how."""

COMMON = ("single quotes", "Python literal", "trailing comma", "unquoted key")


@st.composite
def slipped(draw):
    """Strict JSON with slips, each in some of its places."""
    text = json.dumps(draw(st.dictionaries(WORDS, VALUES, min_size=1)), ensure_ascii=False)
    for pattern, slip in draw(st.lists(st.sampled_from(SLIPS), unique=True)):
        often = draw(st.sampled_from([1, 2, 3]))
        places = iter(range(10_000))
        text = pattern.sub(lambda found: found[0] if next(places) % often else found.expand(slip), text)  # noqa: B023
    return text + draw(st.sampled_from(["", " ", "}", " it's 'so', True,]", '\n{"a": 1,}']))


def outcome(text, **options):
    try:
        parsed = read_value(text, **options)
    except Unreadable as problem:
        return problem.kind, problem.at, problem.reason
    if parsed.repaired_text is not None:  # the text that goes out as the call's arguments
        assert json.loads(parsed.repaired_text) == parsed.value
        members = {key: json.loads(parsed.repaired_text[slice(*span)]) for key, span in parsed.member_spans.items()}
        assert members == (parsed.value if parsed.member_spans else {})
    return parsed


def step_by_step(text, **options):
    """Read with runs that end at each string, bracket and mistake, which take a step each."""
    with mock.patch.object(repair, "RUN", repair.STRICT_RUN):
        return outcome(text, strict=False, **options)


def same_both_ways(text):
    for supply in (False, True):
        read = outcome(text, supply_closers=supply, strict=False)
        assert read[:4] == step_by_step(text, supply_closers=supply)[:4]
        assert read[:4] == outcome(text, supply_closers=supply)[:4]
        common = isinstance(read, ParsedValue) and all(fix.detail.startswith(COMMON) for fix in read.fixes)
        if common:
            assert BracketScanner().feed(text) == read.end
    strict = read_complete_object(text)
    if strict is not None:
        assert strict[:4] == read_value(text, strict=False, supply_closers=bool(strict.supplied_closers))[:4]
        assert BracketScanner().feed(text) == (None if strict.supplied_closers else strict.end)


@SLOW
@given(text=slipped())
def test_slips_in_json(text):
    same_both_ways(text)


@SLOW
@example(inside="N:N:")
@given(inside=SOUP)
def test_soup(inside):
    same_both_ways("{" + inside + "}")


@SLOW
@given(text=slipped(), data=st.data())
def test_a_beginning(text, data):
    same_both_ways(text[: data.draw(st.integers(1, len(text)))])


ROWS = [
    ("single quotes", "{{'id': {0}, 'name': 'row {0}'}}", ["single quotes ({} times)"], 3),
    ("double quotes beside them", '{{\'id\': {0}, "name": "it\'s {0}"}}', ["single quotes ({} times)"], 1),
    ("literals", '{{"on": True, "off": False, "none": None, "in": "True"}}', ["Python literal ({} times)"], 3),
    ("trailing commas", '{{"id": {0},}}', ["trailing comma ({} times)"], 1),
    ("keys", '{{id: {0}, "a": true, n-1: "b: c"}}', ["unquoted key ({} times)"], 2),
]


@pytest.mark.parametrize(("name", "row", "fixes", "each"), ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("count", [1, 20, 400])
def test_many_rows(name, row, fixes, each, count):
    text = '{"rows": [' + ", ".join(row.format(number) for number in range(count)) + "]}"
    read = read_value(text)
    assert read[:4] == step_by_step(text)[:4]
    assert BracketScanner().feed(text) == len(text) == read.end
    if count > 1:
        assert [fix.detail for fix in read.fixes] == [each_fix.format(each * count) for each_fix in fixes]
