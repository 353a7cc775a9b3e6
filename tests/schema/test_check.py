"""Checking arguments: what is valid, what is coerced, and what the model is told about the rest."""

import copy
import json
import socket

import jsonschema
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_strategies import schemas, types, values

from promptools.errors import UsageError
from promptools.schema import Checked, Tools, coerce, predicates, validate
from promptools.types import Fix


def prepared(properties, *, strict=False, **more):
    return Tools([{"name": "t", "parameters": {"type": "object", "properties": properties, **more}}], strict=strict)


def check(schema, value, text=None, **more):
    """Check one value as the argument `v`; give it back with the fixes and errors."""
    tools = prepared({"v": schema}, required=["v"], **more)
    arguments = {"v": value}
    before = copy.deepcopy(arguments)
    checked = tools.check(tools[0], arguments, text)
    assert arguments == before
    return checked


def same(left, right):
    return json.dumps(left) == json.dumps(right)


INTEGER, NUMBER, STRING, BOOLEAN, NULL = ({"type": name} for name in ("integer", "number", "string", "boolean", "null"))
OBJECT, ARRAY = {"type": "object"}, {"type": "array"}
INTS = {"type": "array", "items": INTEGER}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INTEGER, 5),
        (INTEGER, 10**30),
        (NUMBER, 1e3),
        (NUMBER, 3),
        (STRING, "5"),
        (STRING, "null"),
        (STRING, '{"a": 1}'),
        ({"type": ["string", "integer"]}, "5"),
        ({"type": ["string", "null"]}, "null"),
        ({"anyOf": [INTEGER, STRING]}, "5"),
        ({"anyOf": [OBJECT, STRING]}, "{}"),
        ({}, "5"),
        (True, "5"),
        ({"enum": ["A", "a"]}, "a"),
        ({"anyOf": [STRING, NULL]}, "None"),
        (INTS, [1, 2]),
        (OBJECT, {"a": "5"}),
    ],
)
def test_valid_values_are_the_same_objects(schema, value):
    tools = prepared({"v": schema})
    arguments = {"v": value}
    checked = tools.check(tools[0], arguments)
    assert checked == Checked(arguments)
    assert checked.arguments is arguments


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        (INTEGER, "5", 5),
        (INTEGER, " -5 ", -5),
        (INTEGER, "+5", 5),
        (INTEGER, "5.0", 5),
        (INTEGER, "5.", 5),
        (INTEGER, "12345678901234567890123", 12345678901234567890123),
        (INTEGER, 3.0, 3),
        (INTEGER, 1e3, 1000),
        (NUMBER, "5", 5),
        (NUMBER, "5.0", 5.0),
        (NUMBER, ".5", 0.5),
        (NUMBER, "1e3", 1000.0),
        (BOOLEAN, "true", True),
        (BOOLEAN, "True", True),
        (BOOLEAN, "FALSE", False),
        (NULL, "null", None),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": ["number", "boolean"]}, "true", True),
        (OBJECT, '{"a": "5"}', {"a": "5"}),
        (OBJECT, "{'a': True, 'b': None}", {"a": True, "b": None}),
        (OBJECT, '"{\\"a\\": 1}"', {"a": 1}),
        (ARRAY, "[1, 2]", [1, 2]),
        (ARRAY, """["it's", 'say "x"', 'it\\'s', 'a\\xe9\\n']""", ["it's", 'say "x"', "it's", "aé\n"]),
        (INTS, "[1, '2']", [1, 2]),
        (INTS, 5, [5]),
        (INTS, "5", [5]),
        (ARRAY, "a, b", ["a, b"]),
        (ARRAY, {"a": 1}, [{"a": 1}]),
        ({"enum": ["Celsius", "Fahrenheit"]}, "celsius ", "Celsius"),
        ({"const": "On"}, "ON", "On"),
        ({"enum": [1, 2, None, True]}, "2", 2),
        ({"enum": [1, 2, None, True]}, "null", None),
        ({"enum": [1, 2, None, True]}, "True", True),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        ({"enum": ["a", None]}, "None", None),
        (STRING, 5, "5"),
        ({"type": ["string", "null"]}, 5, "5"),
        ({"anyOf": [INTEGER, NULL]}, "5", 5),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        ({"oneOf": [INTEGER, BOOLEAN]}, "true", True),
        ({"anyOf": [{"type": "array", "items": STRING}, STRING]}, 5, "5"),
        ({"anyOf": [{"type": "array", "items": INTEGER}, NULL]}, "5", [5]),
        ({"anyOf": [{"enum": ["a"]}, NULL]}, "null", None),
        ({"anyOf": [{"anyOf": [INTEGER, BOOLEAN]}, NULL]}, "5", 5),
        ({"allOf": [{"type": ["string", "integer"]}, INTEGER]}, "5", 5),
        ({"anyOf": [{"properties": {"k": {"const": "a"}}}, {"properties": {"n": INTEGER}}]}, {"k": "b", "n": "5"},
         {"k": "b", "n": 5}),
        ({"type": "object", "properties": {"a": INTS, "b": BOOLEAN}}, {"a": ["1", 2], "b": "false"},
         {"a": [1, 2], "b": False}),
    ],
)  # fmt: skip
def test_values_become_what_the_schema_wants(schema, value, wanted):
    checked = check(schema, value)
    assert checked.errors == ()
    assert same(checked.arguments, {"v": wanted})
    assert {fix.kind for fix in checked.fixes} == {"coerce"}
    assert all(fix.path.startswith("/v") for fix in checked.fixes)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INTEGER, "5.5"),
        (INTEGER, "five"),
        (INTEGER, ""),
        (INTEGER, "1_000"),
        (INTEGER, "٥"),
        (INTEGER, "5" * 5000),
        (INTEGER, 5.5),
        (INTEGER, True),
        (INTEGER, None),
        (INTEGER, [5]),
        (NUMBER, "1e999"),
        (NUMBER, "nan"),
        (NUMBER, "5" * 5000 + ".5"),
        (NUMBER, float("inf")),
        (NUMBER, float("nan")),
        (BOOLEAN, 1),
        (BOOLEAN, "yes"),
        (NULL, "nil"),
        (OBJECT, "[1]"),
        (OBJECT, "{'a': 1"),
        (OBJECT, "{'a': NaN}"),
        (OBJECT, '"' + "[" * 100_000 + '"'),
        (OBJECT, "[" * 100_000),
        (OBJECT, "x"),
        (OBJECT, json.dumps(json.dumps(json.dumps(json.dumps(json.dumps({"a": 1})))))),
        (OBJECT, "{\\'a\\': 1}"),
        (OBJECT, "{'a\\x4': 1}"),
        (ARRAY, None),
        (ARRAY, "[1, 2"),
        (ARRAY, '{"a": 1}'),
        (STRING, True),
        (STRING, None),
        (STRING, 1.10),  # its spelling is lost
        (STRING, {"a": 1}),
        ({"type": "string", "minLength": 9}, "5"),
        ({"anyOf": [{"type": "string", "minLength": 9}, NULL]}, "null"),
        ({"anyOf": [{"anyOf": [{"type": "string", "minLength": 9}, BOOLEAN]}, NULL]}, "null"),
        ({"enum": ["A", "a "]}, "a"),
        ({"enum": ["a", 5]}, "b"),
        ({"enum": [[1], {"a": 1}]}, "[1]"),
        ({"enum": ["5"]}, 5.0),
        ({"enum": ["True"]}, True),
        ({"oneOf": [INTEGER, {"minimum": 3}]}, 5),
        ({"type": "integer", "minimum": 3}, "2"),
        (False, "5"),
        ({"not": STRING}, "5"),
        ({"oneOf": [False, INTEGER]}, "x"),
        ({"anyOf": [False]}, "x"),
        ({"oneOf": [OBJECT, {"minProperties": 1}]}, {"a": 1}),
        ({"pattern": "^a", "type": "integer"}, []),
        ({"additionalProperties": False, "type": "object"}, "x"),
        ({"anyOf": [{"properties": {"a": INTEGER, "b": INTEGER}}, NULL]}, {"a": "x", "b": "x"}),
        ({"required": ["a"], "type": "object"}, {"b": 1}),
    ],
)  # fmt: skip
def test_what_cannot_be_mended_is_told(schema, value):
    checked = check(schema, value)
    assert checked.errors
    assert all(
        isinstance(error, str) and error.startswith(("/v", "arguments: ")) and len(error) < 900
        for error in checked.errors
    )


@pytest.mark.parametrize(
    ("spelling", "wanted"), [("1.10", "1.10"), ("1e3", "1e3"), ("-0", "-0"), ("7", "7"), ("0.30000000000000004", None)]
)
def test_a_number_for_a_string_keeps_its_spelling(spelling, wanted):
    text = f'{{"v": {spelling}}}'
    checked = check(STRING, json.loads(text)["v"], text)
    assert checked.arguments == {"v": wanted or spelling}
    assert checked.errors == ()


@pytest.mark.parametrize("text", [None, "", "{", '{"v": NaN}', '{"w": 1.5}', '{"v": "1.5"}', "[1.5]"])
def test_a_float_without_its_spelling_stays(text):
    assert check(STRING, 1.5, text).arguments == {"v": 1.5}


def test_spellings_are_found_inside():
    schema = {"type": "object", "properties": {"v": {"type": "array", "items": STRING}}}
    assert check(schema, {"v": [1.10, 2.0]}, '{"v": {"v": [1.10, 2.0]}}').arguments == {"v": {"v": ["1.10", "2.0"]}}


def test_the_arguments_themselves_are_mended_inside_alternatives():
    tools = Tools([{"name": "t", "parameters": {"anyOf": [{"properties": {"n": INTEGER}, "required": ["n"]},
                                                          {"required": ["m"]}]}}])  # fmt: skip
    assert tools.check(tools[0], {"n": "5"}).arguments == {"n": 5}


def test_arguments_never_become_something_else():
    tools = Tools([{"name": "t", "parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["array", "null"]}}}}])
    checked = tools.check(tools[0], {})
    assert checked.arguments == {}
    assert checked.errors == ("arguments: {} is an object; wanted an array or null",)


def test_fixes_say_what_was_done_and_where():
    tools = prepared({"n": INTEGER, "a/b": {"type": "array", "items": BOOLEAN}})
    checked = tools.check(tools[0], {"n": "5", "a/b": [True, "false"]})
    assert checked.fixes == (
        Fix("coerce", "'5' to 5", "/n"),
        Fix("coerce", "'false' to False", "/a~1b/1"),
    )


def test_aliases_and_coercion_work_together():
    tools = prepared({"num_results": INTEGER})
    checked = tools.check(tools[0], {"limit": "5"})
    assert checked.arguments == {"num_results": 5}
    assert [fix.kind for fix in checked.fixes] == ["alias", "coerce"]


def test_what_remains_wrong_is_told_after_coercion():
    tools = prepared({"n": INTEGER, "m": INTEGER}, required=["k"])
    checked = tools.check(tools[0], {"n": "5", "m": "x"})
    assert checked.arguments == {"n": 5, "m": "x"}
    assert checked.errors == (
        "/m: 'x' is a string; wanted an integer",
        "arguments: the required 'k' is missing",
    )


@pytest.mark.parametrize(
    ("schema", "value", "sentence"),
    [
        ({"type": ["integer", "null"]}, [], "/v: [] is an array; wanted an integer or null"),
        (STRING, None, "/v: None is null; wanted a string"),
        ({"enum": ["a", 1]}, "b", "/v: 'b' is none of 'a', 1"),
        ({"const": "a"}, "b", "/v: 'b' is not 'a'"),
        ({"anyOf": [NULL, {"type": "array", "items": INTEGER}]}, ["x"],
         "/v: ['x'] fits no alternative: ['x'] is an array; wanted null; or /0: 'x' is a string; wanted an integer"),
        ({"anyOf": [{"const": n} for n in range(6)]}, "x",
         "/v: 'x' fits no alternative: 'x' is not 0; or 'x' is not 1; or 'x' is not 2; or 'x' is not 3; or 2 more"),
        ({"properties": {"a": {}, "b": {}}, "additionalProperties": False}, {"c": 1},
         "/v: there is no 'c' here; known: 'a', 'b'"),
        ({"additionalProperties": False}, {"c": 1}, "/v: there is no 'c' here; known: none"),
        ({"additionalProperties": INTEGER}, {"c": "x"}, "/v/c: 'x' is a string; wanted an integer"),
        ({"properties": {"c": False}}, {"c": "x"}, "/v: 'x' is not allowed here"),
        ({"pattern": "^a+$"}, "b", "/v: 'b' does not match the pattern '^a+$'"),
        ({"patternProperties": {"^n_": INTEGER}, "additionalProperties": False}, {"n_x": "x", "y": 1},
         "/v: there is no 'y' here; known: none"),
        (INTEGER, list(range(30)), "/v: an array of 30 is an array; wanted an integer"),
        ({"maximum": 3}, 5, "/v: 5 is greater than the maximum of 3"),
    ],
)  # fmt: skip
def test_sentences(schema, value, sentence):
    assert sentence in check(schema, value).errors


TREE = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"l": {"$ref": "#/$defs/n"}},
            "required": ["l"],
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}}, "minProperties": 1},
        {"oneOf": [INTEGER, BOOLEAN]},
    ]
}


def tree(leaf, depth=30):
    for _ in range(depth):
        leaf = {"l": leaf}
    return leaf


def test_a_tree_with_alternatives_costs_no_more_at_each_level():
    more = {"$defs": {"n": TREE}}
    assert check({"$ref": "#/$defs/n"}, tree(5), **more).errors == ()
    checked = check({"$ref": "#/$defs/n"}, tree("5"), **more)
    assert checked.arguments == {"v": tree(5)}
    assert [fix.path for fix in checked.fixes] == ["/v" + "/l" * 30]
    bad = check({"$ref": "#/$defs/n"}, tree("x"), **more)
    assert len(bad.errors) == 1
    assert bad.arguments == {"v": tree("x")}
    assert check({"$ref": "#/$defs/n"}, {"l": 5, "r": "6"}, **more).arguments == {"v": {"l": 5, "r": 6}}


def test_what_is_hopeless_is_given_up_early(monkeypatch):
    monkeypatch.setattr(coerce, "MAX_UNFIXABLE", 3)
    assert check(INTS, ["5", "x", "x", "x"]).arguments == {"v": [5, "x", "x", "x"]}
    checked = check(INTS, ["5", "x", "x", "x", "x"])
    assert checked.arguments == {"v": ["5", "x", "x", "x", "x"]}
    assert checked.fixes == ()


def test_only_the_first_errors_are_told():
    checked = check(INTS, ["x"] * 20)
    assert len(checked.errors) == validate.MAX_ERRORS + 1
    assert checked.errors[-1] == "and more of the kind"


def test_patterns_run_on_regex_with_a_time_limit(monkeypatch):
    monkeypatch.setattr(validate, "PATTERN_SECONDS", 0.01)
    hostile = "a" * 40 + "!"
    for schema, value in (
        ({"pattern": r"^(\w|\w\w|\d)+$"}, hostile),
        ({"patternProperties": {r"^(\w|\w\w|\d)+$": INTEGER}}, {hostile: 1}),
        ({"patternProperties": {r"^(\w|\w\w|\d)+$": INTEGER}, "additionalProperties": False}, {hostile: 1}),
    ):
        checked = check(schema, value)
        assert checked.errors == ()
        assert [fix.kind for fix in checked.fixes] == ["unchecked"]
        assert "took too long" in checked.fixes[0].detail
        assert not checked.verified


def test_patterns_know_what_regex_knows():
    assert check({"pattern": r"^\p{L}+$"}, "städte").errors == ()
    assert check({"pattern": r"^\p{L}+$"}, "5").errors
    assert check({"patternProperties": {"^a": INTEGER, "b$": STRING}}, {"ab": "5"}).errors
    assert check({"patternProperties": {"^a": INTEGER}}, "no object").errors == ()


@pytest.mark.parametrize("where", [{"pattern": "(["}, {"patternProperties": {"([": {}}}, {"pattern": "("}])
def test_a_pattern_that_cannot_compile_is_refused_where_it_is_strict(where):
    with pytest.raises(UsageError, match=r"Tool 't': the pattern '.*' at '/properties/v/pattern.*' cannot be compiled"):
        prepared({"v": where}, strict=True)


def test_patterns_without_a_time_limit_are_refused_where_it_is_strict():
    with pytest.raises(UsageError, match="both 'unevaluatedProperties' and 'patternProperties'"):
        prepared({"v": {"patternProperties": {"a": {}}, "unevaluatedProperties": False}}, strict=True)
    assert check({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}).errors


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": INTEGER}, "required": ["n"]}


@pytest.mark.parametrize("more", [{}, {"uniqueItems": True}], ids=["predicate", "jsonschema alone"])
def test_recursive_schemas_check_recursive_values(more):
    node = {**NODE, **more}
    assert check({"$ref": "#/$defs/node"}, {"n": 1, "next": {"n": 2}}, **{"$defs": {"node": node}}).errors == ()
    checked = check({"$ref": "#/$defs/node"}, {"n": 1, "next": {"n": "2"}}, **{"$defs": {"node": node}})
    assert checked.arguments == {"v": {"n": 1, "next": {"n": 2}}}


@pytest.mark.parametrize("more", [{}, {"uniqueItems": True}], ids=["predicate", "jsonschema alone"])
def test_a_depth_bomb_of_a_value_is_an_error_not_an_exception(more):
    tools = prepared({"v": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": {**NODE, **more}}})
    bomb = {"n": 1}
    for _ in range(5000):
        bomb = {"n": 1, "next": bomb}
    assert tools.check(tools[0], {"v": bomb}).errors == ("arguments: nested too deeply to be checked; nest them less",)


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"multipleOf": 0.1}, 10**400), ({"maximum": 3}, 10**5000)],
    ids=["no float", "no digits"],
)
def test_whatever_the_validator_raises_is_an_error_of_the_value(schema, value):
    tools = prepared({"v": schema})
    errors = tools.check(tools[0], {"v": value}).errors
    assert len(errors) == 1
    assert errors[0].startswith("arguments: cannot be checked")


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        ("#/$defs/absent", {}),
        ("#absent", {}),
        ("http://127.0.0.1:9/schema.json", {}),
        ("https://json-schema.org/draft/2020-12/schema", {}),
        ("other.json", {"$id": "http://127.0.0.1:9/"}),
        ("#/$defs/a/type", {"$defs": {"a": {"type": "string"}}}),
    ],
)
def test_references_that_lead_nowhere_are_refused_without_io_where_it_is_strict(ref, more, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    with pytest.raises(UsageError, match=r"Tool 't': the reference '.*' at '/properties/v/\$ref' leads"):
        prepared({"v": {"$ref": ref}}, strict=True, **more)


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        ("#/$defs/a", {"$defs": {"a": INTEGER}}),
        ("#here", {"$defs": {"a": {"$anchor": "here", **INTEGER}}}),
        ("#/definitions/a", {"definitions": {"a": INTEGER}, "$schema": "http://json-schema.org/draft-07/schema#"}),
        ("#/components/a", {"components": {"a": INTEGER}}),
        ("#/$defs/b", {"$defs": {"b": {"$ref": "#/$defs/a"}, "a": INTEGER}}),
        ("http://example.com/a", {"$defs": {"a": {"$id": "http://example.com/a", **INTEGER}}}),
        ("#/$defs/a~1b", {"$defs": {"a/b": INTEGER}}),
        ("#/properties/w", {"required": []}),
    ],
)
def test_references_of_every_kind_are_followed(ref, more):
    tools = prepared({"v": {"$ref": ref}, "w": INTEGER}, **more)
    assert tools.check(tools[0], {"v": 5}).errors == ()
    assert tools.check(tools[0], {"v": "5"}).arguments == {"v": 5}
    assert tools.check(tools[0], {"v": []}).errors


def test_a_reference_to_what_is_not_a_schema_is_refused_where_it_is_strict():
    with pytest.raises(UsageError, match=r"not a valid JSON Schema .* at '/properties/v/\$ref/type'"):
        prepared({"v": {"$ref": "#/components/a"}}, strict=True, components={"a": {"type": "strin"}})
    assert check({"$ref": "#/components/a"}, 5, components={"a": True}).errors == ()
    assert check({"$ref": "#/components/a"}, 5, components={"a": False}).errors


@pytest.mark.parametrize(
    "node",
    [
        {"$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#/$defs/a"}]},
        {"anyOf": [STRING, {"$ref": "#/$defs/b"}]},
        {"not": {"$ref": "#/$defs/a"}},
        {"if": {"$ref": "#/$defs/a"}},
        {"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}},
        {"$dynamicRef": "#/$defs/a"},
    ],
)
def test_endless_references_are_refused_where_it_is_strict(node):
    with pytest.raises(UsageError, match=r"the references at '/\$defs/[ab].*' lead back to themselves"):
        prepared({}, strict=True, **{"$defs": {"a": node, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}})


def test_the_whole_schema_may_hold_itself():
    tools = prepared({"n": INTEGER, "sub": {"$ref": "#"}}, **{"$schema": "http://json-schema.org/draft-07/schema#"})
    assert tools.check(tools[0], {"sub": {"sub": {"n": "5"}}}).arguments == {"sub": {"sub": {"n": 5}}}
    with pytest.raises(UsageError, match="the references at '/' lead back"):
        Tools([{"name": "t", "parameters": {"$ref": "#"}}], strict=True)


def test_the_schema_in_the_tool_keeps_what_the_caller_wrote():
    parameters = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    assert Tools([{"name": "t", "parameters": parameters}])[0].parameters == parameters


def test_a_quote_that_never_closes_costs_no_more_than_the_text():
    for hostile in ("{" + "\\'" * 100_000, "['" + "\\'" * 100_000, "{" + "\"'" * 100_000, "{'" + '"' * 100_000):
        assert check(OBJECT, hostile).errors


def test_the_regex_limit_is_real():
    with pytest.raises(TimeoutError):
        regex.compile(r"^(\w|\w\w|\d)+$").search("a" * 60 + "!", timeout=0.01)


SUPPORTED_KEYWORDS = {
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "format",
    "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
    "oneOf", "pattern", "properties", "required", "type",
}  # fmt: skip
"""Assertions with a predicate; `format` asserts nothing in draft 2020-12."""


def test_every_assertion_of_the_draft_is_either_common_or_not():
    assert set(jsonschema.Draft202012Validator.VALIDATORS) == SUPPORTED_KEYWORDS | predicates.UNSUPPORTED_KEYWORDS
    assert not SUPPORTED_KEYWORDS & predicates.UNSUPPORTED_KEYWORDS


@pytest.mark.parametrize("word", sorted(predicates.UNSUPPORTED_KEYWORDS - {"$dynamicRef"}))
def test_uncommon_schemas_have_no_predicate(word):
    value = {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {}}, "multipleOf": 2, "prefixItems": [{}]}
    value |= {"patternProperties": {"a": {}}, "uniqueItems": True}
    tools = prepared({"v": {word: value.get(word, {})}})
    assert predicates.compile_predicate(tools._entries["t"].compiled.graph) is None


@pytest.mark.parametrize("words", [{"enum": [[1]]}, {"const": {}}, {"enum": [float("nan")]}, {"const": float("inf")}])
def test_odd_members_have_no_predicate(words):
    tools = prepared({"v": words})
    assert predicates.compile_predicate(tools._entries["t"].compiled.graph) is None


def test_a_schema_too_deep_for_a_predicate_goes_to_jsonschema(monkeypatch):
    def deep(self, node):
        raise RecursionError

    monkeypatch.setattr(predicates._Compiler, "compile_node", deep)
    assert check(INTEGER, "5").arguments == {"v": 5}


@settings(max_examples=300, deadline=None)
@given(schemas, types, st.dictionaries(st.sampled_from("ab"), values, max_size=2))
def test_predicate_and_jsonschema_agree(schema, target, value):
    tools = prepared({"a": schema}, **{"$defs": {"d": {"type": target}}})
    shape = tools._entries["t"].compiled
    predicate = predicates.compile_predicate(shape.graph)
    assert predicate is not None
    assert predicate(value) is (next(shape.validator.errors(value), None) is None)


@settings(max_examples=300, deadline=None)
@given(schemas, types, values | st.text(max_size=8))
def test_coercion_ends_valid_or_says_why_and_never_raises(schema, target, value):
    tools = prepared({"a": schema}, **{"$defs": {"d": {"type": target}}})
    arguments = {"a": value}
    before = copy.deepcopy(arguments)
    checked = tools.check(tools[0], arguments)
    assert same(arguments, before)
    json.dumps(checked.arguments, allow_nan=False)
    again = tools.check(tools[0], checked.arguments)
    if not checked.errors:
        assert again == Checked(checked.arguments)
    if next(tools._entries["t"].compiled.validator.errors(before), None) is None:
        assert checked.arguments is arguments


@given(st.text(max_size=60))
def test_any_string_is_read_or_left(text):
    for kind in coerce.TYPE_ORDER[:-1]:
        coerce._PARSERS[kind](text.strip())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_python_literals_are_read_as_they_were_written(value):
    checked = check(ARRAY, repr([value]))
    if not checked.errors:
        assert checked.arguments == {"v": [value]}
    else:
        assert any(spelling in repr(value) for spelling in ("\\U", "\\x", "\\"))


def test_the_predicate_knows_every_common_keyword():
    tools = prepared({
        "n": {"minimum": 1, "maximum": 5},
        "m": {"exclusiveMinimum": 1, "exclusiveMaximum": 5},
        "s": {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^a"},
        "l": {"items": INTEGER, "maxItems": 2},
        "o": {"oneOf": [INTEGER, {"minimum": 3}]},
        "a": {"allOf": [INTEGER, {"anyOf": [{"const": 1}, {"enum": [2, 3]}]}]},
        "d": {"required": ["x"], "minProperties": 2, "additionalProperties": BOOLEAN},
    })  # fmt: skip
    fits = predicates.compile_predicate(tools._entries["t"].compiled.graph)
    good = {"n": [1, 5, "x"], "m": [2, 4.9], "s": ["a", "ab"], "l": [[], [1, 2], "x"], "o": [2, 3.5], "a": [1, 3],
            "d": [{"x": True, "y": False}, 5]}  # fmt: skip
    bad = {"n": [0, 6], "m": [1, 5], "s": ["", "b", "abc", 1], "l": [["x"], [1, 2, 3]], "o": [3, 1.5],
           "a": [4, "1", True], "d": [{"x": True}, {"y": True, "z": True}, {"x": 1, "y": True}]}  # fmt: skip
    assert [(name, value) for name, all_ in good.items() for value in all_ if not fits({name: value})] == []
    assert [(name, value) for name, all_ in bad.items() for value in all_ if fits({name: value})] == []


OPTIONS = {"type": "object", "properties": {"deep": BOOLEAN, "depth": INTEGER}, "required": ["deep"]}


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"path": "a", "limit": None}, {"path": "a"}),
        ({"path": "a", "limit": None, "options": None}, {"path": "a"}),
        ({"path": "a", "options": {"deep": True, "depth": None}}, {"path": "a", "options": {"deep": True}}),
        ({"path": "a", "limit": "7", "options": None}, {"path": "a", "limit": 7}),
    ],
)
def test_null_for_what_need_not_be_there_is_left_out(arguments, left):
    tools = prepared({"path": STRING, "limit": INTEGER, "options": OPTIONS}, required=["path"])
    checked = tools.check(tools[0], arguments)
    assert checked.arguments == left
    assert checked.errors == ()
    assert any("left out" in fix.detail for fix in checked.fixes)


@pytest.mark.parametrize("arguments", [{"path": None}, {"path": None, "limit": None}, {"path": "a", "limit": [None]}])
def test_null_for_what_must_be_there_is_told(arguments):
    tools = prepared({"path": STRING, "limit": INTEGER}, required=["path"])
    checked = tools.check(tools[0], arguments)
    assert checked.errors
    assert checked.arguments == arguments
