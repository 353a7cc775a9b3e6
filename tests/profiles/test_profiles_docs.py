"""The config page says what the code does: its examples load, its tables name every key and its default."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from promptools.profiles import Profile, config_files, kinds, load_config, resolve
from promptools.profiles import config_files as loading
from promptools.profiles.facts import check_facts, fact_types
from promptools.profiles.tables import Location

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(toml|json)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("language", "text"), EXAMPLES)
def test_the_examples_load(tmp_path, language, text):
    path = tmp_path / f"config.{language}"
    path.write_text(text, encoding="utf-8")
    config = load_config(path)
    assert config.warnings == ()
    for provider in config.providers:
        assert resolve("default", provider=provider, config=config).profile.kind in ("vllm", "ollama")


def test_the_page_has_examples_of_both_files():
    assert [language for language, _ in EXAMPLES] == ["toml", "toml", "json"]


def test_the_table_has_every_profile_key_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| ", PAGE.partition("## Profile keys")[2], re.MULTILINE))
    rows = {key: default for key, default in rows.items() if key in fact_types().model_fields}
    assert list(rows) == list(fact_types().model_fields)
    for each in fields(Profile):
        if each.name in rows:
            written = rows[each.name].strip("`").strip()
            values = {"true": True, "false": False, "none": None}
            default = values[written] if written in values else eval(written, {})
            if default is not None:
                default = check_facts({each.name: default}, Location("docs"))[each.name]
            assert default == each.default, each.name


TABLES = (loading.ProviderTable, loading.ModelTable, loading.MarksTable)


@pytest.mark.parametrize("key", [*(key for table in TABLES for key in table.model_fields), "default_provider"])
def test_every_key_of_promptools_toml_has_its_row(key):
    assert f"\n| `{key}` | " in PAGE


def test_every_kind_is_named():
    for kind in kinds():
        assert f"`{kind}`" in PAGE


def test_every_key_of_ppxai_that_is_used_has_its_row():
    table = PAGE.partition("## A ppxai-config.json")[2]
    for key in ("native_tool_calling", *config_files.ToolCalling.model_fields):
        used = key not in ("strip_json_from_text", "api_path")
        assert (f"{key}`" in table) == used, key
