"""Tools as they really are: read as far as they can be, never refused, with notes of what was left out."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema.validators import extend, validator_for
from odd_schemas import odd_json, odd_schemas
from odd_tools import DRAFT7, ODD
from schema_strategies import values

from promptools import dialects
from promptools.dialects.prompt import describe
from promptools.errors import UsageError
from promptools.harmony import tool_declarations
from promptools.json_values import copy_json
from promptools.schema import Tools, graph
from promptools.schema.documents import LATEST, URIS, draft_of
from promptools.schema.normalize import normalize_schema
from promptools.schema.validate import Validator, compile_pattern, is_integer, translate_pattern
from promptools.types import Tool

MANY = settings(max_examples=80, deadline=None, suppress_health_check=[*HealthCheck])
named_drafts = st.sampled_from([None, *URIS.values(), "urn:nobody"])


def is_written(dialect):
    try:
        return bool(dialect.render_tools(Tools([tool({})]), parallel=True, required=False))
    except UsageError:
        return False


def tool(parameters, **more):
    return {"type": "function", "function": {"name": "t", "parameters": parameters, **more}}


WRITTEN = [dialect for dialect in map(dialects.get, dialects.names()) if is_written(dialect)]


def named(schema, uri):
    return {**schema, "$schema": uri} if isinstance(schema, dict) and uri else schema


@pytest.mark.parametrize("row", ODD, ids=lambda row: row.name)
def test_an_odd_tool_is_read_as_it_is_meant(row):
    tools = Tools([tool(row.schema)])
    for arguments, becomes in row.takes:
        checked = tools.check(tools[0], arguments)
        assert checked.errors == ()
        assert json.dumps(checked.arguments) == json.dumps(arguments if becomes is None else becomes)
        assert bool(checked.fixes) is (becomes not in (None, arguments))
    for arguments in row.refuses:
        assert tools.check(tools[0], arguments).errors, arguments
    assert list(tools.notes) == [f"the tool 't': {note}" for note in row.notes]
    if row.schema is not None:
        assert tools.to_openai() == [tool(row.schema)]


@pytest.mark.parametrize("row", [row for row in ODD if row.notes], ids=lambda row: row.name)
def test_what_is_noted_is_refused_where_it_is_strict(row):
    if row.name == "an empty enum":
        assert Tools([tool(row.schema)], strict=True).notes == ()  # well formed, though nothing fits it
        return
    with pytest.raises(UsageError, match="Tool 't'"):
        Tools([tool(row.schema)], strict=True)


@pytest.mark.parametrize("row", [row for row in ODD if not row.notes], ids=lambda row: row.name)
def test_what_has_no_notes_is_taken_where_it_is_strict(row):
    if row.name == "a part that is none":
        return
    assert Tools([tool(row.schema)], strict=True).notes == ()


@pytest.mark.parametrize("schema", [None, True, 5, "x", [], {}, {"$schema": 5}, {"$schema": {}}])
def test_a_schema_that_names_no_draft_is_of_the_latest(schema):
    assert draft_of(schema) == LATEST


@pytest.mark.parametrize(("draft", "uri"), URIS.items())
def test_the_draft_is_the_one_that_jsonschema_takes(draft, uri):
    for spelled in (uri, uri.rstrip("#"), f"{uri.rstrip('#')}#"):
        assert draft_of({"$schema": spelled}) == draft
        assert validator_for({"$schema": spelled}).META_SCHEMA["$schema"].rstrip("#") == uri.rstrip("#")
    assert draft_of({"$schema": uri.replace("http://", "https://")}) == draft


@MANY
@given(odd_schemas | odd_json, named_drafts)
def test_whatever_is_read_is_well_formed_and_linked(schema, uri):
    schema = named(schema, uri)
    root, _ = normalize_schema(copy_json(schema), draft_of(schema))
    graph._check_metaschema(root, "t", "")
    assert graph._link_common(graph.SchemaGraph(root))


DRAFTS = {
    4: {"exclusiveMinimum": st.booleans()},
    6: {"const": st.sampled_from([1, "a"]), "contains": st.just({"type": "integer"})},
    7: {"if": st.just({"type": "integer"}), "then": st.just({"minimum": 1}), "else": st.just({"maxLength": 1})},
    2019: {"dependentRequired": st.just({"a": ["b"]}), "unevaluatedProperties": st.just(False)},
}


def of_draft(draft):
    """Well-formed schemas of a draft, with the forms that later ones have not."""
    types = st.sampled_from(["object", "array", "string", "integer", "null"])
    common = {
        "type": types,
        "minimum": st.integers(-1, 2),
        "enum": st.lists(st.sampled_from([0, 1, "a", None]), min_size=1, unique_by=repr),
        "required": st.lists(st.sampled_from("ab"), min_size=1, unique=True),
        "additionalItems": st.booleans() if draft != 4 else st.just(False),
        "items": st.lists(st.builds(lambda kind: {"type": kind}, types), min_size=1, max_size=2),
        "dependencies": st.just({"a": ["b"], "b": {"minProperties": 2}}),
        "prefixItems": st.just([{"type": "null"}]),
        "const": st.just(1),
        "$ref": st.sampled_from(["#/definitions/d", "#/definitions/d/items/0"]),
    }
    for since, words in DRAFTS.items():
        if since == draft or 4 < since <= draft:
            common |= words
    inner = st.fixed_dictionaries({}, optional=common).map(lambda made: {"minimum": 0, **made})
    members = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    definitions = st.just({"definitions": {"d": {"type": ["integer", "array"], "items": [{"type": "integer"}]}}})
    top = st.fixed_dictionaries({}, optional={**common, "properties": members, "anyOf": st.lists(inner, min_size=1)})
    return st.builds(lambda one, other: {"minimum": 0, **one, **other, "$schema": URIS[draft]}, top, definitions)


@pytest.mark.parametrize("draft", [4, 6, 7, 2019])
@MANY
@given(data=st.data(), value=values)
def test_a_schema_of_an_older_draft_means_what_its_own_validator_says(draft, data, value):
    schema = data.draw(of_draft(draft))
    named = validator_for(schema)
    named.check_schema(schema)
    own = extend(named, type_checker=named.TYPE_CHECKER.redefine("integer", lambda _, value: is_integer(value)))
    linked = graph.build_graph(schema, "t", strict=True)
    assert (next(Validator(linked).errors(value), None) is None) is own(schema).is_valid(value)


@MANY
@given(odd_schemas | odd_json, named_drafts)
def test_any_schema_works_throughout_and_is_sent_unchanged(schema, uri):
    schema = named(schema, uri)
    given = tool(schema, description=None)
    before = json.dumps(given)
    tools = Tools.prepare([given])
    for arguments in ({}, {"a": [1, {"b": "x"}], "b": None}):
        tools.check(tools[0], arguments)
        tools.fits("t", arguments)
        tools.infer(arguments)
    if schema is not None and "NaN" not in before and "Infinity" not in before:
        assert json.dumps(tools.to_openai()[0]) == before
    json.dumps(tools.relaxed("t"))
    describe(tools[0])
    tool_declarations.typescript_type(tools[0].parameters)
    for dialect in WRITTEN:
        assert dialect.render_tools(tools, parallel=True, required=False)


def test_the_notes_of_one_tool_are_few():
    properties = {f"p{n}": {"type": "strin"} for n in range(50)}
    notes = Tools([tool({"properties": properties})]).notes
    assert len(notes) == 9
    assert notes[-1] == "the tool 't': and 42 more of the kind"


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return {"properties": {"a": schema}}


@pytest.mark.parametrize("levels", [250, 390, 500, 900])
def test_a_schema_that_is_too_deep_is_sent_unchanged_and_checks_nothing(levels):
    given = tool(nested(levels), description="d")
    tools = Tools([given])
    assert tools.to_openai() == [given]
    assert (tools[0].name, tools[0].description) == ("t", "d")
    assert len(tools.notes) == 1
    assert "too deeply" in tools.notes[0]
    assert tools.check(tools[0], {"a": 5, "b": "x"}).verified
    assert tools.infer({"a": 5}) is None


def test_a_schema_of_python_that_holds_itself_leaves_a_tool_unchecked():
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    schema["allOf"] = [schema]
    assert "without end" in Tools([tool(schema)]).notes[0]


def test_a_tool_made_in_code_that_is_too_deep_is_sent_unchanged():
    tools = Tools([Tool("t", "d", nested(500))])
    assert tools.to_openai() == [tool(nested(500), description="d")]
    assert (tools[0].description, tools.notes) != ("", ())
    with pytest.raises(UsageError, match="has no name"):
        Tools([{"function": {"parameters": nested(500)}}])


def test_many_references_without_end_leave_a_tool_unchecked():
    circles = {f"d{n}": {"$ref": f"#/$defs/d{n}"} for n in range(40)}
    given = tool({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": circles})
    tools = Tools([given])
    assert tools.to_openai() == [given]
    assert "lead back to themselves without end" in tools.notes[0]
    assert tools.check(tools[0], {"a": 5}).verified


def test_a_common_schema_of_draft_7_is_prepared_without_jsonschema(monkeypatch):
    monkeypatch.setattr(graph, "import_library", None)
    parameters = {"$schema": DRAFT7, "type": "object", "properties": {"a": {"type": "string"}}}
    assert Tools([tool(parameters)])[0].parameters == parameters


@pytest.mark.parametrize(
    ("pattern", "takes", "refuses"),
    [
        (r"^[^]*x$", "a\nx", "a"),
        (r"^[^]{2}$", "\n\n", "a"),
        (r"^a[^]", "ab", "a"),
        (r"^[^]]+$", "a", "]"),
        (r"^\u{1F600}$", "😀", "u"),
        (r"^\ud83d\ude00$", "😀", "x"),
        (r"^\u00e9$", "é", "e"),
        (r"^[\u{1F600}-\u{1F64F}]+$", "😀🙏", "x"),
        (r"^(?<n>a|b)\k<n>$", "aa", "ab"),
        (r"^\cA$", "\x01", "A"),
        (r"^[+-\d]+$", "+-5", ","),
        (r"^[\w-.]+$", "a-b.c", "+"),
        (r"^[\d-x]+$", "5-x", "y"),
        (r"^[[-\w]$", "[", "]"),
        (r"^[\]a]$", "]", "b"),
        ("/^ab$/", "ab", "AB"),
        ("/^ab$/i", "AB", "x"),
        ("/b$/", "ab", "ba"),
        ("/foo/", "a/foo/b", "foo"),
        (r"^[[:alpha:]]+$", "ab", "5"),
        (r"^\d{3}-\d{4}$", "555-1234", "5551234"),
    ],
)
def test_patterns_in_the_syntax_of_javascript(pattern, takes, refuses):
    assert compile_pattern(pattern).search(takes)
    assert not compile_pattern(pattern).search(refuses)


@pytest.mark.parametrize("pattern", [r"\u{110000}", r"\u{}", "a", "", r"\\", "(", "[", r"\k", "\\"])
def test_what_is_the_same_in_both_or_nothing_stays(pattern):
    assert translate_pattern(pattern) == pattern
