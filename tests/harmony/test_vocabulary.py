"""Where the vocabulary is, and what is said where it is not."""

import sys

import oracle
import pytest

from promptools import UsageError
from promptools.harmony import vocabulary


@pytest.fixture
def fresh():
    vocabulary.load_encoding.cache_clear()
    yield
    vocabulary.load_encoding.cache_clear()


def test_ordinary_text_has_no_control_tokens():
    oracle.library()
    encode = vocabulary.load_encode()
    assert encode("commentary") == [12606, 815]
    assert 200007 not in encode("<|end|>")


def test_without_the_library(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    with pytest.raises(UsageError, match=r"pip install 'promptools\[harmony\]'"):
        vocabulary.load_encode()


def test_without_the_vocabulary(fresh, monkeypatch, tmp_path):
    pytest.importorskip("openai_harmony")
    monkeypatch.setenv(vocabulary.FOLDER, str(tmp_path))
    with pytest.raises(UsageError, match=f"cannot load it: .*folder's path into {vocabulary.FOLDER}"):
        vocabulary.load_encode()
