"""What schemas cost: many of them, large ones, and those that were made to explode. Nothing here looks at a clock."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from odd_schemas import odd_schemas

from promptools.dialects.prompt import describe
from promptools.errors import UsageError
from promptools.harmony import tool_declarations
from promptools.json_values import MAX_DEPTH, copy_json, count_values
from promptools.schema import Tools, budget, graph, relax, validate
from promptools.schema.recent_cache import RecentCache

pytestmark = pytest.mark.exhaustive

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def tool(parameters, name="t", **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def check(schema, value, *, defs=None, strict=False):
    parameters = {"type": "object", "properties": {"v": schema}, "$defs": defs or {}}
    tools = Tools([tool(parameters, strict=strict)])
    return tools.check(tools[0], {"v": value})


# --- many tools ------------------------------------------------------------------------------------------------------


def test_common_tools_are_prepared_without_jsonschema():
    program = """
import sys
from promptools.schema import Tools
node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": ["integer", "null"]}}}
parameters = {"type": "object", "properties": {
    "path": {"type": "string", "description": "where", "pattern": "^/"},
    "mode": {"enum": ["a", "b"], "default": "a"},
    "list": {"type": "array", "items": {"anyOf": [{"type": "number", "minimum": 0}, {"$ref": "#/$defs/node"}]}},
}, "required": ["path"], "additionalProperties": False, "$defs": {"node": node}}
tools = Tools([{"name": "t", "parameters": parameters}])
print(sorted({"jsonschema", "referencing"} & sys.modules.keys()))
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout == "[]\n"


@SLOW
@given(odd_schemas)
def test_what_is_taken_without_jsonschema_is_what_it_takes(schema):
    linked = graph.SchemaGraph(copy_json(schema))
    if graph._link_common(linked):
        graph._check_metaschema(schema, "t", "")
        slow = graph.SchemaGraph(copy_json(schema))
        graph._link_any(slow, "t")
        assert [*slow.pointers.values()] == [*linked.pointers.values()]
        pairs = zip(slow.nodes, linked.nodes, strict=True)
        assert all(
            [*map(repr, slow.targets.get(id(one), []))] == [*map(repr, linked.targets.get(id(other), []))]
            for one, other in pairs
        )


def test_a_tool_is_prepared_once_in_whatever_list_it_comes():
    one, other = tool({"properties": {"seen": STRING}}, "one"), tool({"properties": {"seen": INTEGER}}, "other")
    first, second = Tools.prepare([one]), Tools.prepare([other, one])
    assert second._entries["one"] is first._entries["one"]
    with pytest.raises(UsageError, match="'one' is given 2 times"):
        Tools.prepare([one, other, one])


def test_what_is_kept_is_bounded_in_number_and_characters():
    kept = RecentCache(2, 10)
    for key in ("a", "b", "c"):
        kept.put(key, key)
    assert [kept.get(key) for key in "abc"] == ["a", "b", "c"]  # two in each half
    kept.put("d", "d")
    kept.put("e", "e")
    assert kept.get("c") is None or kept.get("a") is None
    kept.put(("x" * 6, "y" * 6), "large")
    assert kept.get(("x" * 6, "y" * 6)) is None
    kept.put("z" * 10, "z")
    assert kept.get("z" * 10) == "z"
    assert len(kept._newer) == 1


def test_nameless_arguments_are_tried_on_few_of_many_tools():
    tools = Tools([tool({"properties": {"n": STRING}}, f"t{n}") for n in range(200)])
    assert tools.infer({"n": 5}) is None
    assert tools.infer({"m": 5}) is None
    odd = [tool({"properties": {"n": STRING, "m": STRING}, "additionalProperties": False}, "odd")]
    tools = Tools([tool({"properties": {"n": STRING}}, f"t{n}") for n in range(200)] + odd)
    assert tools.infer({"n": "a", "m": "b"})[0].name == "odd"


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_shares_nothing_with_the_original_and_keeps_what_was_one_object():
    same = {"type": "string"}
    given = {"a": same, "b": [same, [1, None, {"c": {1, 2}}]]}
    made = copy_json(given)
    assert made == given
    assert made["a"] is made["b"][0]
    assert made["a"] is not same
    assert made["b"][1][2]["c"] is not given["b"][1][2]["c"]
    assert count_values(made) == 11
    round_ = {}
    round_["self"] = round_
    assert copy_json(round_)["self"]["self"].keys() == {"self"}


def test_what_is_nested_too_deeply_is_not_copied():
    value = 5
    for _ in range(MAX_DEPTH):
        value = [value]
    assert copy_json(value) == value
    with pytest.raises(RecursionError):
        copy_json([[value]])


# --- schemas that explode --------------------------------------------------------------------------------------------


def doubling(word, levels=60):
    """Definitions that each hold the next one twice: written out, 2 ** levels of the last."""

    def twice(n):
        next_one = {"$ref": f"#/$defs/d{n + 1}"}
        if word == "properties":
            return {"allOf": [{"properties": {"x": next_one}}, {"properties": {"x": next_one}}]}
        return {word: [next_one, next_one]}

    return {f"d{n}": twice(n) for n in range(levels)} | {f"d{levels}": INTEGER}


def nested(leaf, levels=60):
    for _ in range(levels):
        leaf = {"x": leaf}
    return leaf


@pytest.mark.parametrize("word", ["allOf", "properties"])
def test_a_schema_that_doubles_is_given_up_and_the_call_says_so(word):
    value = nested(5) if word == "properties" else 5
    checked = check({"$ref": "#/$defs/d0"}, value, defs=doubling(word))
    assert checked.arguments == {"v": value}
    assert [fix.kind for fix in checked.fixes] == ["unchecked"]
    assert checked.fixes[0].detail == "not validated: its schema is too costly to check"
    assert not checked.verified


def test_a_strict_tool_takes_no_call_that_was_not_validated():
    checked = check({"$ref": "#/$defs/d0"}, 5, defs=doubling("allOf"), strict=True)
    assert checked.errors == ("arguments: not validated: its schema is too costly to check",)


def test_arguments_without_a_name_are_not_a_call_where_they_were_not_validated():
    parameters = {"type": "object", "properties": {"v": {"$ref": "#/$defs/d0"}}, "$defs": doubling("allOf")}
    assert Tools([tool(parameters)]).infer({"v": 5}) is None


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_alternatives_that_double_are_looked_at_once_for_each_value(word):
    checked = check({"$ref": "#/$defs/d0"}, ["x"], defs=doubling(word, 12))
    assert checked.errors or not checked.verified


def test_a_value_is_checked_however_large_it_is():
    objects = [{"n": n, "tags": ["a", "b"]} for n in range(20_000)]
    schema = {"type": "array", "uniqueItems": True, "items": {"properties": {"n": INTEGER}, "minProperties": 2}}
    assert check(schema, objects).verified
    assert check(schema, [*objects, objects[0]]).errors == ("/v: an array of 20001 contains the same item twice",)


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", None, [], {}, [1], [True]], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([[1, 2], [2, 1]], True),
    ],
)
def test_items_are_equal_as_in_json(items, unique):
    assert check({"uniqueItems": True}, items).verified is unique
    assert check({"uniqueItems": False}, items).verified


def test_members_of_an_enumeration_are_compared_as_in_json():
    schema = {"enum": [[1, {"a": True}], 0]}
    assert check(schema, [1.0, {"a": True}]).verified
    assert check(schema, [1, {"a": 1}]).errors
    assert check(schema, False).errors


def test_a_huge_enumeration_is_looked_up_not_searched():
    members = [f"m{n}" for n in range(50_000)] + [[0]]  # a list among them keeps the predicate out
    assert check({"items": {"enum": members}}, members[:20_000]).verified
    checked = check({"items": {"enum": members}}, [member.upper() for member in members[:20_000]])
    assert not checked.verified  # coercing them all would cost too much


def test_errors_that_quote_a_large_value_cost_what_they_quote():
    schema = {"not": {}, "allOf": [{"not": {"type": "array"}} for _ in range(2000)]}
    checked = check(schema, ["x" * 10] * 30_000)
    assert not checked.verified


def test_slow_patterns_are_few():
    spent = budget.ValidationRun("x")
    budget._RUN.set(spent)
    try:
        spent.slow_searches_left = 0
        with pytest.raises(budget.UncheckedError, match="took too long"):
            validate.matches(r"^(\w|\w\w|\d)+$", "a" * 40 + "!")
    finally:
        budget.end_run()


@pytest.mark.parametrize(
    "pattern", ["(((a{1000}){1000}){1000}){1000}", "((a{300,}){300}){1,300}", "(?:x[a-z]{999}){999}"]
)
def test_a_pattern_that_is_too_large_to_be_compiled_is_not_checked(pattern):
    checked = check({"pattern": pattern}, "x")
    assert [fix.detail for fix in checked.fixes] == [f"not validated: the pattern {pattern!r} is too large"]
    assert check({"patternProperties": {pattern: INTEGER}}, {"x": 1}).errors == ()


@pytest.mark.parametrize(
    ("pattern", "atoms"),
    [
        ("", 0),
        ("abc", 3),
        (r"\d{4}-\d{2}", 7),
        ("(ab){10}", 30),
        ("[()]{3}x", 4),
        (r"\({5}", 5),
        ("((a{2}){3}){4}", 40),
        ("a)b(", 3),
        ("[]a]{2,5}", 5),
        ("{,7}", 0),
        ("a{999999999999}", 999999999),
    ],
)
def test_the_size_of_a_pattern(pattern, atoms):
    assert validate.expanded_size(pattern) == atoms


# --- what is written of them -----------------------------------------------------------------------------------------


def wide_and_deep(width=300, levels=100):
    """Each level holds the next in each of its properties."""
    return {
        f"d{n}": {"type": "object", "properties": {f"p{k}": {"$ref": f"#/$defs/d{n + 1}"} for k in range(width)}}
        for n in range(levels)
    } | {f"d{levels}": STRING}


EXPLODING = {"wide": wide_and_deep(), "or": doubling("anyOf"), "and": doubling("properties")}


@pytest.mark.parametrize("defs", EXPLODING.values(), ids=EXPLODING)
def test_what_is_written_of_a_schema_is_bounded_by_the_schema(defs):
    parameters = {"type": "object", "properties": {"v": {"$ref": "#/$defs/d0"}}, "$defs": defs}
    tools = Tools([tool(parameters)])
    long = len(json.dumps(parameters))
    assert len(json.dumps(tools.relaxed("t")[0])) < 60 * relax.MAX_SUBSCHEMAS * 2
    assert len(tool_declarations.typescript_type(parameters)) < 20 * long + 300 * tool_declarations.MAX_EXTRA_TYPES
    assert len(describe(tools[0])) < 20 * long + 200 * 2000


def nested_schema(levels):
    schema = STRING
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"properties": {"a": schema}}


LONG_CHAIN = {
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(2000)} | {"d2000": STRING},
}


@pytest.mark.parametrize("parameters", [nested_schema(120), LONG_CHAIN], ids=["nested", "chain"])
def test_no_depth_that_is_taken_is_too_deep_to_be_written(parameters):
    tools = Tools([tool(parameters)])
    schema, notes = tools.relaxed("t")
    assert any("cut: the schema is nested too deeply" in note for note in notes)
    assert json.dumps(schema)
    assert tools.check(tools[0], {"a": nested(1, 50)}).arguments
    assert describe(tools[0])
    assert "any" in tool_declarations.typescript_type(parameters)


@SLOW
@given(odd_schemas)
def test_an_odd_schema_works_throughout(schema):
    tools = Tools.prepare([tool({**schema, "type": "object"})])
    for arguments in ({}, {"a": [1, {"b": "x"}], "b": None}):
        tools.check(tools[0], arguments)
        tools.fits("t", arguments)
        tools.infer(arguments)
    json.dumps(tools.relaxed("t"))
    json.dumps(tools.to_openai(), allow_nan=False)
    describe(tools[0])
    tool_declarations.typescript_type(tools[0].parameters)
    assert {key: tools.types("t", key) for key in tools.keys("t")}.keys() == tools.keys("t")


def test_many_anchors_are_linked_without_looking_through_the_schema_for_each():
    defs = {f"d{n}": {"$anchor": f"a{n}", "type": "integer"} for n in range(300)}
    properties = {f"p{n}": {"$ref": f"#a{n}"} for n in range(300)}
    tools = Tools([tool({"type": "object", "properties": properties, "$defs": defs})])
    assert tools.check(tools[0], {"p299": "5"}).arguments == {"p299": 5}
