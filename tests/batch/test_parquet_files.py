"""Parquet files of batches: the columns that are read, what a null means, and what cannot be read or written."""

import io
import json
import random
import re
import resource
import subprocess
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from promptools.batch import files as parquet_files
from promptools.batch.columns import REPLY_COLUMNS, REQUEST_COLUMNS, reparsed_file_schema
from promptools.batch.files import check_name, exists, read_column, read_input, read_lines, write_rows
from promptools.errors import PromptoolsError, UsageError, install_command

DAYS = pa.struct([("at", pa.date32())])
REQUEST = {"custom_id": ["a"], "url": ["/v1/chat/completions"]}


def read(path, columns=REQUEST_COLUMNS):
    return [(number, json.loads(text)) for number, text in read_input(str(path), columns)]


def body_of(tmp_path, array):
    pq.write_table(pa.table({**REQUEST, "body": array}), tmp_path / "in.parquet")
    ((_, row),) = read(tmp_path / "in.parquet")
    return row["body"]


def test_nulls_of_structs_are_left_out_and_those_of_lists_and_maps_are_kept(tmp_path):
    nested = {"tools": [{"a": None, "b": {}}, {"a": [1, None], "b": {"c": 1}}, None], "n": None}
    assert body_of(tmp_path, pa.array([nested])) == {"tools": [{"b": {}}, {"a": [1, None], "b": {"c": 1}}, None]}
    maps = pa.array([[("x", None), ("y", {"z": None})]], pa.map_(pa.string(), pa.struct([("z", pa.int64())])))
    assert body_of(tmp_path, maps) == {"x": None, "y": {}}


def test_json_as_a_string_is_not_touched(tmp_path):
    text = '{"a": null, "b": 1.0, "a": [12345678901234567890123]}'
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert body_of(tmp_path, pa.array([text], kind)) == text
    assert body_of(tmp_path, pa.ExtensionArray.from_storage(pa.json_(), pa.array([text]))) == text


def test_a_null_is_nothing_and_other_columns_are_not_read(tmp_path):
    table = pa.table({
        "text": ["one", None],
        "tools": pa.nulls(2),
        "dialect": ["hermes", None],
        "in_reasoning": [None, True],
        "id": [7, None],
        "logged": pa.array([1, 2], pa.timestamp("s")),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    assert read(tmp_path / "in.parquet", REPLY_COLUMNS) == [
        (1, {"text": "one", "dialect": "hermes", "id": 7}),
        (2, {"in_reasoning": True}),
    ]


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"url": ["x"], "body": ["{}"]}, "there is no column 'custom_id'; the columns are url, body"),
        ({**REQUEST}, "there is no column 'body'"),
        ({**REQUEST, "body": [b"{}"]}, "the column 'body' is binary; it must be a struct, a map or a string of JSON"),
        ({**REQUEST, "body": [[1]]}, "the column 'body' is list<.*>; it must be a struct"),
        ({**REQUEST, "body": ["{}"], "custom_id": [1]}, "the column 'custom_id' is int64; it must be a string"),
        (
{**REQUEST, "body": pa.array([{"x": [{"at": 0}]}], pa.struct([("x", pa.list_(DAYS))]))},
            r"the column 'body\.x\[\]\.at' is date32\[day\], which JSON does not have; cast it",
        ),
        (
            {**REQUEST, "body": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))},
            "the column 'body' is map<int32, int32.*>, which JSON does not have",
        ),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_read(tmp_path, table, error):
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    with pytest.raises(UsageError, match=rf"cannot read '.*in\.parquet': {error}"):
        read(tmp_path / "in.parquet")


def test_a_column_that_occurs_twice(tmp_path):
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "in.parquet")
    with pytest.raises(UsageError, match="there are 2 columns 'text'; rename or remove one"):
        read(tmp_path / "in.parquet", REPLY_COLUMNS)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_files_that_are_not_parquet(tmp_path, content):
    (tmp_path / "in.parquet").write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot read '.*in\.parquet': .*not a Parquet file, or a damaged one"):
        read(tmp_path / "in.parquet")


def test_a_file_that_was_cut_off_or_is_missing(tmp_path):
    pq.write_table(pa.table({"text": ["x" * 1000]}), tmp_path / "in.parquet")
    whole = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "in.parquet").write_bytes(whole[:-20])
    with pytest.raises(UsageError, match="not a Parquet file, or a damaged one"):
        read(tmp_path / "in.parquet", REPLY_COLUMNS)
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "missing.parquet")
    (tmp_path / "in.parquet").write_bytes(whole)
    with pytest.raises(UsageError, match="there is no column 'custom_id'"):
        list(read_column(str(tmp_path / "in.parquet"), "custom_id"))


def test_many_row_groups_on_another_file_system(monkeypatch):
    monkeypatch.setattr(parquet_files, "GROUP_BYTES", 5000)
    schema = pa.schema([("custom_id", pa.string())])
    path = "memory://parquet/out.parquet"
    write_rows(path, ({"custom_id": f"r{number}"} for number in range(5000)), schema)
    assert list(read_column(path, "custom_id")) == [f"r{number}" for number in range(5000)]
    files = fsspec.filesystem("memory")
    assert [name.rpartition("/")[2] for name in files.ls("parquet", detail=False)] == ["out.parquet"]
    assert pq.ParquetFile(io.BytesIO(files.cat("parquet/out.parquet"))).num_row_groups > 5


def test_an_output_without_rows(tmp_path):
    write_rows(str(tmp_path / "out.parquet"), [], reparsed_file_schema())
    assert pq.read_table(tmp_path / "out.parquet").schema == reparsed_file_schema()


def test_an_output_that_breaks_off_does_not_appear(tmp_path):
    def rows():
        yield {"custom_id": "a"}
        raise OSError(28, "No space left on device")

    for path in (str(tmp_path / "out.parquet"), "memory://broken/out.parquet"):
        with pytest.raises(PromptoolsError, match=r"cannot write .*: No space left on device"):
            write_rows(path, rows(), pa.schema([("custom_id", pa.string())]))
        assert not exists(path)
        assert not exists(f"{path}.tmp")


def test_names(monkeypatch):
    with pytest.raises(UsageError, match=r"Parquet is compressed inside; name a file that ends in \.parquet"):
        check_name("in.parquet.gz")
    with pytest.raises(UsageError, match="has rows and no lines"):
        list(read_lines("in.parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=re.escape(f"need pyarrow: {install_command('parquet')}")):
        check_name("in.parquet")


MEMORY = """
import resource, sys
from promptools.batch.columns import REPLY_COLUMNS
from promptools.batch.files import read_input, write_rows
import pyarrow as pa, json

def copy(limit):
    for number, text in read_input("in.parquet", REPLY_COLUMNS):
        if number > limit:
            return
        yield json.loads(text)

for limit in (4_000, 1_000_000):
    write_rows("out.parquet", copy(limit), pa.schema([("text", pa.string()), ("id", pa.int64())]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.exhaustive
def test_memory_is_flat_whatever_the_row_groups_are(tmp_path):
    """240 MB of text that does not compress, in one row group, are read and written."""
    rows = 40_000
    chance = random.Random(1)
    texts = [chance.randbytes(3000).hex() for _ in range(rows)]
    pq.write_table(pa.table({"text": texts, "id": range(rows)}), tmp_path / "in.parquet", row_group_size=rows)
    assert pq.ParquetFile(tmp_path / "in.parquet").num_row_groups == 1
    done = subprocess.run([sys.executable, "-c", MEMORY], cwd=tmp_path, capture_output=True, text=True, check=True)
    some, every = map(int, done.stdout.split())
    assert every - some < 60 * 2**20, (some, every)
    assert pq.read_table(tmp_path / "out.parquet", columns=["id"])["id"].to_pylist() == list(range(rows))


def test_a_full_disk(tmp_path):
    texts = ["".join(chr(97 + (at * at + number) % 26) for at in range(400)) for number in range(500)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def limit_files():  # what is written beyond it fails, as on a disk that is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    for output in ("out.jsonl", "out.parquet"):
        done = subprocess.run(
            [sys.executable, "-B", "-m", "promptools", "reparse", "in.jsonl", output, "--workers", "1"],
            cwd=tmp_path,
            preexec_fn=limit_files,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert f"cannot write '{output}': " in done.stderr
        assert "File too large" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
