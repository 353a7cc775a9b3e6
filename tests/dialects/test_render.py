"""What the dialects write: read the snapshots as a model would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from promptools import Tools, UsageError, dialects, parse
from promptools.dialects.prompt import describe
from promptools.types import Call, Result


def levels(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"in": levels(count - 1)} if count else {}}


SCHEMAS: dict[str, dict[str, Any]] = {
    "plain": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city,\n  with its country."},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "kind": {"const": "forecast"},
            "anything": {},
            "whatever": True,
        },
        "required": ["city", "kind"],
    },
    "unions": {
        "type": "object",
        "properties": {
            "note": {"type": ["string", "null"]},
            "at": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]},
            "mode": {"oneOf": [{"enum": ["fast"]}, {"const": 7}]},
            "all": {"allOf": [{"type": "number"}]},
            "both": {"allOf": [{"type": "number"}, {"minimum": 1}]},
            "none of these": {"enum": []},
        },
    },
    "nested": {
        "type": "object",
        "properties": {
            "guest": {
                "type": "object",
                "description": "Who comes",
                "properties": {"name": {"type": "string"}, "diet": {"enum": ["none", "vegan"]}},
                "required": ["name"],
            },
            "steps": {
                "type": "array",
                "items": {"type": "object", "properties": {"do": {"type": "string"}}, "required": ["do"]},
            },
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "list": {"type": "array"},
            "one or nothing": {"anyOf": [{"properties": {"x": {"type": "number"}}}, {"type": "null"}]},
            "one or another": {
                "oneOf": [{"properties": {"x": {"type": "number"}}}, {"properties": {"y": {"type": "number"}}}]
            },
        },
    },
    "references": {
        "type": "object",
        "$defs": {
            "guest": {"type": "object", "properties": {"name": {"type": "string"}}},
            "a/b~c": {"type": "boolean"},
            "again": {"$ref": "#/$defs/guest"},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}},
            "named": {"$anchor": "here", "type": "integer"},
        },
        "properties": {
            "host": {"$ref": "#/$defs/again", "description": "Who pays"},
            "guests": {"type": "array", "items": {"$ref": "#/$defs/guest"}},
            "odd": {"$ref": "#/$defs/a~1b~0c"},
            "tree": {"$ref": "#/$defs/tree"},
            "anchored": {"$ref": "#here"},
            "itself": {"$ref": "#"},
        },
    },
    "deep": {
        "type": "object",
        "$defs": {"list": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/list"}}]}},
        "properties": {"list": {"$ref": "#/$defs/list"}},
    },
    "reference to a list": {
        "type": "object",
        "properties": {
            "first": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "same": {"$ref": "#/properties/first/anyOf/0"},
        },
    },
    "resource": {
        "type": "object",
        "$defs": {
            "inner": {"$id": "inner", "$ref": "#/$defs/other", "$defs": {"other": {"type": "string"}}},
            "other": {"$ref": "#/$defs/inner"},
        },
        "properties": {"value": {"$ref": "#/$defs/other"}},
    },
    "levels": levels(9),
    "lists without end": {
        "type": "object",
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
        "properties": {"lists": {"$ref": "#/$defs/list"}},
    },
    "nothing": {"type": "object", "properties": {}},
}
TOOLS = Tools(
    [
        {"name": f"tool_{at}", "description": name, "parameters": schema}
        for at, (name, schema) in enumerate(SCHEMAS.items())
    ]
)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.description)
def test_a_tool_is_described(tool: Any, snapshot: SnapshotAssertion) -> None:
    assert describe(tool) == snapshot


def test_a_tool_without_a_description_has_no_line_for_it() -> None:
    (tool,) = Tools([{"name": "ping"}])
    assert describe(tool) == "### ping\nParameters: none"


@pytest.mark.parametrize("name", dialects.names())
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "single"])
@pytest.mark.parametrize("required", [True, False], ids=["required", "optional"])
def test_the_format_is_explained(name: str, parallel: bool, required: bool, snapshot: SnapshotAssertion) -> None:
    tools = Tools([{"name": "add", "description": "Add", "parameters": SCHEMAS["plain"]}])
    assert dialects.get(name).render_tools(tools, parallel=parallel, required=required) == snapshot


@pytest.mark.parametrize("name", dialects.names())
def test_calls_are_written_as_the_model_would(name: str, snapshot: SnapshotAssertion) -> None:
    calls = [Call("1", "add", {"a": "é"}, '{"a":  "é"}'), Call("2", 'odd "name"', {}, "{}")]
    assert dialects.get(name).render_calls(calls) == snapshot


@pytest.mark.parametrize("name", dialects.names())
def test_results_are_one_turn(name: str, snapshot: SnapshotAssertion) -> None:
    results = [Result("1", "add", "3"), Result("2", "read", "no such file", is_error=True)]
    assert dialects.get(name).render_results(results) == snapshot


@pytest.mark.parametrize("name", dialects.names())
def test_rich_arguments_are_read_back(name: str) -> None:
    given: dict[str, Any] = {
        "guest": {"name": 'Ann "A" \\ O\'Hara', "diet": "vegan"},
        "steps": [{"do": "```json\n{}\n```"}, {"do": "</tool_call>"}],
        "grid": [[1, 2], []],
        "one or nothing": None,
    }
    call = Call("1", "tool_2", given, json.dumps(given))
    reply = parse(dialects.get(name).render_calls([call, call]), TOOLS, expect=name)
    assert [(each.name, each.arguments, each.fixes) for each in reply.calls] == [("tool_2", given, ())] * 2
    assert reply.content == ""


@pytest.mark.parametrize("name", ["yaml", "", None, []])
def test_an_unknown_dialect_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="`promptools dialects` lists all of them"):
        dialects.get(name)
