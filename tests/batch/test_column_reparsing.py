"""`reparse_columns`: what is read of replies in columns, and its schemas, which the pages show."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from promptools.batch import batch_schema, reparse_columns, reparse_series, reparsed_dtype, reparsed_schema
from promptools.batch.columns import REPLY_COLUMNS, REQUEST_COLUMNS, reparsed_file_schema
from promptools.batch.reparsing import reparse_line
from promptools.errors import UsageError, install_command

TOOLS = [
    {"name": "get_weather", "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}}},
    {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string", "enum": ["a"]}}}},
]
CALL = '<tool_call>{"name": "get_weather", "arguments": {"days": "3"}}</tool_call>'
TEXTS = [f"Sure.{CALL}", "<think>Hm.</think>No.", CALL[:40], "hello"]
COLUMNS = {
    "key": [b"1", b"2", b"3", b"4"],
    "text": TEXTS,
    "finish_reason": [None, None, "length", None],
    "in_reasoning": [None, None, None, True],
}
JSON_TOOLS = [json.dumps(TOOLS), None, json.dumps(TOOLS), None]
LIST_TOOLS = [TOOLS, None, TOOLS, None]
PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "run-a-batch.md"


def lines():
    """What `promptools reparse` writes for the same replies."""
    results = []
    for number in range(len(TEXTS)):
        row = {key: column[number] for key, column in COLUMNS.items() if key != "key"}
        text = json.dumps({**row, "tools": LIST_TOOLS[number]}).encode()
        results.append(json.loads(reparse_line(text, number + 1, as_row=True).text))
    return results


@pytest.mark.parametrize("tools", [JSON_TOOLS, LIST_TOOLS])
@pytest.mark.parametrize(
    "made",
    [
        pa.table,
        pa.RecordBatch.from_pydict,
        dict,
        lambda columns: {key: np.array(column, dtype=object) for key, column in columns.items()},
        lambda columns: pa.table(columns).slice(0, 4).combine_chunks(),
    ],
    ids=["table", "record batch", "lists", "arrays", "slice"],
)
def test_columns_of_every_form(made, tools):
    read = reparse_columns(made({**COLUMNS, "tools": tools}))
    assert read.column_names == [*COLUMNS, "tools", *reparsed_schema().names]
    assert read.select(reparsed_schema().names).schema == reparsed_schema()
    assert read["key"].to_pylist() == COLUMNS["key"]
    assert read.select(reparsed_schema().names).to_pylist() == lines()
    first, second, third, fourth = read.to_pylist()
    assert json.loads(first["calls"][0]["arguments"]) == {"days": 3}
    assert first["calls"][0]["fixes"] == [{"kind": "coerce", "detail": "'3' to 3", "path": "/days"}]
    assert (second["reasoning"], third["malformed"][0]["reason"], fourth["reasoning"]) == ("Hm.", "truncated", "hello")


def test_a_reply_that_cannot_be_read_and_a_column_that_is_there():
    read = reparse_columns({"text": ["hi", None], "dialect": ["none", None], "content": [1, 2]})
    first, second = read.to_pylist()
    assert read.column_names[:3] == ["text", "dialect", "content"]
    assert (first["error"]["line"], first["content"], first["calls"]) == (1, None, [])
    assert "none" in first["error"]["message"]
    assert second["error"]["message"] == "'text' is None; it must be the reply, a string"


def test_half_of_a_surrogate_pair_from_json():
    """In arguments it is an escape; where it cannot be one, as in the path of a fix, one row is lost and no other."""
    call = """<tool_call>{"name": "get_weather", "arguments": {'x': '\\ud800'}}</tool_call>"""
    odd = '<tool_call>{"name": "odd", "arguments": {"\\ud800": "3"}}</tool_call>'
    tools = json.dumps(
        [{"name": "odd", "parameters": {"type": "object", "properties": {"\ud800": {"type": "integer"}}}}]
    )
    first, second = reparse_columns({"text": [call, odd], "tools": [None, tools]}).to_pylist()
    assert json.loads(first["calls"][0]["arguments"]) == {"x": "\ud800"}
    assert first["error"] is None
    assert (second["calls"], second["error"]["line"]) == ([], 2)
    assert "surrogates not allowed" in second["error"]["message"]


def test_no_rows():
    assert reparse_columns(pa.table({"text": pa.array([], pa.string())})).num_rows == 0
    assert reparse_columns({"text": []}).schema.field("calls") == reparsed_schema().field("calls")


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ({"reply": ["hi"]}, "there is no column 'text'; the columns are reply"),
        ({"text": [1]}, "the column 'text' is int64; it must be a string"),
        ({"text": ["hi"], "tools": [[{"a": 1}, {"a": "b"}]]}, "the column 'tools' cannot be one of Arrow"),
        ([{"text": "hi"}], "a table of Arrow or a mapping, not list"),
    ],
)  # fmt: skip
def test_what_is_not_a_batch(batch, error):
    with pytest.raises(UsageError, match=error):
        reparse_columns(batch)


def test_without_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="Polars is not installed"):
        reparsed_dtype()
    with pytest.raises(UsageError, match="Polars is not installed"):
        reparse_series(None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=re.escape(f"need pyarrow: {install_command('parquet')}")):
        reparse_columns({"text": ["hi"]})


def shown(kind):
    """How the page shows a type of Arrow."""
    return re.sub(r"list<(?:item|element): ", "list<", str(kind))


def table_of(heading):
    section = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    table = re.match(r"\n((?:\|.*\n)+)", section)[1]
    found = [re.match(r"\| `(\w+)` \| `?([^|`]+)`? \|", line) for line in table.splitlines()[2:]]
    return {match[1]: match[2].strip() for match in found}


@pytest.mark.parametrize(
    ("heading", "schema"),
    [("### Results of a batch", batch_schema()), ("### Reparsed replies", reparsed_file_schema())],
)
def test_the_page_has_the_schemas(heading, schema):
    assert table_of(heading) == {field.name: shown(field.type) for field in schema}


@pytest.mark.parametrize(
    ("heading", "columns"),
    [("### Requests", REQUEST_COLUMNS), ("### Replies", REPLY_COLUMNS)],
    ids=["batch", "reparse"],
)
def test_the_page_has_the_columns_that_are_read(heading, columns):
    words = {
        "string": "string",
        "boolean": "boolean",
        "key": "string or integer",
        "object": "struct, map or string of JSON",
        "array": "list of structs or string of JSON",
    }
    assert table_of(heading) == {name: words[kind] for name, kind in columns.kinds.items()}
    section = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    for name in columns.kinds:
        required = re.search(rf"\| `{name}` \|[^|]*\|(.*)\|", section)[1]
        assert ("required" in required) == (name in columns.required)
