"""A few questions of the Berkeley Function Calling Leaderboard to a real model, through promptools and without it."""

import json

import environments
import pytest
from forking_bfcl import forking_python
from real_models import file_of
from recipes.recipe import CannotMakeError

from promptools.cli import main
from promptools.harness.evaluation.bfcl import WORKER, read_answers
from promptools.lab.llamacpp_server import can_serve, serve_file

pytestmark = pytest.mark.models

MODEL = "qwen-0.5b"
CATEGORY = "simple_python"
COUNT = 2
"""Few: a small model on one core takes seconds for each."""


@pytest.fixture(scope="module")
def server():
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    # one thread: several wait for each other at every step, which takes minutes on a machine with other work
    with serve_file(file_of(MODEL), name=MODEL, threads=1) as running:
        yield running


@pytest.fixture(scope="module")
def runs(server, tmp_path_factory):
    """The folder of a run through promptools and of one without it, and of the report of the former."""
    try:
        python = str(environments.path_of("bfcl"))
    except CannotMakeError as error:
        pytest.skip(f"no bfcl-eval: {error}")
    folder = tmp_path_factory.mktemp("bfcl")
    command = ["eval", "bfcl", "--base-url", server.base_url, "--categories", CATEGORY, "--limit", str(COUNT)]
    command += ["--threads", "1", "--request", '{"temperature": 0, "max_tokens": 100}']
    with forking_python(python, WORKER, tmp_path_factory.mktemp("forking")) as program:
        for name, more in (("ours", ("--report", str(folder / "report.md"))), ("bare", ("--direct",))):
            assert main([*command, "--bfcl-python", program, "--output", str(folder / name), *more]) == 0
    return folder


def lines_of(run, kind):
    (path,) = run.glob(f"{kind}/promptools/*/*_{CATEGORY}_{kind}.json")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["ours", "bare"])
def test_every_question_has_a_result_and_is_checked(runs, name):
    run = runs / name
    chosen = json.loads((run / "test_case_ids_to_generate.json").read_text(encoding="utf-8"))[CATEGORY]
    results = {row["id"]: row for row in lines_of(run, "result")}
    assert len(chosen) == COUNT
    assert sorted(results) == sorted(chosen)
    assert all(row["output_token_count"] > 0 and "traceback" not in row for row in results.values())
    summary, *wrong = lines_of(run, "score")
    assert summary["total_count"] == COUNT
    answers = read_answers(run)
    assert [answer.error for answer in answers] == [""] * COUNT
    assert sum(answer.correct for answer in answers) == summary["correct_count"] == COUNT - len(wrong)


def test_promptools_has_no_fewer_right_than_the_bare_server(runs):
    """The model writes its calls as fenced JSON, which the server returns as text: that is no call for the package."""
    ours, bare = ({answer.id: answer.correct for answer in read_answers(runs / name)} for name in ("ours", "bare"))
    assert sum(ours.values()) >= sum(bare.values())
    assert any(ours.values())
    assert "# BFCL: qwen-0.5b" in (runs / "report.md").read_text(encoding="utf-8")
