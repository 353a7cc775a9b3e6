"""Schemas for servers that choke on the full language."""

import copy
import json

import pytest
from hypothesis import given, settings
from schema_strategies import schemas, types

from promptools.errors import UsageError
from promptools.schema import Tools, relax, relaxed
from promptools.schema.graph import INLINED
from promptools.schema.relax import DROPPED

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
STRINGS = {"type": "array", "items": STRING}


def one(schema, **more):
    """Relax one property; give it back with what was said of it."""
    made, notes = relaxed({"type": "object", "properties": {"v": schema}, **more})
    return made["properties"]["v"], notes


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string", "pattern": "\\S", "format": "uri", "title": "t"}, {"type": "string", "title": "t"}),
        ({"type": "string", "maxLength": 65536, "minLength": 1}, {"type": "string", "minLength": 1}),
        ({"type": "array", "items": STRING, "maxItems": 5000, "minItems": 1}, STRINGS),
        ({"type": "array"}, STRINGS),
        ({"type": "array", "items": True}, STRINGS),
        ({"type": "array", "items": {}}, STRINGS),
        ({"prefixItems": [INTEGER, STRING], "items": False}, {"type": "array", "items": INTEGER}),
        ({"type": "array", "prefixItems": [STRING]}, STRINGS),
        ({"description": "anything"}, {"type": "string", "description": "anything"}),
        (True, STRING),
        ({"not": {}}, STRING),
        ({"minimum": 1}, {"type": "number", "minimum": 1}),
        ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}),
        ({"type": ["string", "null"]}, STRING),
        ({"type": ["null", "integer"], "enum": [1, None]}, {"type": "integer", "enum": [1]}),
        ({"type": ["null"], "enum": [None]}, {"type": "null", "enum": [None]}),
        ({"type": ["integer", "string"]}, STRING),
        ({"anyOf": [{"type": "integer", "pattern": "x"}, NULL], "title": "t"}, {"type": "integer", "title": "t"}),
        ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}),
        ({"anyOf": [STRING], "oneOf": [INTEGER]}, STRING),
        ({"anyOf": [STRING, INTEGER], "oneOf": [{}]}, {"anyOf": [STRING, INTEGER]}),
        ({"type": "object", "properties": {"a": STRING}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
         {"type": "object", "properties": {"a": STRING}}),
        ({"properties": {"a": STRING}, "anyOf": [{"required": ["a"]}]},
         {"type": "object", "properties": {"a": STRING}}),
        ({"allOf": [{"properties": {"a": STRING, "b": STRING}, "required": ["a"]},
                    {"properties": {"b": INTEGER, "c": STRING}, "required": ["b", "a"]}]},
         {"properties": {"a": STRING, "b": STRING, "c": STRING}, "required": ["a", "b"], "type": "object"}),
        ({"type": "object", "additionalProperties": {"format": "x"}},
         {"type": "object", "additionalProperties": STRING}),
        ({"type": "object", "patternProperties": {"^a": {}}, "propertyNames": {"pattern": "^a"}}, {"type": "object"}),
        ({"type": "object", "properties": {"pattern": {"type": "string", "pattern": "x"}}},
         {"type": "object", "properties": {"pattern": STRING}}),
    ],
)  # fmt: skip
def test_what_weak_servers_refuse_is_changed_and_told(schema, wanted):
    made, notes = one(schema)
    assert made == wanted
    assert notes
    assert all(note.startswith("/properties/v") for note in notes)


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string", "maxLength": 40}, {"type": "string", "maxLength": 40}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"enum": [None], "properties": {"a": False}}, {"enum": [None], "type": "null"}),
        ({"const": 3}, {"enum": [3], "type": "integer"}),
        ({"anyOf": [NULL]}, NULL),
        ({"anyOf": [STRING, INTEGER], "required": ["a"]}, {"anyOf": [STRING, INTEGER]}),
        ({"type": "object", "additionalProperties": {}}, {"type": "object", "additionalProperties": True}),
        ({"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": False}),
        ({"type": "object", "properties": {"a": False, "b": STRING}, "required": ["a", "b"]},
         {"type": "object", "properties": {"b": STRING}, "required": ["b"]}),
    ],
)  # fmt: skip
def test_what_says_the_same_is_not_told(schema, wanted):
    assert one(schema) == (wanted, ())


def test_a_legal_plain_schema_is_not_changed():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]}
    assert relaxed(schema) == (schema, ())


def test_changes_are_told_with_their_place():
    _, notes = relaxed({"type": "object", "properties": {"a/b": {"type": "array", "items": {"format": "x"}}}})
    assert notes == (
        "/properties/a~1b/items: dropped 'format'",
        "/properties/a~1b/items: had no type, became 'string'",
    )
    assert relaxed({"minProperties": 1, "type": "object"})[1] == ("/: dropped 'minProperties'",)


def test_references_are_inlined():
    made, notes = one(
        {"$ref": "#/$defs/a", "description": "mine"},
        **{"$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {"type": "integer"}}},
    )
    assert made == {
        "description": "mine",
        "type": "object",
        "properties": {"b": INTEGER},
    }
    assert notes == ()


def test_a_schema_inside_itself_is_cut():
    node = {
        "type": "object",
        "description": "a node",
        "properties": {"next": {"$ref": "#/$defs/n"}, "all": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    }
    made, notes = one({"$ref": "#/$defs/n"}, **{"$defs": {"n": node}})
    cut = {"type": "object", "description": "a node"}
    assert made["properties"] == {"next": cut, "all": {"type": "array", "items": cut}}
    assert "/properties/v/properties/next: cut: the schema holds itself" in notes


def test_a_list_inside_itself_is_cut():
    made, _ = one(
        {"$ref": "#/$defs/l"}, **{"$defs": {"l": {"type": ["array", "null"], "items": {"$ref": "#/$defs/l"}}}}
    )
    assert made == {"type": "array", "items": {"type": "array", "items": STRING}}


def test_a_schema_that_doubles_at_each_step_ends():
    doubling = {f"d{n}": {"properties": {x: {"$ref": f"#/$defs/d{n + 1}"} for x in "ab"}} for n in range(40)}
    made, notes = one({"$ref": "#/$defs/d0"}, **{"$defs": {**doubling, "d40": STRING}})
    assert len(json.dumps(made)) < 60 * relax.MAX_SUBSCHEMAS
    assert any(note.endswith("cut: the schema is too large") for note in notes)


def test_an_object_of_any_properties_stays_one():
    """llama.cpp's grammar of an object whose properties are `{}` has no room for arguments."""
    assert relaxed({"type": "object"})[0] == {"type": "object", "properties": {}, "additionalProperties": True}
    closed = {"type": "object", "additionalProperties": False}
    assert relaxed(closed)[0] == {**closed, "properties": {}}


def test_the_top_is_always_an_object_with_properties():
    assert relaxed({}) == ({"type": "object", "properties": {}}, ("/: had no type, became 'string'",))
    made, notes = relaxed({"oneOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": STRING}}]})
    assert made == {"type": "object", "properties": {"a": STRING, "b": STRING}}
    assert "/: its alternatives became one object" in notes
    assert relaxed({"anyOf": [{"properties": {"a": STRING}}, {"type": "null"}]})[0]["properties"] == {"a": STRING}


def test_the_original_is_not_touched_and_shares_nothing():
    schema = {"type": "object", "properties": {"a": {"enum": ["x"], "default": {"deep": []}, "type": "string"}}}
    before = copy.deepcopy(schema)
    tools = Tools([{"name": "t", "parameters": schema}])
    made, notes = tools.relaxed("t")
    made["properties"]["a"]["default"]["deep"].append(1)
    made["properties"]["a"]["enum"].clear()
    assert schema == tools[0].parameters == before
    assert tools.relaxed("t") == (before, notes)


def test_what_is_left_out_of_an_odd_schema_is_told():
    made, notes = relaxed({"type": "object", "properties": {"a": {"type": "strin", "enum": ["x"]}}})
    assert made == {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
    assert notes == ("/properties/a/type: 'strin' was left out",)


def test_what_cannot_be_read_at_all_is_refused_by_name():
    schema = {"type": "string"}
    for _ in range(500):
        schema = {"items": schema}
    with pytest.raises(UsageError, match="Tool 'mine': its parameters are nested too deeply"):
        relaxed(schema, "mine")


def nodes(schema):
    yield schema
    for sub in schema.get("properties", {}).values():
        yield from nodes(sub)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word])
    for sub in schema.get("anyOf", ()):
        yield from nodes(sub)


@settings(max_examples=200, deadline=None)
@given(schemas, types)
def test_any_schema_comes_out_plain(schema, target):
    made, _ = relaxed({"type": "object", "properties": {"v": schema}, "$defs": {"d": {"type": target}}})
    for node in nodes(made):
        assert not node.keys() & (DROPPED | INLINED | {"oneOf", "const", "prefixItems"})
        assert isinstance(node.get("type"), str) or node.keys() & {"anyOf", "enum"}
        assert node.get("type") != "array" or "items" in node
    assert relaxed(made)[0] == made
