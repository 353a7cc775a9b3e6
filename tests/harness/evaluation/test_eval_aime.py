"""`promptools eval aime` on a real llama.cpp, whose model has learned the answers."""

import json
import os
from pathlib import Path

import pytest
from bubblewrapped import program
from recipes.recipe import CannotMakeError
from upstream import running

from promptools.cli import main
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.testing import HttpAnswer, ModelReply

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")]


def called(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


SCRIPT = [
    ScriptedReply("sum of one and one", "That is \\boxed{2}."),
    ScriptedReply("sum of two and two", "I think that it is 5."),
    ScriptedReply("six times seven", called("container.exec", command=["bash", "-lc", "echo The product is $((6*7))"])),
    ScriptedReply("seven times six", called("python", code="print('The product', 'is', 7 * 6)")),
    ScriptedReply("The product is 42", "So it is \\boxed{42}."),
]
TASKS = [
    {"id": "one", "question": "The sum of one and one?", "answer": 2},
    {"question": "The sum of two and two?", "answer": "4"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(SCRIPT, template="hermes", name="sums", folder=tmp_path_factory.mktemp("sums")) as running:
        yield running


@pytest.fixture
def evaluate(server, tmp_path, capsys):
    """Run the benchmark on some tasks; return the status, what was printed, and the log."""

    def run(tasks, *more):
        (tmp_path / "tasks").write_text("\n".join(map(json.dumps, tasks)))
        command = ["eval", "aime", str(tmp_path / "tasks"), "--base-url", server.base_url, "--workers", "2"]
        status = main([*command, "--output", str(tmp_path / "log"), *more])
        log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()[1:]]
        return status, capsys.readouterr(), log

    return run


UNCONFINED = ("--sandbox", "local")


def test_a_run_continues_and_has_a_report(evaluate, tmp_path):
    common = ("--tools", "none", "--request", '{"temperature": 0}', "--json", "--report", str(tmp_path / "report.md"))
    status, first, _ = evaluate(TASKS, *common, "--repeats", "1")
    assert status == 0
    assert json.loads(first.out)["attempts"] == 2
    _, second, log = evaluate(TASKS, *common, "--repeats", "2")
    figures = json.loads(second.out)
    assert (figures["attempts"], figures["failed"], len(log)) == (4, 0, 4)
    assert figures["accuracy"]["estimate"] == 0.5
    assert figures["usage"]["completion_tokens"] > 4
    assert "3/4 " in second.err
    assert "| one | 2 | 2/2 | 2 × 2 |" in (tmp_path / "report.md").read_text()
    status, other, _ = evaluate(TASKS, "--tools", "none")
    assert status == 2
    assert "is the log of another run: request {'temperature': 0}, and now {}" in other.err


@pytest.mark.parametrize(
    ("tool", "question"), [("container", "What is six times seven?"), ("python", "seven times six?")]
)
def test_the_model_uses_its_tool(evaluate, tool, question):
    task = {"question": question, "answer": 42}
    status, printed, log = evaluate([task], "--tools", tool, *UNCONFINED, "--repeats", "2")
    assert status == 0
    assert [(attempt["answer"], attempt["correct"], attempt["error"]) for attempt in log] == [(42, True, "")] * 2
    assert "100.0 % (at least 5.0 %)" in printed.out


@pytest.mark.bubblewrap
def test_the_model_uses_its_tool_in_a_sandbox(evaluate, monkeypatch):
    bwrap = program()
    if isinstance(bwrap, CannotMakeError):
        pytest.skip(str(bwrap))
    monkeypatch.setenv("PATH", f"{Path(bwrap).parent}{os.pathsep}{os.environ['PATH']}")
    task = {"question": "six times seven?", "answer": 42}
    status, _, log = evaluate([task], "--repeats", "2")
    assert status == 0
    assert [attempt["correct"] for attempt in log] == [True, True]


def test_a_limit_is_a_result(evaluate):
    task = {"question": "What is six times seven?", "answer": 42}
    status, printed, log = evaluate([task], *UNCONFINED, "--repeats", "1", "--steps", "1")
    assert status == 0
    assert log[0]["ended"].startswith("IterationLimitError: ")
    assert log[0]["usage"]["completion_tokens"] > 4
    assert "| IterationLimitError: " in printed.out
    assert "| attempts that failed; they count as wrong | 0 |" in printed.out


TOO_LONG = {"message": "request (9000 tokens) exceeds the available context size (8000 tokens)", "code": 400}
OVERFLOW = HttpAnswer(400, (json.dumps({"error": {"type": "exceed_context_size_error", **TOO_LONG}}).encode(),))
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def running_line(line):
    return ModelReply(None, calls=[("container.exec", {"command": ["bash", "-c", line]})], usage=USAGE)


@pytest.mark.parametrize(("retries", "answer"), [("2", 42), ("1", None)])
def test_a_run_that_overflows_is_begun_again_in_an_empty_folder(tmp_path, retries, answer):
    """The command of the last run fails if it finds what the first one wrote."""
    (tmp_path / "tasks").write_text(json.dumps({"question": "six times seven?", "answer": 42}))
    solved = [running_line("test ! -e left && touch seen"), ModelReply("\\boxed{42}", usage=USAGE)]
    with running() as replies:
        replies.play(running_line("touch left"), OVERFLOW, OVERFLOW, *(solved if answer else []))
        command = ["eval", "aime", str(tmp_path / "tasks"), "--base-url", replies.url, "--model", "m", "--no-detect"]
        command += ["--output", str(tmp_path / "log"), "--repeats", "1", *UNCONFINED, "--overflow-retries", retries]
        assert main(command) == 0
        last = json.loads(replies.requests[-1].body)["messages"]
    (attempt,) = map(json.loads, (tmp_path / "log").read_text().splitlines()[1:])
    assert attempt["answer"] == answer
    assert attempt["ended"].startswith("" if answer else "MaxContextWindowOverflow: ")
    assert attempt["usage"]["completion_tokens"] == (15 if answer else 5), "those of runs that overflowed count, too"
    if answer:
        assert [message["content"] for message in last if message["role"] == "tool"] == ["[no output, exit code 0]"]


def test_attempts_that_fail_are_told_and_made_again(evaluate, server):
    common = ("--model", "sums", "--tools", "none", "--repeats", "1", "--no-detect")
    status, printed, log = evaluate(TASKS[:1], *common, "--base-url", f"{server.base_url}/nowhere")
    assert status == 1
    assert "| attempts that failed; they count as wrong | 1 |" in printed.out
    assert log[0]["error"].startswith("NotFoundError: ")
    status, printed, log = evaluate(TASKS[:1], *common)
    assert status == 0
    assert [attempt["correct"] for attempt in log] == [False, True]


def test_a_sandbox_that_cannot_be_is_told_before_the_run(capsys, tmp_path, server):
    (tmp_path / "tasks").write_text(json.dumps(TASKS[0]))
    command = ["eval", "aime", str(tmp_path / "tasks"), "--base-url", server.base_url]
    assert main([*command, "--output", str(tmp_path / "log"), "--image", "python:3.12"]) == 2
    assert "--image is for --sandbox docker" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [("[]", "is not a JSON object"), ("x", "is not a JSON object"), ('{"tools": []}', "'tools' cannot be set here")],
)
def test_wrong_keys_of_requests(capsys, keys, problem):
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "aime", "f", "--output", "o", "--request", keys])
    assert problem in capsys.readouterr().err
