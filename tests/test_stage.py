"""A stage of the real servers: what cannot be installed is told, and is a failure only where it is asked for."""

import os
import re
import subprocess
from types import SimpleNamespace

import environments
import one_process
import pytest
import stage
from pages import blocks
from recipes.recipe import CannotMakeError
from recipes.vllm import OLD_VERSION

SHARED = ("-n", "auto", "--dist", "loadgroup")
WAITING = ("-n", str((os.cpu_count() or 1) + 1), *SHARED[2:])
"""Where servers boot, hang and are away, one process more than there are cores."""


@pytest.fixture
def ran(monkeypatch):
    """Every command that was to be run; none is."""
    commands = []

    class Done:
        returncode = 5

    monkeypatch.setattr(stage.subprocess, "run", lambda command, **keys: commands.append(command) or Done)
    monkeypatch.delenv("PROMPTOOLS_E2E", raising=False)
    return commands


def lacking(name):
    raise CannotMakeError(f"no compiler for {name}: install one")


def test_where_it_is_installed_its_tests_run(ran, monkeypatch):
    monkeypatch.setattr(environments, "path_of", lambda name: name)
    assert stage.main(["ollama"], ["-k", "queue"]) == 5, "pytest's own status"
    (command,) = ran
    assert command[command.index("pytest") :] == [
        *("pytest", "-o", "testpaths=tests/e2e", "-m", "ollama", *WAITING, "-k", "queue"),
    ]


def test_several_are_played_together_without_those_that_are_not_there(ran, monkeypatch, capsys):
    monkeypatch.setattr(environments, "path_of", lambda name: lacking(name) if name == "vllm" else name)
    assert stage.main(["vllm", "ollama", "o200k"], []) == 5
    (command,) = ran
    assert command[command.index("pytest") :] == [
        *("pytest", "-o", f"testpaths=tests/e2e {stage.FOLDERS[stage.VOCABULARY]}", "-m", "ollama or oracle", *WAITING),
    ]
    assert capsys.readouterr().out.startswith("== SKIPPED: no test ran against a real vllm: no compiler")


@pytest.mark.parametrize("name", stage.FOLDERS)
def test_its_folders_have_its_tests(ran, monkeypatch, name):
    monkeypatch.setattr(environments, "path_of", lambda name: name)
    assert stage.main([name], []) == 5
    (command,) = ran
    assert command[command.index("pytest") :] == [
        *("pytest", "-o", f"testpaths={stage.FOLDERS[name]}", "-m", stage.mark(name), *SHARED),
    ]


@pytest.mark.parametrize("name", ["bfcl", "chromium", "dataframes", "ray", "redis", "swebench"])
def test_no_marked_test_is_elsewhere(name):
    marked = [path for path in (stage.ROOT / "tests").rglob("test_*.py") if f"mark.{name}" in path.read_text("utf-8")]
    places = [stage.ROOT / place for place in (stage.FOLDERS[name], stage.SERVERS, stage.folder("model-any"))]
    assert any(path.is_relative_to(places[0]) for path in marked)
    assert [path for path in marked if not any(path.is_relative_to(place) for place in places)] == []


def test_make_names_every_stage():
    makefile = (stage.ROOT / "Makefile").read_text("utf-8")
    lists = re.findall(r"^(?:E2E|INTEGRATIONS) := (.+)$", makefile, re.MULTILINE)
    assert {*stage.FOLDERS} <= {name for names in lists for name in names.split()}


def test_make_environments_makes_what_the_stages_of_ci_need():
    command = ["make", "-n", "--no-print-directory", "environments", "-o", ".venv/.made", "MODELS=qwen-0.5b"]
    printed = subprocess.run(command, cwd=stage.ROOT, capture_output=True, text=True, check=True).stdout
    names = printed.partition("tools/environments.py")[2].split()
    makefile = (stage.ROOT / "Makefile").read_text("utf-8")
    lists = re.findall(r"^(?:E2E|INTEGRATIONS) := (.+)$", makefile, re.MULTILINE)
    needed = {name for names in lists for name in names.split()} | {f"vllm-{OLD_VERSION}", "model-qwen-0.5b"}
    assert {*names} == needed - {stage.VOCABULARY} <= environments.ENVIRONMENTS.keys()


def test_every_example_with_data_frames_is_run():
    pages = [page for page in (stage.ROOT / "docs").rglob("*.md") if any("dataframes" in b.marks for b in blocks(page))]
    assert [page.name for page in pages] == ["reparse-a-dataset.md"]


def test_names_come_before_what_is_for_pytest():
    assert stage.split_arguments(["vllm", "o200k", "-k", "vllm"]) == (["vllm", "o200k"], ["-k", "vllm"])


def test_where_it_cannot_be_installed_one_line_says_why(ran, monkeypatch, capsys):
    monkeypatch.setattr(environments, "path_of", lacking)
    assert stage.main(["ollama"], []) == 0
    printed = capsys.readouterr().out
    assert printed == "== SKIPPED: no test ran against a real ollama: no compiler for ollama: install one\n"
    assert ran == []


def test_where_it_is_required_it_is_a_failure(ran, monkeypatch, capsys):
    monkeypatch.setattr(environments, "path_of", lacking)
    monkeypatch.setenv("PROMPTOOLS_E2E", "required")
    assert stage.main(["ollama"], []) == environments.UNAVAILABLE
    assert capsys.readouterr().out.startswith("== FAILED: ollama cannot be installed")
    assert ran == []


def test_what_the_system_forbids_is_skipped_even_where_all_is_required(ran, monkeypatch, capsys):
    monkeypatch.setattr(environments, "path_of", lacking)
    monkeypatch.setenv("PROMPTOOLS_E2E", "required")
    assert stage.main(["bubblewrap"], []) == 0
    assert capsys.readouterr().out.startswith("== SKIPPED: no test ran against a real bubblewrap")
    assert ran == []


def test_whatever_compares_with_openai_harmony_is_looked_for():
    tests = stage.ROOT / "tests"
    comparing = [path for path in tests.rglob("test_*.py") if "\nimport oracle\n" in path.read_text("utf-8")]
    places = [stage.ROOT / place for place in stage.FOLDERS[stage.VOCABULARY].split()]
    assert comparing
    assert [path for path in comparing if not any(path.is_relative_to(place) for place in places)] == []


def test_every_example_of_the_page_on_frameworks_is_run():
    page = stage.ROOT / "docs" / "tasks" / "frameworks.md"
    makefile = (stage.ROOT / "Makefile").read_text("utf-8")
    examples = [block for block in blocks(page) if block.marks[0] in {"python", "js", "go"} and not block.saved]
    used = {block.marks[1] for block in examples} | {*stage.AGENTS}
    assert used == {name for name in environments.ENVIRONMENTS if stage.folder(name) == stage.INTEGRATIONS}
    assert [name for name in used if name not in makefile] == []


def test_what_shares_a_server_runs_in_one_process():
    files = (*one_process.TOGETHER, one_process.MODELS, one_process.DEMO)
    assert [path for path in files if not (stage.ROOT / path).exists()] == []
    ray, models = "tests/batch/test_batch_on_ray.py", one_process.MODELS
    assert one_process.scope_of(f"{ray}::test_a") == one_process.scope_of(f"{ray}::test_b[x]")
    assert one_process.scope_of("tests/test_client.py::test_a") != one_process.scope_of("tests/test_client.py::test_b")
    raw, named = f"{models}::test_no_question_fails[m-raw mode]", f"{models}::test_a_required_call_is_begun_in_raw_mode"
    assert one_process.scope_of(raw) == one_process.scope_of(named) == one_process.scope_of(f"{one_process.DEMO}::test")
    assert one_process.scope_of(raw) != one_process.scope_of(f"{models}::test_no_question_fails[m-native]")


def test_models_are_asked_in_one_stage(ran, monkeypatch):
    monkeypatch.setattr(environments, "path_of", lambda name: name)
    assert stage.main(["model-smollm2", "model-qwen-0.5b"], ["-n", "0"]) == 5
    (command,) = ran
    assert command[command.index("pytest") :] == [
        *("pytest", "-o", "testpaths=tests/models", "-m", "models", *SHARED, "-n", "0"),
    ]


@pytest.mark.parametrize(
    ("names", "chosen"), [(["model-smollm2", "model-qwen-0.5b"], "smollm2 qwen-0.5b"), (["ollama"], None)]
)
def test_a_model_that_is_not_named_is_not_asked(monkeypatch, names, chosen):
    monkeypatch.setattr(environments, "path_of", lambda name: name)
    monkeypatch.delenv("PROMPTOOLS_MODELS", raising=False)
    monkeypatch.setattr(stage.subprocess, "run", lambda command, env, **keys: SimpleNamespace(returncode=env))
    assert stage.main(names, []).get("PROMPTOOLS_MODELS") == chosen


def test_ci_makes_only_what_there_is_to_make():
    makefile = (stage.ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    scripts = [*(stage.ROOT / ".github" / "workflows").glob("*.yml"), stage.ROOT / ".ci" / "run"]
    made = {target for path in scripts for target in re.findall(r"\bmake ([a-z0-9-]+)", path.read_text("utf-8"))}
    assert {"test-all", "docs", "e2e", "integrations", "models"} <= made <= set(phony.split())
