"""The plugin in a fresh pytest: the example repository passes, fails where it should, and loads next to nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from promptools import UsageError
from promptools.testing import recorded

EXAMPLE = Path(__file__).parents[2] / "examples" / "regression-corpus"
HEAVY = {"openai", "pydantic", "httpx", "httpx2", "syrupy", "jsonschema", "ollama", "regex", "anyio"}


UNUSED = ("-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:pytest_cov")
"""Plugins that happen to be installed here, and take half a second to load."""


def run_pytest(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *UNUSED, *arguments]
    dropped = ("PYTEST", "COV", "PYTHONDONTWRITEBYTECODE")  # bytecode is kept, as everywhere but on some machines
    environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def example(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "repository", ignore=ignored))


def test_the_example_passes(example):
    done = run_pytest(example)
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
    assert "1 snapshot passed" in done.stdout


def test_a_changed_reading_fails_with_a_diff(example):
    (file,) = (example / "corpus").iterdir()
    first, rest = file.read_text().split("\n", 1)
    row = json.loads(first)
    row["expected"][0]["calls"][0]["arguments"]["city"] = "Rome"
    file.write_text(f"{json.dumps(row)}\n{rest}")
    done = run_pytest(example, "tests/test_corpus.py")
    assert done.returncode == 1
    assert "1 failed, 5 passed" in done.stdout
    assert '-          "city": "Rome"' in done.stdout
    assert '+          "city": "Paris"' in done.stdout
    assert "promptools replay --update" in done.stdout


def test_the_plugin_loads_no_large_library():
    code = "import sys, promptools.testing.plugin; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
    code = "import sys, promptools.testing.plugin; print(*(m for m in sys.modules if m.startswith('promptools')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) < 8


def test_a_corpus_that_cannot_be_read_does_not_pass(tmp_path):
    with pytest.raises(UsageError, match="no file or directory"):
        recorded(tmp_path / "none")
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="holds no recorded reply"):
        recorded(tmp_path)
    (tmp_path / "a.jsonl").write_text("no row\n")
    with pytest.raises(UsageError, match=r"a\.jsonl:1: no JSON"):
        recorded(tmp_path)
