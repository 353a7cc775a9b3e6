"""A real model on llama.cpp under names that say nothing, or something else."""

import json
import os
import shutil

import pytest
from real_models import file_of

from promptools.cli import main
from promptools.lab.llamacpp_server import serve_file

pytestmark = pytest.mark.models


@pytest.fixture
def weights():
    """The file of Qwen2.5-Coder 0.5B."""
    return file_of("qwen-0.5b")


@pytest.mark.parametrize(
    ("file", "alias", "expected"),
    [
        (
            "q05.gguf",
            "local-model",
            {
                "gpt-4": ("qwen", "chat template", "native"),
                "llama3": ("qwen", "chat template", "native"),
                "qwen2.5-coder": ("qwen2.5-coder", "name", "prompt"),
            },
        ),
        ("llama-3.2-1b.gguf", "qwen2.5-coder", {"gpt-oss-20b": ("qwen2.5-coder", "model_alias", "prompt")}),
        (
            "Qwen2.5-Coder-0.5B-Instruct-GGUF/q05.gguf",
            "llama3",
            {"gpt-4": ("qwen2.5-coder", "model_path", "prompt"), "mistral": ("qwen2.5-coder", "model_path", "prompt")},
        ),
    ],
    ids=["nothing", "its alias", "its folder"],
)
def test_a_name_cannot_contradict_the_template_and_chooses_what_it_leaves_open(
    weights, tmp_path, capsys, file, alias, expected
):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    try:
        os.link(weights, path)
    except OSError:  # another file system
        shutil.copy(weights, path)
    with serve_file(path, name=alias, folder=tmp_path, context=1024) as server:
        for requested, (family, by, first) in expected.items():
            found = detect(server, requested, capsys)
            assert (found["family"], found["family_by"], found["modes"][0]) == (family, by, first)
            told = dict(found["family_evidence"])
            assert "qwen2.5-coder" in told["chat template"]
            assert told["n_vocab 151936"] == "", "Qwen2.5's, with or without Coder"
            if by == "chat template":
                assert "no name says that it is qwen-thinking, qwen2.5-coder" in found["family_why"]


def detect(server, requested, capsys):
    """What `promptools detect` prints as JSON, after a look at what it prints for people."""
    asked = ["detect", "--base-url", server.url, "--model", requested]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(asked) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{requested}: family {found['family']}, by {found['family_why']}" in shown
    assert "n_vocab 151936" in shown
    return found
