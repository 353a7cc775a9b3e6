"""The tables of docs/tasks/add-a-dialect.md: formats that no family writes pass the shared cases from TOML alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from casebook import Row
from pages import blocks
from shared_cases import check, shared_cases

from promptools import dialects
from promptools.dialects.contract import Dialect
from promptools.dialects.table import KINDS, read_dialect

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks" / "add-a-dialect.md"
TABLES = {block.saved: block.text for block in blocks(PAGE) if block.marks[0] == "toml" and block.saved}


@pytest.fixture
def dialect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dialect]:
    path = tmp_path / str(request.param)
    path.write_text(TABLES[request.param], encoding="utf-8")
    loaded = dialects.load(path)
    yield loaded
    dialects.unregister(loaded.name)


@pytest.mark.parametrize("dialect", TABLES, indirect=True)
def test_the_tables_of_the_page_pass_the_shared_cases(dialect: Dialect) -> None:
    rows = shared_cases(dialect)
    assert len(rows) > 30
    failed = {row.name: str(error).partition("\n")[0] for row in rows if (error := problem(row)) is not None}
    assert failed == {}


def problem(row: Row) -> AssertionError | None:
    try:
        check(row)
    except AssertionError as error:
        return error
    return None


def test_there_is_a_table_of_each_kind(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    kinds = set()
    for text in TABLES.values():
        path.write_text(text, encoding="utf-8")
        kinds.add(type(read_dialect(path)))
    assert kinds == {kind.make for kind in KINDS.values()}


def test_no_family_of_the_package_has_their_markers() -> None:
    literals = [literal for name in dialects.BUILT_IN for head in dialects.get(name).heads for literal in head.literals]
    for table, marker in {"relay.toml": "<|to|>", "atlas.toml": "<atlas:", "ledger.toml": "<|entry|>"}.items():
        assert marker in TABLES[table]
        assert not any(literal.startswith(marker) for literal in literals)


def test_the_page_has_the_keys_that_the_loader_takes() -> None:
    spec = importlib.util.spec_from_file_location("dialect_keys", ROOT / "tools" / "dialect_keys.py")
    assert spec is not None
    assert spec.loader is not None
    tool: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = PAGE.read_text("utf-8")
    assert tool.with_keys(text) == text, "run make dialects"
    assert all(f"| `{key}`" in text for kind in KINDS.values() for key in kind.keys)
