"""The facts that ship: whole, sourced, dated, and unambiguous."""

import itertools
import re
from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest

from promptools import dialects
from promptools.errors import UsageError
from promptools.harmony.tokens import TOKEN_IDS
from promptools.profiles import Profile, all_control_tokens, facts, families, kinds, load_builtin
from promptools.profiles.facts import (
    Fact,
    fact_types,
    kind_of,
    normalize_model_name,
    size_in_name,
    version_numbers,
)

ALL = (*kinds(), *families())
EXPECTED_KINDS = {"vllm", "ollama", "lmstudio", "llamacpp", "sglang", "transformers-serve", "openai-compatible"}


def test_every_promised_kind_ships():
    assert set(kinds()) == EXPECTED_KINDS
    assert {"gpt-oss", "qwen", "qwen3-coder", "hermes", "llama", "mistral", "deepseek", "glm", "kimi"} <= set(
        families()
    )
    assert not set(kinds()) & set(families())


@pytest.mark.parametrize("name", ALL)
def test_every_fact_has_a_reason_a_source_and_a_date(name):
    shipped = load_builtin(name)
    assert shipped.title
    assert shipped.facts
    for fact in shipped.facts:
        assert fact.key in fact_types().model_fields
        assert len(fact.why) > 10
        assert len(fact.source) > 5
        assert type(fact.date) is date
        assert date(2026, 1, 1) <= fact.date <= date.today()
        assert set(fact.on) <= set(kinds())
        for bound in (fact.since, fact.until):
            assert bound is None or version_numbers(bound)


@pytest.mark.parametrize("name", kinds())
def test_a_kind_has_no_globs_and_an_address_if_it_can_be_anywhere(name):
    shipped = load_builtin(name)
    assert shipped.globs == ()
    assert (shipped.base_url is None) == (name == "openai-compatible")


@pytest.mark.parametrize("name", families())
def test_a_family_has_globs_in_the_form_that_names_are_brought_to(name):
    shipped = load_builtin(name)
    assert shipped.globs
    assert shipped.aliases == ()
    for glob in shipped.globs:
        assert glob == normalize_model_name(glob)


@pytest.mark.parametrize("name", ALL)
def test_no_two_facts_of_a_file_disagree(name):
    shipped = load_builtin(name)
    bounds = {bound for fact in shipped.facts for bound in (fact.since, fact.until) if bound}
    sizes = {size for fact in shipped.facts if (size := fact.below_parameters)}
    for version in (None, "0", "99999999", *bounds):
        for kind, size in itertools.product(kinds(), (None, 0, 1e15, *sizes)):
            keys = [fact.key for fact in shipped.facts if fact.holds(kind, version, size)]
            assert len(keys) == len(set(keys)), (kind, version, size)


def test_aliases_of_kinds_are_unambiguous():
    spellings = [each for kind in kinds() for each in (kind, *load_builtin(kind).aliases)]
    assert len(spellings) == len(set(spellings))
    assert all(each == each.lower() for each in spellings)
    assert kind_of("LM Studio") == kind_of("lm-studio") == "lmstudio"
    assert kind_of("llama.cpp") == "llamacpp"
    assert kind_of("vllm-gpt-oss") is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.16.0", (0, 16)),
        ("v0.32.0+cpu", (0, 32)),
        ("0.27.2rc1", (0, 27, 2, 1)),
        ("b10488", (10488,)),
        ("2026.10.11549", (2026, 10, 11549)),
        ("dev", ()),
    ],
)
def test_versions_compare_by_their_numbers(version, expected):
    assert version_numbers(version) == expected


@pytest.mark.parametrize(
    ("since", "until", "version", "holds"),
    [
        (None, None, None, True),
        ("0.16", None, None, True),
        (None, "0.16", None, False),
        ("0.10", "0.16", None, False),
        ("0.16", None, "0.16.0", True),
        ("0.16", None, "0.9.9", False),
        (None, "0.16", "0.15.9", True),
        (None, "0.16", "0.16.0", False),
        ("0.10", "0.16", "0.12.1", True),
    ],
)
def test_bounds_are_half_open_and_an_unknown_version_is_the_newest(since, until, version, holds):
    fact = Fact(key="n", value=True, why="", source="", date=date(2026, 11, 21), since=since, until=until)
    assert fact.holds("vllm", version) is holds


def test_a_fact_may_be_about_some_kinds_only():
    fact = Fact(key="n", value=True, why="", source="", date=date(2026, 11, 21), on=("vllm",))
    assert fact.holds("vllm", None)
    assert not fact.holds("ollama", None)


@pytest.mark.parametrize(
    ("below", "parameters", "holds"),
    [
        (None, None, True),
        (None, 7e9, True),
        (1e9, 494_032_768, True),
        (1e9, 1e9, False),
        (1e9, None, False),
    ],
)
def test_a_fact_about_smaller_models_does_not_hold_for_an_unknown_size(below, parameters, holds):
    fact = Fact(key="n", value=True, why="", source="", date=date(2026, 11, 28), below_parameters=below)
    assert fact.holds("vllm", None, parameters) is holds


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-coder:0.5b", 5e8),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", 1.5e9),
        ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 5e8),
        ("gemma-3-270m-it", 2.7e8),
        ("Qwen3-30B-A3B", 30e9),
        ("494.03M", 494.03e6),
        ("Qwen2.5-7B-Instruct-1M", 7e9),
        ("qwen2.5-1m", None),
        ("1m-context-7b", 7e9),
        ("qwen2.5_coder_0_5b", None),
        ("gemma-3-4b-4bit", 4e9),
        ("phi-3.5-4bit-q4_0", None),
        ("gemma-3n-e2b", None),
        ("qwen1.5-moe-a2.7b", None),
        ("mixtral-8x7b", None),
        ("qwen2.5-coder", None),
        ("llama3.1", None),
        ("model-b", None),
    ],
)
def test_a_name_may_state_the_size(name, parameters):
    assert size_in_name(name) == parameters


def test_an_unknown_name_says_which_there_are():
    with pytest.raises(UsageError, match=r"no facts ship about 'olama'; did you mean 'ollama'\? known: .*vllm"):
        load_builtin("olama")


def test_every_flag_is_documented_where_it_is_declared():
    source = Path(facts.__file__).with_name("profile.py").read_text(encoding="utf-8")
    for each in fields(Profile):
        assert re.search(rf'\n    {each.name}: .*\n    """', source), each.name


def test_the_wheels_folder_goes_before_the_source_trees(tmp_path, monkeypatch):
    package = tmp_path / "promptools"
    package.mkdir()
    monkeypatch.setattr(facts.promptools, "__file__", str(package / "__init__.py"))
    facts.facts_folder.cache_clear()
    try:
        assert facts.facts_folder() == tmp_path / "providers"
        facts.facts_folder.cache_clear()
        (package / "_providers").mkdir()
        assert facts.facts_folder() == package / "_providers"
    finally:
        facts.facts_folder.cache_clear()


@pytest.mark.parametrize("name", families())
def test_the_dialect_of_a_family_exists(name):
    for fact in load_builtin(name).facts:
        if fact.key == "dialect":
            assert fact.value in dialects.names()


def test_control_tokens_of_a_model_that_nobody_knows_are_those_of_all():
    every = all_control_tokens()
    assert {"<|im_end|>", "<|eot_id|>", "[TOOL_CALLS]", "<end_of_turn>", "<|start|>", "<|{word}|>"} <= every
    for name in families():
        for fact in load_builtin(name).facts:
            assert fact.key != "control_tokens" or set(fact.value) <= every


def test_harmony_s_tokens_are_those_of_its_own_module():
    (tokens,) = (fact.value for fact in load_builtin("gpt-oss").facts if fact.key == "control_tokens")
    assert set(tokens) == {*(f"<|{name}|>" for name in TOKEN_IDS), "<|reserved_{n}|>"}
