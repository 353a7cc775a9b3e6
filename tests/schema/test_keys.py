"""Keys of arguments that are spelled otherwise, say more than the declared one, or are under a word of the schema."""

import pytest

from promptools.schema import Tools


def tools(properties, required=(), *, marks=None, **more):
    parameters = {"type": "object", "properties": properties, "required": list(required), **more}
    return Tools([{"name": "t", "parameters": parameters}], marks={"t": marks or {}})


def strings(*names):
    return {name: {"type": "string"} for name in names}


def checked(prepared, arguments, **options):
    before = dict(arguments)
    result = prepared.check(prepared[0], arguments, **options)
    assert arguments == before
    return result.arguments, [fix.detail for fix in result.fixes], bool(result.errors)


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        ("path", "Path"),
        ("path", "PATH"),
        ("path", " path "),
        ("targetLanguage", "target_language"),
        ("targetLanguage", "TargetLanguage"),
        ("target_language", "targetLanguage"),
        ("target-language", "target_language"),
        ("start date", "start_date"),
        ("start date", "startDate"),
        ("-A", "A"),
        ("from", "from_"),
        ("größe", "GRÖSSE"),
    ],
)
def test_another_spelling_is_the_declared_key(declared, key):
    for more in ({}, {"additionalProperties": False}, {"additionalProperties": True}):
        prepared = tools(strings(declared), [declared], **more)
        assert checked(prepared, {key: "x"}) == ({declared: "x"}, [f"{key!r} to {declared!r}"], False)


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ({"command=ls": ""}, {"command": "ls"}),
        ({"command=ls -la | grep x=1": ""}, {"command": "ls -la | grep x=1"}),
        ({"cwd": "/", "command=ls\npwd": ""}, {"cwd": "/", "command": "ls\npwd"}),
        ({"command=ls": "", "cwd=/tmp": ""}, {"command": "ls", "cwd": "/tmp"}),
        ({"Cwd": "/", "command=ls": ""}, {"cwd": "/", "command": "ls"}),
    ],
)
@pytest.mark.parametrize("marks", [{}, {"dangerous": True}])
@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}])
def test_a_key_that_holds_its_value_is_divided(arguments, whole, marks, more):
    prepared = tools(strings("command", "cwd"), ["command"], marks=marks, **more)
    result = prepared.check(prepared[0], arguments)
    assert (result.arguments, result.errors) == (whole, ())
    assert list(result.arguments) == list(whole)
    assert "split" in {fix.kind for fix in result.fixes} <= {"split", "alias"}
    first = next(fix for fix in result.fixes if fix.kind == "split")
    assert first.path == "/command"
    assert first.detail.startswith("'command=ls")


@pytest.mark.parametrize(
    "arguments",
    [
        {"command=ls": "-la"},  # where is the value?
        {"command=ls": None},
        {"command=": ""},
        {"command==ls": ""},
        {'command="ls"': ""},
        {"command='ls'": ""},
        {"command=ls cwd=/tmp": ""},
        {"command=ls,cwd=/tmp": ""},
        {"command=ls": "", "command=pwd": ""},
        {"cmd=ls": ""},
        {"command =ls": ""},
        {"other=ls": ""},
        {"command=ls": "", "other": 1},
        {"n=3": ""},
    ],
)
def test_a_key_that_reads_in_two_ways_stays(arguments):
    properties = {**strings("command", "cwd"), "n": {"type": "integer"}}
    prepared = tools(properties, ["command"], additionalProperties=False)
    assert checked(prepared, arguments)[1:] == ([], True)
    assert checked(prepared, {"command=ls": ""}, guess=False)[1:] == ([], True)


def test_a_key_that_the_schema_allows_stays():
    assert checked(tools(strings("command")), {"command=ls": ""}) == ({"command=ls": ""}, [], False)


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (("a_b", "ab"), {"A-B": "x"}),  # either
        (("path", "Path"), {"PATH": "x"}),
        (("path",), {"path": "x", "Path": "y"}),  # it is given
        (("path",), {"Path": "x", "PATH": "y"}),  # two for one
        (("_",), {"-": "x"}),
    ],
)
def test_a_spelling_that_is_in_doubt_stays(names, arguments):
    assert checked(tools(strings(*names)), arguments) == (arguments, [], False)


def test_case_counts_before_separators_do():
    assert checked(tools(strings("a_b", "ab")), {"A_B": "x", "AB": "y"})[0] == {"a_b": "x", "ab": "y"}


def test_a_spelling_outranks_a_known_alias_and_is_outranked_by_ones_own():
    assert checked(tools(strings("City", "location")), {"city": "x"})[0] == {"City": "x"}
    own = tools(strings("City", "location"), marks={"aliases": {"city": "location"}})
    assert checked(own, {"city": "x"})[0] == {"location": "x"}


def test_an_optional_key_is_respelled_only_where_no_others_are_welcome():
    assert checked(tools(strings("unit")), {"Unit": "x"})[0] == {"unit": "x"}
    assert checked(tools(strings("unit"), additionalProperties=True), {"Unit": "x"})[0] == {"Unit": "x"}


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        ("path", "file_path"),
        ("path", "filePath"),
        ("path", "the-path"),
        ("file_path", "path"),
        ("filePath", "path"),
        ("target_path", "path"),
        ("city", "city_name"),
        ("query", "queryText"),
        ("query", "user_query"),
        ("url", "URLString"),
        ("path", "file"),
        ("FilePath", "file"),
        ("Cmd", "shell_command"),
    ],
)
def test_the_only_undeclared_key_is_the_only_missing_one_if_it_says_the_same(declared, key):
    for more in ({}, {"additionalProperties": False}):
        prepared = tools(strings(declared, "other"), [declared], **more)
        arguments = {"other": "o", key: "x"}
        assert checked(prepared, arguments) == ({"other": "o", declared: "x"}, [f"{key!r} to {declared!r}"], False)
        assert checked(prepared, arguments, guess=False)[2]


@pytest.mark.parametrize(
    ("declared", "required", "arguments"),
    [
        (("path",), ["path"], {"new_path": "x"}),
        (("path",), ["path"], {"path_type": "x"}),
        (("path",), ["path"], {"pathology": "x"}),
        (("path",), ["path"], {"x" * 200 + "_path": "x"}),
        (("path", "name"), ["path", "name"], {"file_path": "x"}),  # two are missing
        (("path",), ["path"], {"file_path": "x", "mode": "r"}),  # two are undeclared
        (("path", "old_path"), ["path"], {"file_path_old_path": "x"}),  # an optional one may be meant
        (("path", "file_path"), ["path"], {"the_file_path": "x"}),
        (("id",), [], {"user_id": "x"}),  # nothing is missing
        (("path",), ["path"], {}),
        (("path",), ["path"], {"...": "x"}),
    ],
)
def test_what_is_in_doubt_is_not_guessed(declared, required, arguments):
    result, fixes, _ = checked(tools(strings(*declared), required), arguments)
    assert (result, fixes) == (arguments, [])


def test_a_guess_must_fit():
    prepared = tools({"count": {"type": "integer", "maximum": 5}}, ["count"])
    assert checked(prepared, {"item_count": "3"})[0] == {"count": 3}
    assert checked(prepared, {"item_count": "many"})[::2] == ({"item_count": "many"}, True)
    assert checked(prepared, {"item_count": 7})[::2] == ({"item_count": 7}, True)


def test_no_key_of_a_dangerous_tool_is_guessed():
    prepared = tools(strings("path"), ["path"], marks={"dangerous": True})
    assert checked(prepared, {"file_path": "x"})[2]
    assert checked(prepared, {"Path": "x"})[0] == {"path": "x"}


def test_no_tool_is_inferred_by_a_guess():
    assert tools(strings("path"), ["path"], marks={"infer": True}).infer({"file_path": "x"}) is None


@pytest.mark.parametrize(
    "around",
    [{}, {"type": "object"}, {"type": "object", "required": ["city"], "additionalProperties": False}],
)
@pytest.mark.parametrize("inner", [{"city": "Oslo"}, {"City": "Oslo"}])
def test_arguments_under_properties(around, inner):
    arguments, fixes, _ = checked(tools(strings("city"), ["city"]), {**around, "properties": inner})
    assert arguments == {"city": "Oslo"}
    assert fixes[0] == "the arguments were under 'properties'"


@pytest.mark.parametrize(
    "arguments",
    [
        {"properties": {}},
        {"properties": "Oslo"},
        {"properties": {"city": "string"}},
        {"properties": {"city": {"type": "string"}}},
        {"properties": {"city": {"description": "where"}}},
        {"properties": {"city": "Oslo", "more": "x"}},  # it may be a parameter of that name
        {"properties": {"city": 5.5}},
        {"properties": {"city": "Oslo"}, "type": "string"},
        {"properties": {"city": "Oslo"}, "also": 1},
    ],
)
def test_what_is_under_properties_and_no_arguments(arguments):
    assert checked(tools({"city": {"type": "string"}}), arguments) == (arguments, [], False)


def test_properties_that_the_tool_declares_are_its_own():
    arguments = {"properties": {"city": "Oslo"}}
    assert checked(tools({"properties": {}, "city": {}}), arguments) == (arguments, [], False)


def test_where_other_keys_are_welcome_properties_are_opened_only_for_what_is_missing():
    arguments = {"properties": {"city": "Oslo"}}
    assert checked(tools(strings("city"), additionalProperties=True), arguments)[0] == arguments
    assert checked(tools(strings("city"), ["city"], additionalProperties=True), arguments)[0] == {"city": "Oslo"}


def test_of_many_spellings_of_one_key_none_is_taken():
    arguments = {format(at, "b").translate({48: "-", 49: "_"}) + "city": at for at in range(2000)}
    assert checked(tools(strings("city"), ["city"]), arguments)[0] == arguments
