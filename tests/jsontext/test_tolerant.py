import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptools.jsontext import repair
from promptools.jsontext.read import Unreadable, read_value

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="'\"\\", exclude_categories=["C", "Z"]), max_size=12)
SOUP = st.text(alphabet="{}[]\"'“‘/*#\\:,. \n\tab1eTrue-_$\u00a0", max_size=60)
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLACE = frozenset({"path", "content", "mode"})

INNER = "unescaped quotes in a string"
CONTROL = "control character in a string"
SINGLE = "single quotes"
SMART = "smart quotes"
KEPT = "backslash that escapes nothing kept"
DROPPED = "needless escape dropped"
PYTHON = "Python literal"
COMMA = "trailing comma"
KEY = "unquoted key"

LOOSE = [
    ("raw newline", '{"a": "x\ny"}', {"a": "x\ny"}, [CONTROL]),
    ("raw tab beside valid escapes", '{"a": "x\ty\\n\\u00e9\\"z"}', {"a": 'x\ty\né"z'}, [CONTROL]),
    ("escape of punctuation", r'{"a": "\$5 it\'s \`b\` get\_x"}', {"a": "$5 it's `b` get_x"}, [f"{DROPPED} (5 times)"]),
    ("letter that is no escape", r'{"a": "\d+\s"}', {"a": r"\d+\s"}, [f"{KEPT} (2 times)"]),
    ("escaped dot keeps its backslash", r'{"a": "\.py$"}', {"a": r"\.py$"}, [KEPT]),
    ("valid escapes keep their meaning", r'{"a": "\d\n\t\\\"\/\ud83d\ude00"}', {"a": '\\d\n\t\\"/😀'}, [KEPT]),
    ("Windows path", r'{"a": "C:\Users\me\new.txt"}', {"a": r"C:\Users\me\new.txt"}, None),
    ("Windows path with a blank", r'{"a": "C:\Program Files (x86)\new"}', {"a": r"C:\Program Files (x86)\new"}, None),
    ("Windows share", r'{"a": "\\srv\share\now"}', {"a": r"\\srv\share\now"}, None),
    ("a sentence about a path", r'{"a": "C:\data is it.\nGo"}', {"a": "C:\\data is it.\nGo"}, [KEPT]),
    ("half escaped path", r'{"a": "C:\\Users\data"}', {"a": r"C:\Users\data"}, [KEPT]),
    ("trailing commas", '{"a": [1, 2,], }', {"a": [1, 2]}, [f"{COMMA} (2 times)"]),
    ("trailing comma after a mended string", "{'a': '\\d',}", {"a": "\\d"}, [f"{SINGLE} (2 times)", KEPT, COMMA]),
    ("line comment", '{"a": 1, // it\'s "one"\n "b": 2}', {"a": 1, "b": 2}, ["comment"]),
    ("hash comment", '{"a": 1 # one\n, "b": 2}', {"a": 1, "b": 2}, ["comment"]),
    ("block comments", '{/* a */"a" /**/: 1,/* } */}', {"a": 1}, None),
    ("URL in a string is no comment", '{"a": "http://x#y", }', {"a": "http://x#y"}, [COMMA]),
    ("single quotes", "{'a': 'say \"x\"', 'b': ['y']}", {"a": 'say "x"', "b": ["y"]}, [f"{SINGLE} (4 times)"]),
    ("single quotes, escaped", r"{'a': 'it\'s'}", {"a": "it's"}, [f"{SINGLE} (2 times)", DROPPED]),
    ("apostrophe in double quotes", '{"a": "it\'s", \'b\': 1}', {"a": "it's", "b": 1}, [SINGLE]),
    ("apostrophe in single quotes", "{'a': 'it's me', 'b': 1}", {"a": "it's me", "b": 1}, None),
    ("smart quotes", "{“a”: “x's “”, ‘b’: 1}", None, None),
    ("smart quotes around plain words", "{“a”: “x's”, ‘b’: 1}", {"a": "x's", "b": 1}, [f"{SMART} (3 times)"]),
    ("smart quotes inside a string", '{"a": "“x”",}', {"a": "“x”"}, [COMMA]),
    ("Python", "{'a': True, 'b': [False, None]}", {"a": True, "b": [False, None]}, None),
    ("Python words in strings", "{'a': 'True', 'b': None}", {"a": "True", "b": None}, [f"{SINGLE} (3 times)", PYTHON]),
    ("Python beside JSON", '{"a": True}', {"a": True}, [PYTHON]),
    ("unquoted key", '{ "file_path": "t.sh", content: "..."}', {"file_path": "t.sh", "content": "..."}, [KEY]),
    ("unquoted keys like literals", "{true: 1, name-x: null}", {"true": 1, "name-x": None}, [f"{KEY} (2 times)"]),
    ("doubled braces", '{{"a": {{"b": 1}}}}', {"a": {"b": 1}}, ["doubled braces (2 times)"]),
    ("outer braces doubled", '{{"a": {"b": 1}}}', {"a": {"b": 1}}, ["doubled braces"]),
    ("escaped newline outside", '{"a": \\n[1, 2]\\n\\n}', {"a": [1, 2]}, None),
    ("odd white space", '{\u00a0"a": 1}', {"a": 1}, ["white space that JSON does not know"]),
    ("duplicate key", '{"a": 1, "b": 2, "a": 3}', {"a": 3, "b": 2}, ["key 'a' came twice: the last one counts"]),
    (
        "quoted code",
        '{"path":"a.py","content":"print("hi")\nx = 1"}',
        {"path": "a.py", "content": 'print("hi")\nx = 1'},
        [INNER, CONTROL],
    ),
    (
        "code, then a declared key",
        '{"content":"print("hi")","mode":"w"}',
        {"content": 'print("hi")', "mode": "w"},
        [INNER],
    ),
    (
        "code, then an unquoted key",
        '{"content":"print("hi")", mode: 1}',
        {"content": 'print("hi")', "mode": 1},
        [INNER, KEY],
    ),
    (
        "code, then a single-quoted key",
        '{"content":"f("x")", \'mode\': 1}',
        {"content": 'f("x")', "mode": 1},
        [INNER, SINGLE],
    ),
    (
        "code, then a smart-quoted key",
        '{"content":"f("x")", “mode”: 1}',
        {"content": 'f("x")', "mode": 1},
        [INNER, SMART],
    ),
    (
        "dict in code",
        '{"content":"x = {"a": "b"}\nprint(x)"}',
        {"content": 'x = {"a": "b"}\nprint(x)'},
        [INNER, CONTROL],
    ),
    (
        "declared key in code, given before",
        '{"path":"a","content":"{"path": "b", "c": "d"}"}',
        {"path": "a", "content": '{"path": "b", "c": "d"}'},
        [INNER],
    ),
    (
        "declared key in code",
        '{"content":"c = {"a": "x", "path": "y"}\nuse(c)"}',
        {"content": 'c = {"a": "x", "path": "y"}\nuse(c)'},
        [INNER, CONTROL],
    ),
    ("inches", '{"mode":"32" display","path":"x"}', {"mode": '32" display', "path": "x"}, [INNER]),
    ("inches at the end", '{"mode":"32" display"}', {"mode": '32" display'}, [INNER]),
    ("quotes in an item", '["a "b" c", "d"]', ['a "b" c', "d"], [INNER]),
    ("quotes in an item, not text after", '["a "b" c", x]', None, None),
    (
        "quotes in an argument",
        '{"name":"w","arguments":{"content":"f("x")"},"id":"1"}',
        {"name": "w", "arguments": {"content": 'f("x")'}, "id": "1"},
        [INNER],
    ),
    ("quotes and escaped quotes", '{"content":"f("x") \\", "y"}', {"content": 'f("x") ", "y'}, [INNER]),
    ("escaped candidate", '{"content":"f("x\\"} y"}', {"content": 'f("x"} y'}, [INNER]),
]


@pytest.mark.parametrize(("name", "text", "value", "fixes"), LOOSE, ids=[row[0] for row in LOOSE])
def test_takes_liberties_and_says_so(name, text, value, fixes):
    if value is None:
        with pytest.raises(Unreadable):
            read_value(text, declared_keys=PLACE)
        return
    for tail in ("", "</tool_call>", "\n```", "<|im_end|>"):
        got = read_value(text + tail, declared_keys=PLACE)
        assert got.value == value
        assert got.end == len(text)
        assert got.supplied_closers == 0
        assert got.fixes
        if fixes is not None:
            assert [fix.detail for fix in got.fixes] == fixes


REFUSED = [
    ("two readings", '["samsung 32" display", "x"]', "invalid_json"),
    ("two ends", '{"content":"f("x")"} and "y"} "z"', "invalid_json"),
    ("two ends, odd", '{"content":"a"b"} c "d"}', "invalid_json"),
    ("prose that may belong to it", '{"content":"f("x")","n":1}\nI wrote "y".', "invalid_json"),
    ("bare word", '{"action": listt_windows"}', "invalid_json"),
    ("word after a string", '{"a": "x" oops}', "invalid_json"),
    ("NaN", '{"a": NaN}', "invalid_json"),
    ("minus infinity", "[-Infinity]", "invalid_json"),
    ("missing comma", "[1 2]", "invalid_json"),
    ("missing colon", '{"a" 1}', "invalid_json"),
    ("two commas", "[1,,2]", "invalid_json"),
    ("only a comma", "[,]", "invalid_json"),
    ("leading zero", "[007]", "invalid_json"),
    ("leading dot", "[.5]", "invalid_json"),
    ("number as a key", "{1: 2}", "invalid_json"),
    ("wrong closer", '{"a": [1}, "b": 2}', "invalid_json"),
    ("comment glued to a string", '{"a":"b"# c\n}', "invalid_json"),
    ("colour is no comment", "[#fff,\n1]", "invalid_json"),
    ("prose", "hello", "invalid_json"),
    ("closer first", "}", "invalid_json"),
    ("hash first", "# x\n{}", "invalid_json"),
    ("braces only", "{{{{", "invalid_json"),
    ("nothing", "  ", "truncated"),
    ("string", '{"a": "x', "truncated"),
    ("single-quoted string", "{'a': 'x", "truncated"),
    ("escape", '{"a": "x\\', "truncated"),
    ("key", '{"a', "truncated"),
    ("key without a value", '{"a"', "truncated"),
    ("colon", '{"a":', "truncated"),
    ("unquoted key", "{a:", "truncated"),
    ("comma", '{"a": 1,', "truncated"),
    ("opener", '{"a": {', "truncated"),
    ("number", '{"a": 12', "truncated"),
    ("exponent", "[1e", "truncated"),
    ("sign", "[-", "truncated"),
    ("fraction", "[1.", "truncated"),
    ("literal", "[tru", "truncated"),
    ("Python literal", "{'a': Non", "truncated"),
    ("line comment", "[1 // x", "truncated"),
    ("block comment", "[1, /* x", "truncated"),
    ("quoted code", '{"content":"print("hi', "truncated"),
    ("quoted code, no closer", '{"content":"print("hi")"', "truncated"),
    ("quoted code, then a string", '{"content":"f("x")","mode":"w', "truncated"),
    ("quoted code, then a number", '{"content":"print("hi")","n":1 ', "truncated"),
    ("deep", "[" * 201 + "]" * 201, "limit"),
    ("deep and loose", "[" * 201 + "," + "]" * 201, "limit"),
    ("deep in a flat part", "[" * 198 + "[[[1]]],'a'" + "]" * 198, "limit"),
    ("too deep for Python", "[" * 5000 + "]" * 5000, "limit"),
    ("long number", "[" + "1" * 5000 + "]", "limit"),
    ("long number alone", "1" * 5000, "limit"),
    ("huge float", '{"a": 1e999}', "limit"),
    ("huge float alone", "1e999", "limit"),
]


@pytest.mark.parametrize(("name", "text", "kind"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refuses_with_a_reason(name, text, kind):
    with pytest.raises(Unreadable) as caught:
        read_value(text, declared_keys=PLACE, supply_closers=True)
    assert caught.value.kind == kind
    assert 0 <= caught.value.at <= len(text)
    assert caught.value.reason in str(caught.value)


CLOSED = [
    ('{"a": "x"', {"a": "x"}, 1, 9),
    ('{"a": [1, {"b": "c"  \n', {"a": [1, {"b": "c"}]}, 3, 19),
    ('{"a": true', {"a": True}, 1, 10),
    ('{"a": [1 ', {"a": [1]}, 2, 8),
    ("{'a': {}", {"a": {}}, 1, 8),
    ('{"a": {"b": ["c"}}', {"a": {"b": ["c"]}}, 1, 18),
    ('{{"a": 1}', {"a": 1}, 1, 9),
    ('{{"a": "b"', {"a": "b"}, 1, 10),
]


@pytest.mark.parametrize(("text", "value", "closed", "end"), CLOSED)
def test_supplies_closers_at_the_end_when_asked(text, value, closed, end):
    got = read_value(text, supply_closers=True)
    assert (got.value, got.supplied_closers, got.end) == (value, closed, end)
    assert sum(fix.kind == "closer" for fix in got.fixes) >= 1
    with pytest.raises(Unreadable):
        read_value(text)


def test_an_unclosed_text_that_is_not_json_is_not_called_truncated():
    with pytest.raises(Unreadable) as caught:
        read_value('{"a": 1 2, "b": [3')
    assert (caught.value.kind, caught.value.at) == ("invalid_json", 8)


def test_names_the_place_of_an_error_behind_mended_text():
    text = "{'a': 'b\\d', /* c */ b: 1 2}"
    with pytest.raises(Unreadable) as caught:
        read_value(text)
    assert caught.value.at == text.index("2")


@pytest.mark.parametrize(
    "tail", ["\nDone.", "\nI'm done.", ' {"path": "b"}', '\n[{"name": "x"}]', "[/TOOL]", '\nI said "done".']
)
def test_what_follows_quoted_code_does_not_change_it(tail):
    text = '{"content":"f("x")"}'
    got = read_value(text + tail, declared_keys=PLACE)
    assert (got.value, got.end) == ({"content": 'f("x")'}, len(text))


def test_reads_where_told_and_leaves_the_rest():
    got = read_value('call: {"a": 1}} rest', 5)
    assert (got.value, got.end, got.fixes) == ({"a": 1}, 14, ())


def test_numbers_keep_their_meaning():
    got = read_value('{"big": 123456789012345678901234567890, "e": 1e3, "z": -0.0,}').value
    assert got["big"] == 123456789012345678901234567890
    assert isinstance(got["e"], float)
    assert math.copysign(1, got["z"]) == -1


def test_a_lone_surrogate_stays():
    assert read_value('{"a": "\\ud83d"}').value == read_value('{"a": "\\ud83d",}').value == {"a": "\ud83d"}


@pytest.mark.parametrize("levels", [199, 200])
def test_200_levels_are_read(levels):
    assert read_value("[" * levels + "]" * levels).fixes == ()


def test_many_brackets_are_no_depth():
    rows = [{"a": [i]} for i in range(300)]
    assert read_value(json.dumps(rows)).value == rows


@SLOW
@given(value=VALUES, pure=st.booleans(), indent=st.sampled_from([None, 1]))
def test_strict_json_is_read_as_it_stands(value, pure, indent):
    text = json.dumps(value, ensure_ascii=pure, indent=indent)
    got = read_value(" \n" + text, 1)
    assert (got.value, got.end, got.fixes, got.supplied_closers) == (value, len(text) + 2, (), 0)


@SLOW
@given(value=st.dictionaries(WORDS, VALUES))
def test_a_trailing_comma_changes_no_value(value):
    got = read_value(json.dumps(value, ensure_ascii=False)[:-1] + ",}") if value else read_value("{}")
    assert got.value == value


@SLOW
@given(value=st.lists(st.dictionaries(PLAIN, PLAIN | st.booleans() | st.none() | st.lists(st.integers())), min_size=1))
def test_what_python_prints_is_read(value):
    assert read_value(repr(value)).value == value


@SLOW
@given(text=SOUP | st.text(), anchors=st.sampled_from([frozenset(), frozenset("ab")]), close=st.booleans())
def test_any_text_is_read_or_unreadable(text, anchors, close):
    try:
        got = read_value(text, declared_keys=anchors, supply_closers=close)
    except Unreadable:
        return
    assert 0 < got.end <= len(text)
    json.dumps(got.value, allow_nan=False)


@SLOW
@given(text=st.text(alphabet="{}[]\"'\\:, \nab1", max_size=15))
def test_a_prefix_is_never_closed_into_another_string(text):
    whole = json.dumps({"a": text})
    for cut in range(len(whole)):
        try:
            got = read_value(whole[:cut], supply_closers=True)
        except Unreadable:
            continue
        assert got.value == {"a": text}


@pytest.mark.parametrize(("text", "read"), [("longer", "longe"), ("-longer", "-long")])
def test_what_is_not_json_is_read_only_so_far(monkeypatch, text, read):
    monkeypatch.setattr(repair, "MAX_WORD", 5)
    with pytest.raises(Unreadable, match=f"'{read}' is not JSON"):
        read_value(text)
