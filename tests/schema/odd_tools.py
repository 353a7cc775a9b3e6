"""Schemas as real tools hold them, however odd: what a call's arguments become, and what is noted.

A row: a name, the schema, arguments that are taken with what they become (None: as they are), arguments that are
refused, and the notes that the trace has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT6 = "http://json-schema.org/draft-06/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"


@dataclass(frozen=True)
class Odd:
    """One odd schema."""

    name: str
    schema: Any
    takes: list[tuple[dict[str, Any], dict[str, Any] | None]] = field(default_factory=list)
    refuses: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def typed(name: str, kind: Any, written: Any, becomes: Any, *refused: Any, read: str) -> Odd:
    """One parameter of an odd type."""
    return Odd(
        name,
        {"type": "object", "properties": {"v": {"type": kind}}, "required": ["v"]},
        [({"v": written}, None if written is becomes else {"v": becomes})],
        [{"v": value} for value in refused],
        [f"/properties/v/type: {'a list of 2' if isinstance(kind, list) else repr(kind)} was {read}"],
    )


ANYTHING = [({"city": "Oslo"}, None), ({}, None), ({"a": [1]}, None)]
WORDS, FIVE = "five", 5

ODD = [
    typed("float", "float", "1.5", 1.5, WORDS, read="read as 'number'"),
    typed("double", "double", 2.5, 2.5, WORDS, read="read as 'number'"),
    typed("int", "int", "5", 5, WORDS, read="read as 'integer'"),
    typed("long", "Long", "5", 5, WORDS, read="read as 'integer'"),
    typed("str", "str", 5, "5", {"a": 1}, read="read as 'string'"),
    typed("capitals", "STRING", WORDS, WORDS, {"a": 1}, read="read as 'string'"),
    typed("bool", "bool", "True", True, WORDS, read="read as 'boolean'"),
    typed("dict", "dict", '{"a": 1}', {"a": 1}, WORDS, read="read as 'object'"),
    typed("list", "list", "[1, 2]", [1, 2], None, read="read as 'array'"),
    typed("generic", "List[int]", [1], [1], None, read="read as 'array'"),
    typed("of TypeScript", "string[]", ["a"], ["a"], None, read="read as 'array'"),
    typed("with a remark", "str, optional", 5, "5", {"a": 1}, read="read as 'string'"),
    typed("union", "int | None", "5", 5, WORDS, read="read as ['integer', 'null']"),
    typed("none", "None", None, None, WORDS, read="read as 'null'"),
    typed("null in a list", ["string", None], None, None, [1], read="read as ['string', 'null']"),
    typed("foreign words in a list", ["int", "None"], "5", 5, WORDS, read="read as ['integer', 'null']"),
    typed("any", "any", WORDS, WORDS, read="left out"),
    typed("unknown", "Callable[[int], str]", FIVE, FIVE, read="left out"),
    typed("number for a type", 5, WORDS, WORDS, read="left out"),
    Odd("no types at all", {"properties": {"v": {"type": []}}}, [({"v": WORDS}, None)], [],
        ["/properties/v/type: a list of 0 was left out"]),
    Odd("an object for a type", {"properties": {"v": {"type": {"type": "string"}}}}, [({"v": 5}, None)], [],
        ["/properties/v/type: an object of 1 was left out"]),
    Odd("parameters as types", {"type": "object", "properties": {"n": "int", "what": "The city", "x": None}},
        [({"n": "5", "what": 1, "x": []}, {"n": 5, "what": 1, "x": []})], [{"n": WORDS}],
        ["/properties/n: 'int' was read as {'type': 'integer'}", "/properties/what: 'The city' was read as {}",
         "/properties/x: None was read as {}"]),
    Odd("required: true", {"type": "object", "properties": {"a": {"type": "string", "required": True}, "b": {}}},
        [({"a": "x"}, None)], [{"b": 1}], ["/properties/a/required: True was read as 'a' being required"]),
    Odd("required: true beside names", {"properties": {"a": {"required": True}, "b": {}}, "required": ["b"]},
        [({"a": 1, "b": 2}, None)], [{"a": 1}, {"b": 2}],
        ["/properties/a/required: True was read as 'a' being required"]),
    Odd("required: false", {"properties": {"a": {"type": "string", "required": False}}}, [({}, None)], [{"a": []}],
        ["/properties/a/required: False was left out"]),
    Odd("required: null", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": None},
        [({}, None), ({"a": "5"}, {"a": 5})], [{"a": WORDS}], ["/required: None was left out"]),
    Odd("required: true at the top", {"properties": {"a": {}}, "required": True}, [({}, None)], [],
        ["/required: True was left out"]),
    Odd("required twice", {"properties": {"a": {}}, "required": ["a", "a", None]}, [({"a": 1}, None)], [{}],
        ["/required: entries that are not names, or are repeated, were left out"]),
    Odd("properties: []", {"type": "object", "properties": []}, ANYTHING, [],
        ["/properties: a list of 0 was left out"]),
    Odd("properties: null", {"type": "object", "properties": None}, ANYTHING, [], ["/properties: None was left out"]),
    Odd("null remarks", {"type": "object", "description": None, "properties": {"a": {"type": "int", "title": None}}},
        [({"a": "5"}, {"a": 5})], [],
        ["/description: None was left out", "/properties/a/type: 'int' was read as 'integer'",
         "/properties/a/title: None was left out"]),
    Odd("limits in words", {"properties": {"a": {"type": "string", "maxLength": "10", "minLength": None}}},
        [({"a": "x" * 20}, None)], [],
        ["/properties/a/maxLength: '10' was left out", "/properties/a/minLength: None was left out"]),
    Odd("a length of 2.0", {"properties": {"a": {"type": "string", "maxLength": 2.0}}}, [({"a": "xx"}, None)],
        [{"a": "xxx"}], []),
    Odd("enum: {}", {"properties": {"a": {"enum": {"x": 1}}}}, [({"a": 1}, None)], [],
        ["/properties/a/enum: an object of 1 was left out"]),
    Odd("an empty enum", {"properties": {"a": {"type": "string", "enum": []}}}, [({"a": "x"}, None)], [],
        ["/properties/a/enum: a list of 0 was left out"]),
    Odd("additionalProperties: null", {"properties": {"a": {}}, "additionalProperties": None}, [({"b": 1}, None)], [],
        ["/additionalProperties: None was left out"]),
    Odd("no alternatives", {"properties": {"a": {"anyOf": [], "type": "integer"}}}, [({"a": "5"}, {"a": 5})],
        [{"a": WORDS}], ["/properties/a/anyOf: a list of 0 was left out"]),
    Odd("types as alternatives", {"properties": {"a": {"anyOf": ["int", "null"]}}},
        [({"a": "5"}, {"a": 5}), ({"a": None}, None)], [{"a": WORDS}],
        ["/properties/a/anyOf/0: 'int' was read as {'type': 'integer'}",
         "/properties/a/anyOf/1: 'null' was read as {'type': 'null'}"]),
    Odd("an alternative that is none", {"properties": {"a": {"oneOf": [{"type": "integer"}, None]}}},
        [({"a": WORDS}, None)], [], ["/properties/a/oneOf: a list of 2 was left out"]),
    Odd("a part that is none", {"properties": {"a": {"allOf": [{"type": "integer"}, None]}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}], []),
    Odd("items as a type", {"properties": {"a": {"type": "array", "items": "int"}}}, [({"a": ["5"]}, {"a": [5]})],
        [{"a": [WORDS]}], ["/properties/a/items: 'int' was read as {'type': 'integer'}"]),
    Odd("items: [..]", {"properties": {"a": {"type": "array", "items": [{"type": "integer"}, "str"]}}},
        [({"a": ["5", "x"]}, {"a": [5, "x"]})], [{"a": [WORDS]}],
        ["/properties/a/items: a list was read as 'prefixItems'",
         "/properties/a/items/1: 'str' was read as {'type': 'string'}"]),
    Odd("items: null", {"properties": {"a": {"type": "array", "items": None}}}, [({"a": [1]}, None)], [],
        ["/properties/a/items: None was left out"]),
    Odd("exclusiveMinimum: true", {"properties": {"a": {"type": "number", "minimum": 5, "exclusiveMinimum": True}}},
        [({"a": 5.5}, None)], [{"a": 5}], ["/properties/a/exclusiveMinimum: True was read as in draft 4"]),
    Odd("exclusiveMaximum: false", {"properties": {"a": {"maximum": 5, "exclusiveMaximum": False}}},
        [({"a": 5}, None)], [{"a": 6}], ["/properties/a/exclusiveMaximum: False was read as in draft 4"]),
    Odd("exclusiveMinimum without minimum", {"properties": {"a": {"exclusiveMinimum": True}}}, [({"a": -5}, None)], [],
        ["/properties/a/exclusiveMinimum: True was read as in draft 4"]),
    Odd("definitions", {"properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}], []),
    Odd("a dangling reference", {"properties": {"a": {"$ref": "#/$defs/lost", "type": "integer"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}],
        ["/properties/a/$ref: '#/$defs/lost' leads nowhere and was left out"]),
    Odd("a remote reference", {"properties": {"a": {"$ref": "https://example.com/a.json"}}}, [({"a": [1]}, None)], [],
        ["/properties/a/$ref: 'https://example.com/a.json' leads nowhere and was left out"]),
    Odd("a reference that is none", {"properties": {"a": {"$ref": 5}, "b": {"$ref": "#/$defs/n"}},
                                     "$defs": {"n": {"type": "int"}}},
        [({"a": 1, "b": "5"}, {"a": 1, "b": 5})], [{"b": WORDS}],
        ["/properties/a/$ref: 5 leads nowhere and was left out", "/$defs/n/type: 'int' was read as 'integer'"]),
    Odd("a reference into a list of items", {"properties": {
        "a": {"items": [{"type": "int"}]}, "b": {"$ref": "#/properties/a/items/0"}}},
        [({"b": "5"}, {"b": 5})], [{"b": WORDS}],
        ["/properties/a/items: a list was read as 'prefixItems'",
         "/properties/a/items/0/type: 'int' was read as 'integer'"]),
    Odd("a reference to a place of no keyword", {"properties": {"a": {"$ref": "#/components/a~1b%20c"}},
                                               "components": {"a/b c": {"type": "int"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}], ["/properties/a/$ref/type: 'int' was read as 'integer'"]),
    Odd("references without end", {"properties": {"a": {"$ref": "#/$defs/a"}, "n": {"type": "integer"}},
                                   "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        [({"a": 1, "n": "5"}, {"a": 1, "n": 5})], [{"n": WORDS}],
        ["/$defs/a/allOf/0: a reference without end was left out"]),
    Odd("a pattern of JavaScript", {"properties": {"a": {"type": "string", "pattern": r"^[^]+[\u{1F600}-\u{1F64F}]$"}}},
        [({"a": "x\n😀"}, None)], [{"a": "x"}], []),
    Odd("a pattern that nobody knows", {"properties": {"a": {"type": "string", "pattern": "(?<=x"}}},
        [({"a": "x"}, None)], [{"a": []}],
        ["/properties/a/pattern: the pattern '(?<=x' was left out: missing ) at position 5"]),
    Odd("a key that nobody knows", {"patternProperties": {"([": {}, "^n": {"type": "integer"}}},
        [({"([": 1, "n1": "5"}, {"([": 1, "n1": 5})], [{"n1": WORDS}],
        ["/patternProperties/([: the pattern '([' was left out: unterminated character set at position 2"]),
    Odd("two keywords that bear no limit", {"patternProperties": {"^n": {}}, "unevaluatedProperties": False},
        [({"m": 1}, None)], [], ["/unevaluatedProperties: left out, since there is a 'patternProperties' too"]),
    Odd("a root of type string", {"type": "string"}, ANYTHING, [],
        ["its parameters are of type 'string' at '/type'; arguments are always an object"]),
    Odd("a root of type array", {"type": "array", "items": {"type": "string"}}, ANYTHING, [],
        ["its parameters are of type 'array' at '/type'; arguments are always an object"]),
    Odd("a root of type dict", {"type": "dict", "properties": {"n": {"type": "integer"}}},
        [({"n": "5"}, {"n": 5})], [{"n": WORDS}], ["/type: 'dict' was read as 'object'"]),
    Odd("a root of true", True, ANYTHING, [],
        ["its parameters are True; expected a schema such as {'type': 'object', 'properties': {}}"]),
    Odd("a root of []", [], ANYTHING, [],
        ["its parameters are []; expected a schema such as {'type': 'object', 'properties': {}}"]),
    Odd("a root of text", "string", ANYTHING, [],
        ["its parameters are 'string'; expected a schema such as {'type': 'object', 'properties': {}}"]),
    Odd("null", None, ANYTHING, [], []),
    # --- older drafts, as they name themselves: no oddities
    Odd("draft 4", {"$schema": DRAFT4, "id": "http://example.com/a", "type": "object", "properties": {
        "a": {"type": "number", "minimum": 5, "exclusiveMinimum": True},
        "b": {"type": "array", "items": [{"type": "integer"}], "additionalItems": False},
        "c": {"const": 1}}, "dependencies": {"a": ["b"]}},
        [({"a": 6, "b": ["5"]}, {"a": 6, "b": [5]}), ({"c": 2}, None)],
        [{"a": 5, "b": []}, {"a": 6}, {"b": [1, 2]}], []),
    Odd("draft 6", {"$schema": DRAFT6, "properties": {"a": {"const": 1}, "b": {"if": True, "then": False}}},
        [({"a": 1, "b": 2}, None)], [{"a": 2}], []),
    Odd("draft 7 of zod", {"$schema": DRAFT7, "type": "object", "properties": {
        "a": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "minItems": 2},
        "b": {"$ref": "#/properties/a", "description": "beside a reference", "maxItems": 1}},
        "required": ["a"], "additionalProperties": False},
        [({"a": ["x", "5"], "b": ["x", 5]}, {"a": ["x", 5], "b": ["x", 5]})],
        [{"b": ["x", 5]}, {"a": ["x", 5], "c": 1}], []),
    Odd("draft 7 by names", {"$schema": DRAFT7, "properties": {"a": {"$ref": "#number"}},
                             "definitions": {"n": {"$id": "#number", "type": "integer"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}], []),
    Odd("draft 2019-09", {"$schema": DRAFT2019, "properties": {
        "a": {"items": [{"type": "integer"}], "additionalItems": {"type": "boolean"}},
        "b": {"$recursiveRef": "#"}}},
        [({"a": [1, "true"], "b": {"a": ["5"]}}, {"a": [1, True], "b": {"a": [5]}})], [{"a": [1, 2]}], []),
    Odd("draft 7 with odd dependencies", {"$schema": DRAFT7, "dependencies": {"a": ["b"], "c": 5, "d": [None]}},
        [({"c": 1, "d": 1}, None)], [{"a": 1}],
        ["/dependencies/c: 5 was left out", "/dependencies/d: a list of 1 was left out"]),
    Odd("draft 7 with a reference that leads nowhere", {"$schema": DRAFT7, "properties": {
        "a": {"$ref": "#/definitions/lost", "type": "integer"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}],
        ["/properties/a/$ref: '#/definitions/lost' leads nowhere and was left out"]),
    Odd("two references at once, to true and to false", {"$schema": DRAFT2019, "properties": {
        "a": {"$ref": "#/$defs/n", "$recursiveRef": "#/$defs/m"}, "b": {"$ref": "#/$defs/no"},
        "c": {"$ref": "#/$defs/yes"}},
        "$defs": {"n": {"minimum": 1}, "m": {"maximum": 2}, "no": False, "yes": True}},
        [({"a": 1, "c": []}, None)], [{"a": 0}, {"a": 3}, {"b": 1}], []),
    Odd("a draft that nobody knows", {"$schema": "https://example.com/mine", "properties": {"a": {"type": "integer"}}},
        [({"a": "5"}, {"a": 5})], [{"a": WORDS}], []),
]  # fmt: skip
