"""Schemas as the types that gpt-oss was trained on."""

import json
import tomllib
from pathlib import Path

import oracle
import pytest

from promptools import UsageError
from promptools.harmony.tool_declarations import FunctionDeclaration, render_namespace, typescript_type

CASES = tomllib.loads((Path(__file__).parent / "declared.toml").read_text("utf-8"))["case"]
rows = pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in CASES])


def test_names_are_unique():
    assert len({row["name"] for row in CASES}) == len(CASES)


def test_who_deviates_says_why():
    assert [row["name"] for row in CASES if "library" in row and not row.get("why")] == []


@rows
def test_a_type(row):
    assert typescript_type(json.loads(row["schema"])) == row["text"]


@rows
@pytest.mark.oracle
def test_the_library_writes_what_the_row_says(row):
    assert oracle.type_of(json.loads(row["schema"])) == row.get("library", row["text"])


def test_a_schema_is_not_changed():
    schema = {"$schema": "x", "type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}}
    before = json.dumps(schema)
    typescript_type(schema)
    assert json.dumps(schema) == before


def test_what_is_odd_is_told_as_it_is_meant():
    schema = {"properties": {"a": {"$ref": "#/no"}, "b": {"type": "float", "required": True}, "c": "int"}}
    assert typescript_type(schema) == "{\na?: any,\nb: number,\nc?: number,\n}"


def test_a_namespace(snapshot):
    functions = [
        FunctionDeclaration("get_time"),
        FunctionDeclaration(
            "get_weather", "Tell the weather.\nIn metric units.\n", {"type": "object", "properties": {}}
        ),
        FunctionDeclaration("apply_patch", "Patch a file", {"type": "string"}),
    ]
    assert render_namespace("functions", functions) == snapshot


def test_a_namespace_of_words():
    assert render_namespace("python", (), "Runs what\nit is sent.") == "## python\n\nRuns what\nit is sent."
    assert render_namespace("python", ()) == "## python\n"


def test_a_namespace_with_functions_has_its_description_as_comments():
    assert render_namespace("box", [FunctionDeclaration("run")], "A box.\nLinux.") == (
        "## box\n\n// A box.\n// Linux.\nnamespace box {\n\ntype run = () => any;\n\n} // namespace box"
    )


def test_a_schema_without_end_is_refused():
    schema = {}
    for _ in range(2000):
        schema = {"items": schema}
    with pytest.raises(UsageError, match="nested too deeply"):
        typescript_type(schema)


def test_what_is_not_json_is_left_out():
    assert typescript_type({"type": {"string"}}) == "any"


def test_a_schema_that_changes_is_written_anew():
    schema = {"type": "string"}
    assert typescript_type(schema) == "string"
    schema["type"] = "number"
    assert typescript_type(schema) == "number"
