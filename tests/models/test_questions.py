"""The questions for real models, how an answer is judged, and the page that is made of the answers."""

import json
import re
from collections import Counter
from itertools import product

import jsonschema
import pytest

from benchmarks.models import agent, page
from benchmarks.models.markdown import read_part
from benchmarks.models.question import KINDS, Due, Question, questions
from benchmarks.models.rows import QUESTIONS
from benchmarks.models.score import judge, matches

ASKED = questions()


def test_there_are_enough_of_each_kind_and_no_name_is_used_twice():
    assert len(ASKED) >= 120
    assert len({each.name for each in ASKED}) == len(ASKED)
    counts = Counter(each.kind for each in ASKED)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 20


def test_each_half_has_enough_of_each_kind():
    counts = Counter((each.half, each.kind) for each in ASKED)
    assert all(counts[half, kind] >= 5 for half, kind in product(("chosen", "held"), KINDS))


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.name)
def test_a_question_is_well_formed(asked):
    offered = {tool["name"]: tool["parameters"] for tool in asked.tools}
    for schema in offered.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for due in asked.due:
        jsonschema.validate(
            {name: one(value) for name, value in due.arguments.items()}, without_patterns(offered[due.name])
        )
        assert {*due.arguments, *due.optional} <= offered[due.name]["properties"].keys()
    assert asked.messages[-1]["role"] in {"user", "tool"}
    assert (asked.kind == "one") <= (len(asked.tools) == 1)
    assert (asked.kind == "parallel") <= (len(asked.due) > 1)
    assert (asked.kind == "none") <= (not asked.due)
    assert asked.says is None or re.compile(asked.says)


def one(value):
    """A value that a pattern allows; for free text anything."""
    match value:
        case {"any": [first, *_], **others} if not others:
            return one(first)
        case {"like": _, **others} if not others:
            return "text"
        case dict():
            return {key: one(each) for key, each in value.items()}
        case list():
            return [one(each) for each in value]
    return value


def without_patterns(schema):
    """A schema that takes any text where a question only says what it must hold."""
    return json.loads(json.dumps(schema), object_hook=lambda node: {k: v for k, v in node.items() if k != "pattern"})


def test_the_right_answer_is_right_and_no_answer_is_not():
    for asked in ASKED:
        calls = [{"name": due.name, "arguments": {k: one(v) for k, v in due.arguments.items()}} for due in asked.due]
        if "like" not in str(asked.due):
            assert judge(asked, calls, "") == ("right" if calls else "answer"), asked.name
        assert judge(asked, [], "") != "right"


MATCHES = [
    ("Paris", "paris", True),
    (" Paris. ", "Paris", True),
    ("Paris", "Rome", False),
    ("Paris, France", {"any": ["Paris", "Paris, France"]}, True),
    ("Oslo", {"any": ["Paris", "Paris, France"]}, False),
    ("Buy two  pears", {"like": r"two\s+pears"}, True),
    ("Paris.", {"like": "^Paris$"}, True),
    (3, {"like": "3"}, False),
    (20, 20.0, True),
    ("20", 20, False),
    (True, 1, False),
    (1, True, False),
    (True, True, True),
    (None, None, True),
    ([1, 2], [1, 2], True),
    ([2, 1], [1, 2], False),
    ([1], [1, 2], False),
    ("12", [1, 2], False),
    ({"a": "X"}, {"a": {"any": ["x", "y"]}}, True),
    ({"a": "x", "b": 1}, {"a": "x"}, False),
    ({}, {"a": "x"}, False),
    ("x", {"a": "x"}, False),
    ({"any": ["x"], "b": 1}, {"any": ["x"], "b": 1}, True),
]


@pytest.mark.parametrize(("value", "expected", "same"), MATCHES)
def test_values_match(value, expected, same):
    assert matches(value, expected) is same


def question(*due, says=None):
    return Question("q", "several", ({"role": "user", "content": "?"},), ({"name": "f"},), due, says, "held")


F = Due("f", {"a": 1}, {"b": {"any": [2, 3]}})
G = Due("g", {}, {})


@pytest.mark.parametrize(
    ("due", "calls", "outcome"),
    [
        ([F], [("f", {"a": 1})], "right"),
        ([F], [("f", {"a": 1, "b": 3})], "right"),
        ([F], [("f", {"a": 1, "b": None})], "right"),
        ([F], [("f", {"a": 1, "b": 4})], "arguments"),
        ([F], [("f", {"a": 1, "c": 4})], "arguments"),
        ([F], [("f", {})], "arguments"),
        ([F], [("f", {"a": None})], "arguments"),
        ([F], [("f", '{"a": 1')], "arguments"),
        ([F], [("g", {"a": 1})], "tool"),
        ([F], [], "no call"),
        ([F], [("f", {"a": 1}), ("f", {"a": 1})], "too many"),
        ([F, G], [("f", {"a": 1})], "too few"),
        ([F, G], [("g", {}), ("f", {"a": 1})], "right"),
        ([G, G], [("g", {}), ("f", {"a": 1})], "tool"),
        ([], [("f", {"a": 1})], "needless call"),
    ],
)
def test_calls_are_judged(due, calls, outcome):
    made = [{"name": name, "arguments": arguments} for name, arguments in calls]
    assert judge(question(*due), made, "") == outcome


def test_answers_in_words_are_judged():
    assert judge(question(), [], "It is so.") == "right"
    assert judge(question(), [], "  ") == "answer"
    assert judge(question(says=r"\b18\b"), [], "It has 18 degrees.") == "right"
    assert judge(question(says=r"\b18\b"), [], "It has 180 degrees.") == "answer"


@pytest.mark.parametrize(
    ("right", "total", "low", "high"), [(0, 10, 0.0, 0.278), (5, 10, 0.237, 0.763), (10, 10, 0.722, 1.0)]
)
def test_an_interval_is_wilsons(right, total, low, high):
    # the figures of Brown, Cai and DasGupta (2001) for ten trials
    assert page.interval(right, total) == pytest.approx((low, high), abs=0.001)


def test_the_page_is_what_the_rows_say():
    assert read_part(page.PAGE, page.TARGET) == page.text()


def test_every_row_is_of_a_question_that_is_asked_today():
    digests = {each.name: each.digest for each in ASKED}
    stale = [row.question for row in QUESTIONS.read() if digests.get(row.question) != row.digest]
    assert not stale, "ask again: make results-models"


def test_the_agent_runs_only_what_it_may(tmp_path):
    (tmp_path / "hello.py").write_text("print('hello')")
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    assert agent.result(tmp_path, "run_command", '{"command": "python3 hello.py"}') == "hello\n"
    assert agent.result(tmp_path, "run_command", '{"command": "wc -l notes.txt"}') == "2 notes.txt\n"
    assert "may not be run" in agent.result(tmp_path, "run_command", '{"command": "touch made"}')
    assert "may not be run" in agent.result(tmp_path, "run_command", '{"command": "python3 -c pass"}')
    assert agent.result(tmp_path, "run_command", '{"command": "cat /etc/notes.txt"}') == "one\ntwo\n"
    assert agent.result(tmp_path, "read_file", '{"path": "../notes.txt"}') == "one\ntwo\n"
    for name, arguments in [
        ("read_file", '{"path": "no.txt"}'),
        ("other", "{}"),
        ("read_file", "{}"),
        ("read_file", "x"),
    ]:
        assert agent.result(tmp_path, name, arguments).startswith("error")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hello.py", "notes.txt"]
