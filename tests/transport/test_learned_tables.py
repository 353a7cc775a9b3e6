"""Where the tables are kept that were learned from chat templates."""

from pathlib import Path

import pytest

from promptools.transport import found_config
from promptools.transport.learned_tables import LearnedTables, learned_folder


def test_a_table_is_there_for_the_next_process(tmp_path):
    folder = tmp_path / "cache" / "learned"
    first = LearnedTables(folder)
    assert first.get("learned_1") is None
    first.put("learned_1", 'kind = "json"\n')
    assert LearnedTables(folder).get("learned_1") == first.get("learned_1") == 'kind = "json"\n'
    assert [path.name for path in folder.iterdir()] == ["learned_1.toml"], "nothing else is left there"


@pytest.mark.parametrize("folder", [None, Path("/dev/null/learned")])
def test_where_nothing_can_be_written_it_is_kept_in_memory(folder):
    tables = LearnedTables(folder)
    tables.put("learned_1", "text")
    assert tables.get("learned_1") == "text"
    assert LearnedTables(folder).get("learned_1") is None


def test_a_file_that_is_not_text_counts_as_none(tmp_path):
    (tmp_path / "learned_1.toml").write_bytes(b"\xff\xfe")
    assert LearnedTables(tmp_path).get("learned_1") is None


def test_the_folder_is_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path))
    assert learned_folder() == tmp_path / "learned"
    monkeypatch.delenv("PROMPTOOLS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert learned_folder() == tmp_path / "home" / ".cache" / "promptools" / "learned"
    monkeypatch.setattr(found_config.Path, "home", no_home)
    assert learned_folder() is None


def no_home():
    raise RuntimeError("no home")
