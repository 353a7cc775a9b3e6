"""`promptools harmony vocab`: the file is checked, kept, found, and used by what renders ids."""

import json
import sys
from pathlib import Path

import oracle
import pytest

from promptools.cli import main
from promptools.errors import install_command
from promptools.harmony import bpe_vocabulary

OURS = Path(".cache/promptools/harmony") / bpe_vocabulary.FILE_NAME


@pytest.fixture
def file():
    return oracle.file()


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (bpe_vocabulary.FOLDER_VARIABLE, bpe_vocabulary.CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(capsys, *arguments):
    status = main(["harmony", "vocab", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_where_it_is_looked_for(capsys, home):
    status, out, err = run(capsys)
    assert (status, err) == (1, "")
    assert (
        f"There is none: get it from {bpe_vocabulary.FILE_URL} and run 'promptools harmony vocab --from FILE'." in out
    )
    (looked,) = json.loads(run(capsys, "--json")[1])["looked"]
    assert looked == {"file": str(home / OURS), "told_by": bpe_vocabulary.INSTALL_COMMAND, "holds": "nothing"}


@pytest.mark.oracle
def test_it_is_kept_and_found(capsys, file, home):
    status, out, _ = run(capsys, "--from", file)
    assert status == 0
    assert f"promptools uses {home / OURS} and tells openai-harmony of it." in out
    assert f"{bpe_vocabulary.FOLDER_VARIABLE}={(home / OURS).parent}" in out
    assert (home / OURS).read_bytes() == file.read_bytes()
    assert list((home / OURS).parent.iterdir()) == [home / OURS]
    assert run(capsys)[0] == 0


@pytest.mark.oracle
def test_it_is_found_where_the_variable_says(capsys, home, file, monkeypatch):
    monkeypatch.setenv(bpe_vocabulary.FOLDER_VARIABLE, str(file.parent))
    status, out, _ = run(capsys, "--json")
    assert status == 0
    told = json.loads(out)
    assert told["file"] == str(file)
    assert told["looked"] == [
        {"file": str(file), "told_by": bpe_vocabulary.FOLDER_VARIABLE, "holds": "the vocabulary"},
        {"file": str(home / OURS), "told_by": bpe_vocabulary.INSTALL_COMMAND, "holds": "nothing"},
    ]


def test_another_file_that_stands_first_is_told(capsys, home, monkeypatch):
    wrong = home / "wrong" / bpe_vocabulary.FILE_NAME
    wrong.parent.mkdir()
    wrong.write_text("IQ== 0\n")
    monkeypatch.setenv(bpe_vocabulary.FOLDER_VARIABLE, str(wrong.parent))
    status, out, _ = run(capsys)
    assert status == 1
    assert f"{wrong} comes first and is not {bpe_vocabulary.FILE_NAME}" in out
    assert json.loads(run(capsys, "--json")[1])["file"] is None


def test_without_the_library_that_is_told(capsys, home, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, out, _ = run(capsys)
    assert status == 1
    assert install_command("harmony") in out


def test_another_file_is_not_kept(capsys, home):
    (home / "words.txt").write_text("IQ== 0\n")
    status, out, err = run(capsys, "--from", home / "words.txt")
    assert (status, out) == (2, "")
    assert err.startswith(f"promptools harmony: '{home / 'words.txt'}' is not the vocabulary of gpt-oss: its sha256 is")
    assert f"Take {bpe_vocabulary.FILE_NAME} from {bpe_vocabulary.FILE_URL}." in err
    assert not (home / OURS).exists()


def test_a_file_that_is_not_there(capsys, home):
    status, out, err = run(capsys, "--from", home / "nothing")
    assert (status, out) == (2, "")
    assert f"cannot read '{home / 'nothing'}': No such file or directory" in err


@pytest.mark.oracle
def test_a_folder_that_cannot_be_made(capsys, file, home, monkeypatch):
    (home / "in-the-way").write_text("")
    monkeypatch.setenv(bpe_vocabulary.CACHE_VARIABLE, str(home / "in-the-way"))
    status, out, err = run(capsys, "--from", file)
    assert (status, out) == (2, "")
    assert "name another folder with PROMPTOOLS_CACHE" in err
