import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptools.jsontext.brackets import MAX_DEPTH, BracketScanner
from promptools.jsontext.read import read_value

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
BRACKETED = st.lists(VALUES) | st.dictionaries(st.text(), VALUES)
SOUP = st.text(alphabet="{}[]\"'“”‘’/*#\\:, \n\tab1").map(lambda text: "{" + text)

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def end_of(pieces):
    """Feed the pieces; give where the value ends in all of them joined."""
    extent = BracketScanner()
    before = 0
    for piece in pieces:
        end = extent.feed(piece)
        if end is not None:
            return before + end
        before += len(piece)
    return None


def every_split(text):
    return [[text[:cut], text[cut:]] for cut in range(1, len(text))] + [list(text)]


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 1}',
        "[[], {}, [[{}]]]",
        '{"a": "}", "b": "]"}',
        r'{"a": "\"}", "b": "\\"}',
        r'{"a": "\\\\\\\"}"}',
        "{'a': '}', 'b': ['\\'}']}",
        "{“a”: “}”}",
        "{‘a’: ‘}’}",
        "{'it': it's}",
        '{"a": 1, // }\n "b": 2}',
        '{"a": /* } " */ 2}',
        '{"a": /*} **/ 2, // it\'s\n # } don\'t\n "b": [1]}',
        "{# }\n}",
        '{"a": 1 / 2}',
        "{/x}",
        '{"a": 1 # not a comment after a value }',
        "[ 'a' , 'b]' ]",
        "['a''b]']"[:-3] + "]",
        '{"long": "' + "x" * 500 + '}", "more": "' + "\\n" * 50 + '}"}',
        '{"content": "print("hi")"}',
    ],
)
def test_finds_the_end_however_the_text_is_cut(value):
    text = value + '} ] tail "'
    for pieces in every_split(text):
        assert end_of(pieces) == len(value), pieces


@pytest.mark.parametrize(
    "text", ["{", "[", '{"', '{"a', '{"a\\', "{'", "{“", '{"a": 1, /', "[/*", "[/* *", "[// ]", "[#]", "[[]"]
)
def test_an_open_value_has_no_end(text):
    for pieces in every_split(text):
        assert end_of(pieces) is None


def test_starts_where_told():
    assert BracketScanner().feed('see {"a": 1} there', 4) == 12


def test_tells_depth_and_strings():
    extent = BracketScanner()
    assert extent.feed('{"a": [1, "b') is None
    assert (extent.depth, extent.in_string, extent.too_deep) == (2, True, False)
    extent.feed('c", ')
    assert (extent.depth, extent.in_string) == (2, False)
    assert extent.feed("3]}") == 3
    assert extent.depth == 0


def test_gives_up_on_too_many_levels():
    extent = BracketScanner()
    extent.feed("[" * MAX_DEPTH)
    assert not extent.too_deep
    assert extent.feed("[" * 3 + "]" * (MAX_DEPTH + 3)) is None
    assert extent.too_deep


def test_an_empty_piece_changes_nothing():
    extent = BracketScanner()
    for piece in ["", "[", "", "/", "", "*", "", "*", "", "/", "", '"', "", "\\", "", '"', "", '"', ""]:
        assert extent.feed(piece) is None
    assert extent.feed("]") == 1


@SLOW
@given(value=BRACKETED, pure=st.booleans(), indent=st.sampled_from([None, 2]), cuts=st.lists(st.integers(0, 400)))
def test_agrees_with_strict_json_however_it_is_cut(value, pure, indent, cuts):
    text = json.dumps(value, ensure_ascii=pure, indent=indent)
    whole = text + ' {"more": ["'
    at = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    assert end_of([whole[a:b] for a, b in pairwise(at)]) == len(text) == read_value(whole).end


@SLOW
@given(text=SOUP, cuts=st.lists(st.integers(0, 100)))
def test_any_cut_of_any_text_gives_the_same_end(text, cuts):
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    assert end_of([text[a:b] for a, b in pairwise(at)]) == end_of([text]) == end_of(list(text))
