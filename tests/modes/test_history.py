import json

import pytest

from promptools.modes.history import alnum9_id, parse_history
from promptools.wire.json_body import split_content


def assistant(*calls, **keys):
    return {"role": "assistant", "tool_calls": list(calls), **keys}


def call(name="f", arguments="{}", **keys):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **keys}


def result(content="r", **keys):
    return {"role": "tool", "content": content, **keys}


def results(*messages):
    turns, _ = parse_history(messages)
    return [(turn.result.call_id, turn.result.name, turn.result.content) for turn in turns if turn.result]


def calls(*messages):
    turns, _ = parse_history(messages)
    return [(each.id, each.name, each.arguments) for turn in turns for each in turn.calls]


def test_results_find_their_calls_by_id():
    asked = assistant(call("f", id="1"), call("g", id="2"))
    assert results(asked, result("b", tool_call_id="2"), result("a", tool_call_id="1")) == [
        ("2", "g", "b"),
        ("1", "f", "a"),
    ]


def test_results_without_ids_go_to_the_calls_in_order_or_by_name():
    asked = assistant(call("f", id="1"), call("g", id="2"), call("f", id="3"))
    assert results(asked, result("a"), result("b", name="f"), result("c")) == [
        ("1", "f", "a"),
        ("3", "f", "b"),
        ("2", "g", "c"),
    ]
    assert results(asked, result("x", tool_call_id="other")) == [("other", "", "x")]
    assert results(result("x")) == [("", "", "x")]


def test_a_late_result_still_knows_its_call():
    assert results(assistant(call("f", id="1")), assistant(call("g", id="2")), result("a", tool_call_id="1")) == [
        ("1", "f", "a")
    ]


def test_ids_that_are_missing_or_used_twice_are_made():
    made = calls(assistant(call("f"), call("g", id="1"), call("h", id="1")))
    ids = [each[0] for each in made]
    assert len(set(ids)) == 3
    assert ids[1] == "1"
    assert calls(assistant(call("f"), call("g", id="1"), call("h", id="1"))) == made


@pytest.mark.parametrize(
    ("said", "read", "text", "note"),
    [
        ('{"a":  1}', {"a": 1}, '{"a":  1}', ""),
        ({"a": 1}, {"a": 1}, '{"a": 1}', ""),
        ("", {}, "{}", ""),
        (None, {}, "{}", ""),
        ("{'a': 1,}", {"a": 1}, '{"a": 1}', "mended"),
        ('{"a": [1]', {"a": [1]}, '{"a": [1]}', "mended"),
        ('{"a": "cut', {}, "{}", "sent as {}"),
        ('{"a": NaN}', {}, "{}", "sent as {}"),
        ("[1]", {}, "{}", "sent as {}"),
        ("[" * 100_000, {}, "{}", "sent as {}"),
    ],
)
def test_past_arguments_are_always_json(said, read, text, note):
    turns, notes = parse_history([assistant(call("f", said, id="1"))])
    (found,) = turns[0].calls
    assert (found.arguments, found.arguments_json) == (read, text)
    assert json.loads(found.arguments_json) == found.arguments
    assert (note in notes[0]) if note else not notes


def test_the_old_form_and_custom_tools_are_read():
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert [each[1] for each in calls(old)] == ["f"]
    assert results(old, {"role": "function", "name": "f", "content": "r"})[0][1:] == ("f", "r")
    custom = {"id": "1", "type": "custom", "custom": {"name": "c", "input": '{"a": 1}'}}
    assert calls(assistant(custom)) == [("1", "c", {"a": 1})]


def test_roles_go_by_their_own_names():
    turns, _ = parse_history([{"role": "developer", "content": "d"}, {"content": "x"}])
    assert [turn.role for turn in turns] == ["system", ""]


@pytest.mark.parametrize(
    ("content", "text", "others"),
    [
        ("a", "a", 0),
        (None, "", 0),
        ({"a": 1}, '{"a": 1}', 0),
        ([{"type": "text", "text": "a"}, "b", {"type": "image_url", "image_url": {}}, {}, 3], "a\nb", 1),
    ],
)
def test_parts_are_split(content, text, others):
    found, rest = split_content(content)
    assert (found, len(rest)) == (text, others)


def test_nine_alphanumerics():
    assert alnum9_id("abcDEF123") == "abcDEF123"
    made = alnum9_id("chatcmpl-tool-0123456789abcdef")
    assert made == alnum9_id("chatcmpl-tool-0123456789abcdef")
    assert len(made) == 9
    assert made.isalnum()
    assert alnum9_id("") != alnum9_id("\ud800")


@pytest.mark.parametrize(
    ("flags", "failed"),
    [
        ({"is_error": True}, True),
        ({"isError": True}, True),
        ({"status": "error"}, True),
        ({}, False),
        ({"is_error": False}, False),
        ({"is_error": "no"}, False),
        ({"status": "success"}, False),
        ({"content": "Error: no such file"}, False),
    ],
)
def test_a_result_is_an_error_where_the_client_flags_it(flags, failed):
    turns, _ = parse_history([assistant(call(id="1")), {**result(tool_call_id="1"), **flags}])
    assert turns[1].result is not None
    assert turns[1].result.is_error is failed
