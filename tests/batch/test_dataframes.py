"""The examples of docs/tasks/reparse-a-dataset.md, run by the real Ray Data, datasets and Polars, and further ones.

They run in the environment `dataframes` (tools/environments.py), which `make e2e` makes.
"""

import os
import subprocess
import sys
from pathlib import Path

import environments
import pytest
from pages import Block, blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks" / "reparse-a-dataset.md"
BLOCKS = blocks(PAGE)


def library_of(example: Block) -> str:
    """Return the library that an example imports first."""
    return example.text.split()[1]


EXAMPLES = [
    pytest.param(example, output.text, id=library_of(example))
    for example, output in zip(BLOCKS, [*BLOCKS[1:], Block((), "", 0)], strict=True)
    if example.marks == ("python", "dataframes") and output.marks == ("text", "printed")
]

pytestmark = pytest.mark.dataframes

MORE = """
import json

import datasets
import polars as pl
import pyarrow as pa

from promptools.batch import reparse_columns, reparse_series, reparsed_dtype, reparsed_schema

TOOLS = [
    {"name": "get_weather", "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}}},
    {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string", "enum": ["a"]}}}},
]
CALL = '<tool_call>{"name": "get_weather", "arguments": {"days": "3"}}</tool_call>'
# the first batch has neither calls nor errors, and the tools are structs with the fields of one another
columns = {
    "label": [0, 1, 1, 0],
    "text": ["hi", "ho", CALL, None],
    "tools": [None, None, TOOLS, TOOLS],
    "in_reasoning": [None, None, False, None],
}
wanted = reparse_columns(pa.table(columns)).select(reparsed_schema().names).to_pylist()
assert json.loads(wanted[2]["calls"][0]["arguments"]) == {"days": 3}
assert "'text' is None" in wanted[3]["error"]["message"]
for row in wanted:
    row["error"] = row["error"] and row["error"]["message"]


def check(rows):
    for row, result in zip(rows, wanted, strict=True):
        message = row["error"] and row["error"]["message"]
        assert {**{key: row[key] for key in result}, "error": message} == result, row


def check_datasets():
    dataset = datasets.Dataset.from_dict(columns).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    for given in (dataset, dataset.with_format("arrow")):
        read = given.map(reparse_columns, batched=True, batch_size=2).with_format(None)
        check(read)
        assert read["label"][:] == columns["label"]
        assert read.features["label"].names == ["no", "yes"]
        assert list(read.features)[:4] == list(columns)


def check_polars():
    frame = pl.DataFrame(columns)
    read = pl.struct("text", "tools", "in_reasoning").map_batches(reparse_series, return_dtype=reparsed_dtype())
    lazy = frame.lazy().with_columns(read.alias("read")).unnest("read")
    assert lazy.collect_schema() == lazy.collect().schema
    check(lazy.collect().to_dicts())
    (read,) = frame.select(read).get_columns()
    assert (read.name, read.dtype) == ("text", reparsed_dtype())


def check_ray():
    import ray

    flat = {**columns, "tools": [tools and json.dumps(tools) for tools in columns["tools"]]}
    for given, options in ((columns, {"batch_format": "pyarrow"}), (flat, {})):
        read = ray.data.from_arrow(pa.table(given)).map_batches(reparse_columns, batch_size=2, **options)
        rows = read.to_pandas().to_dict("records")
        assert sorted(row["label"] for row in rows) == [0, 0, 1, 1]
        tables = [ray.get(reference) for reference in read.to_arrow_refs()]
        read = pa.concat_tables(tables)
        assert read.select(reparsed_schema().names).schema.equals(reparsed_schema())
        check(read.to_pylist())


globals()[f"check_{__import__('sys').argv[1]}"]()
"""


def run(program, folder, *arguments):
    (folder / "program.py").write_text(program, encoding="utf-8")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RAY_ADDRESS": "local",  # else it joins any cluster that runs on this machine
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [environments.path_of("dataframes"), "program.py", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Ray prints its warnings of a slow machine (workers that take long to start) among the program's own lines
    return "".join(line for line in done.stdout.splitlines(keepends=True) if "(raylet)" not in line)


def test_there_is_one_for_each():
    assert {param.id for param in EXAMPLES} == {"ray", "datasets", "polars"}
    assert len(EXAMPLES) == sum("dataframes" in block.marks for block in BLOCKS)


@pytest.mark.parametrize(("example", "output"), EXAMPLES)
def test_an_example_and_batches_of_any_kind(example, output, tmp_path):
    """As on the page, and then lists of structs, labels, and a first batch from which no type can be inferred.

    In one process, for Ray starts a cluster in each.
    """
    first = next(block for block in BLOCKS if block.marks == ("python", "run"))
    subprocess.run([sys.executable, "-c", first.text], cwd=tmp_path, check=True)
    assert run(f"{example.text}\n{MORE}", tmp_path, library_of(example)).strip() == output.strip()
