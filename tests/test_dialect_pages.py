"""The reference of dialects is what the code and the tables say now; `make dialects` writes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from promptools import dialects

ROOT = Path(__file__).parents[1]
COMMON = {
    "json", "harmony", "hermes", "llama3_json", "pythonic", "mistral", "qwen3_coder", "glm", "deepseek", "kimi_k2"
}  # fmt: skip


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dialect_pages", ROOT / "tools" / "dialect_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_would_be_written() -> None:
    tool = _tool()
    made = tool.pages()
    on_disk = {path.name: path.read_text("utf-8") for path in tool.FOLDER.glob("*.md")}
    assert set(on_disk) == set(made)
    stale = [name for name, text in made.items() if on_disk[name] != text]
    assert not stale, "run make dialects"


@pytest.mark.parametrize("name", dialects.BUILT_IN)
def test_each_has_cases_of_its_own_and_half_of_them_go_wrong(name: str) -> None:
    tool = _tool()
    read = [tool.Read(row, tool._reply(row)) for row in tool.cases_of(name)]
    wrong = [each for each in read if each.fixes or each.reply.malformed or each.row.unknown or not each.reply.calls]
    assert len(read) >= (40 if name in COMMON else 15)
    assert 2 * len(wrong) >= len(read)


@pytest.mark.parametrize("name", dialects.BUILT_IN)
def test_each_says_who_speaks_it(name: str) -> None:
    assert len(dialects.get(name).models) > 3


def test_a_row_says_with_which_options_it_is_read() -> None:
    tool = _tool()
    said = tool._model_cell(tool.Row("t", "n", "a", tools="none", options={"strictness": "balanced", "expect": "json"}))
    assert said == "`a`<br>with `expect='json'`, `tools=None`"
    assert tool._model_cell(tool.Row("t", "n", "a")) == "`a`"
