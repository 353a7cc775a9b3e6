"""Where the vocabulary is, what is said where it is not, and that both ways through it agree."""

import os
import subprocess
import sys
from pathlib import Path

import oracle
import pytest

from promptools import UsageError
from promptools.harmony import bpe_vocabulary
from promptools.harmony.tokens import TOKEN_IDS

TEXTS = [
    "They want the weather in Oslo.",
    "  two  spaces,\ttabs\n\n and CRLF\r\n",
    '{"city": "Tromsø", "days": 1234567}',
    "<|end|> is ordinary here",
    "日本語 Ελληνικά العربية 👩‍👩‍👧 é",
    "\x00\x7f\ufeff\uffff",
]


@pytest.fixture
def fresh():
    bpe_vocabulary.load_encoding.cache_clear()
    yield
    bpe_vocabulary.load_encoding.cache_clear()


@pytest.fixture
def file():
    """The file itself."""
    return oracle.file()


@pytest.mark.oracle
def test_ordinary_text_has_no_control_tokens():
    oracle.library()
    encode = bpe_vocabulary.load_encode()
    assert encode("commentary") == [12606, 815]
    assert 200007 not in encode("<|end|>")


def test_without_the_library(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    with pytest.raises(UsageError, match=r"pip install 'promptools-compat\[harmony\]'"):
        bpe_vocabulary.load_encode()


def test_without_the_vocabulary(fresh, monkeypatch, tmp_path):
    pytest.importorskip("openai_harmony")
    monkeypatch.setenv(bpe_vocabulary.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(UsageError, match=f"cannot load it: .*folder's path into {bpe_vocabulary.FOLDER_VARIABLE}"):
        bpe_vocabulary.load_encode()


# --- where it is -----------------------------------------------------------------------------------------------------


def put(folder):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / bpe_vocabulary.FILE_NAME
    file.write_text("there")
    return file


def test_ours_is_in_the_cache(tmp_path):
    ours = tmp_path / ".cache/promptools/harmony" / bpe_vocabulary.FILE_NAME
    assert bpe_vocabulary.cached_file({}, tmp_path) == ours
    assert bpe_vocabulary.cached_file({"PROMPTOOLS_CACHE": "/big"}, tmp_path) == Path(
        "/big/harmony", bpe_vocabulary.FILE_NAME
    )
    assert bpe_vocabulary.cached_file({"PROMPTOOLS_CACHE": ""}, tmp_path) == ours


def test_the_variable_s_folder_comes_first(tmp_path):
    environ = {bpe_vocabulary.FOLDER_VARIABLE: str(tmp_path / "told")}
    assert bpe_vocabulary.find_file(environ, tmp_path) is None
    ours = put(tmp_path / ".cache/promptools/harmony")
    assert bpe_vocabulary.find_file({}, tmp_path) == ours
    assert bpe_vocabulary.find_file(environ, tmp_path) == ours
    theirs = put(tmp_path / "told")
    assert bpe_vocabulary.find_file(environ, tmp_path) == theirs
    assert bpe_vocabulary.find_file({}, tmp_path) == ours


@pytest.mark.parametrize("given", [{}, {bpe_vocabulary.FOLDER_VARIABLE: "/there/is/none"}])
def test_the_library_is_told_of_ours(tmp_path, given):
    environ = dict(given)
    assert bpe_vocabulary.configure_library(environ, tmp_path) is None
    assert environ == given
    ours = put(tmp_path / ".cache/promptools/harmony")
    assert bpe_vocabulary.configure_library(environ, tmp_path) == ours
    assert environ == {bpe_vocabulary.FOLDER_VARIABLE: str(ours.parent)}


@pytest.mark.oracle
def test_the_library_finds_what_it_was_told(file, tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from promptools.harmony import bpe_vocabulary as vocabulary;"
        "vocabulary.configure_library(os.environ, Path(sys.argv[1])); print(vocabulary.load_encode()('commentary'))"
    )
    ours = bpe_vocabulary.cached_file({}, tmp_path)
    ours.parent.mkdir(parents=True)
    ours.symlink_to(file)
    without = {
        name: value
        for name, value in os.environ.items()
        if name not in {bpe_vocabulary.FOLDER_VARIABLE, bpe_vocabulary.CACHE_VARIABLE}
    }
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, env=without, capture_output=True, text=True, check=True)
    assert done.stdout == "[12606, 815]\n"


# --- bytes for ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.oracle
def test_ids_come_back_as_the_bytes_of_the_text(file, text):
    decode = bpe_vocabulary.load_decode(file)
    assert b"".join(decode(token) for token in bpe_vocabulary.load_encode()(text)) == text.encode()


@pytest.mark.oracle
def test_every_ordinary_token_is_the_library_s(file):
    decode, library = bpe_vocabulary.load_decode(file), oracle.encoding()
    for token in [*range(0, 199_998, 997), 199_997]:
        assert decode(token) == bytes(library._inner.decode_bytes([token]))


@pytest.mark.parametrize("token", [-1, *TOKEN_IDS.values(), 201_088])
@pytest.mark.oracle
def test_control_tokens_are_not_ordinary_ones(file, token):
    with pytest.raises(KeyError):
        bpe_vocabulary.load_decode(file)(token)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the vocabulary '.*nothing'.*promptools harmony vocab --from"):
        bpe_vocabulary.load_decode(tmp_path / "nothing")


def test_another_file(tmp_path):
    (tmp_path / bpe_vocabulary.FILE_NAME).write_text("IQ== 0\n")
    with pytest.raises(
        UsageError, match=rf"is not the vocabulary of gpt-oss: its sha256 is \w{{64}}, not {bpe_vocabulary.SHA256}"
    ):
        bpe_vocabulary.load_decode(tmp_path / bpe_vocabulary.FILE_NAME)
