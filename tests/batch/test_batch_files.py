"""Files of a batch: lines as they are, compressed ones, other file systems, and what cannot be read or written."""

import gzip
import os
import re
import sys

import fsspec
import pytest

from promptools.batch import files
from promptools.batch.files import check_name, errors_path, exists, read_lines, remove, write_lines
from promptools.batch.input_survey import survey_input
from promptools.errors import PromptoolsError, UsageError, install_command


def test_lines_and_their_numbers(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"one\r\n\n  \ntw\xc2\x85o\nlast")
    assert list(read_lines(str(path))) == [(1, b"one"), (4, b"tw\xc2\x85o"), (5, b"last")]


def test_a_line_that_is_too_long_is_cut_off_and_the_next_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 10)
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"x" * 35 + b"\n" + b"123456789\n" + b"y" * 10 + b"\nlast\n")
    assert list(read_lines(str(path))) == [(1, b"x" * 10), (2, b"123456789"), (3, b"y" * 10), (4, b"last")]


@pytest.mark.parametrize("end", ["", ".gz", ".bz2", ".xz"])
def test_compressed_files(tmp_path, end):
    path = str(tmp_path / f"out.jsonl{end}")
    write_lines(path, [b"one\n", b"two\n"])
    assert list(read_lines(path)) == [(1, b"one"), (2, b"two")]
    assert [path.name for path in tmp_path.iterdir()] == [f"out.jsonl{end}"]
    if end == ".gz":
        with gzip.open(path) as file:
            assert file.read() == b"one\ntwo\n"
    remove(path)
    remove(path)
    assert not exists(path)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_other_file_systems(end):
    path = f"memory://folder/out.jsonl{end}"
    assert not exists(path)
    write_lines(path, [b"one\n"])
    assert exists(path)
    assert list(read_lines(path)) == [(1, b"one")]
    assert [name.rpartition("/")[2] for name in fsspec.filesystem("memory").ls("folder", detail=False)] == [
        f"out.jsonl{end}"
    ]
    remove(path)
    assert not exists(path)


def test_an_output_that_breaks_off_does_not_appear(tmp_path):
    def lines():
        yield b"one\n"
        raise OSError(28, "No space left on device")

    for path in (str(tmp_path / "out.jsonl"), "memory://broken/out.jsonl"):
        with pytest.raises(PromptoolsError, match=r"cannot write .*: No space left on device"):
            write_lines(path, lines())
        assert not exists(path)
        assert not exists(f"{path}.tmp")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("{folder}/missing.jsonl", "no such file"),
        ("{folder}/missing.jsonl.gz", "no such file"),
        ("memory://missing.jsonl", "no such file"),
        ("{folder}", "not a regular file"),
        ("{folder}/no.jsonl.gz", "Not a gzipped file"),
        ("{folder}/torn.jsonl.gz", "Compressed file ended"),
        ("nowhere://user:secret@host/in.jsonl", "cannot read 'nowhere://\\*\\*\\*@host/in.jsonl'.*Protocol not known"),
    ],
)
def test_what_cannot_be_read(tmp_path, path, error):
    (tmp_path / "no.jsonl.gz").write_bytes(b"{}\n")
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(os.urandom(5000))[:3000])
    with pytest.raises(UsageError, match=error) as raised:
        list(read_lines(path.format(folder=tmp_path)))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "error"),
    [(b"\n", "has no requests"), (b'{"custom_id": "a"}\n' * 2, "has the custom_id 'a' in lines 1 and 2")],
)
def test_what_is_wrong_with_a_remote_file_is_told_without_its_password(lines, error):
    path = "memory://key:secret@host/in.jsonl"
    with fsspec.open(path, "wb") as file:
        file.write(lines)
    with pytest.raises(UsageError, match=error) as raised:
        survey_input(path)
    assert "secret" not in str(raised.value)


def test_without_fsspec(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    (tmp_path / "in.jsonl").write_bytes(b"one\n")
    assert list(read_lines(str(tmp_path / "in.jsonl"))) == [(1, b"one")]
    write_lines(str(tmp_path / "out.jsonl"), [b"one\n"])
    check_name("in.jsonl")
    for path in ("in.jsonl.gz", "s3://bucket/in.jsonl"):
        with pytest.raises(UsageError, match=re.escape(f"needs fsspec: {install_command('batch')}")):
            check_name(path)


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("out.jsonl", "out.errors.jsonl"),
        ("a/out.jsonl.gz", "a/out.errors.jsonl.gz"),
        ("out", "out.errors.jsonl"),
        ("a/out.parquet", "a/out.errors.jsonl"),
        ("s3://b/out.json", "s3://b/out.errors.jsonl"),
    ],
)
def test_the_path_of_errors(output, errors):
    assert errors_path(output) == errors
