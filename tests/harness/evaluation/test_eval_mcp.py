"""`promptools eval mcp` on a real llama.cpp, whose model has learned the calls, with a real MCP server."""

import json
import os
import sys
from pathlib import Path

import pytest
from bubblewrapped import program
from recipes.recipe import CannotMakeError
from upstream import running

from promptools.cli import main
from promptools.errors import UsageError
from promptools.harness.evaluation.mcp import RunOutcome, is_subset, read_check, read_mcp_tasks
from promptools.harness.evaluation.tasks import TaskAttempt
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.testing import HttpAnswer, ModelReply
from promptools.types import Call, Result

real = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")
SERVERS = {
    "stock": {
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_stock_server.py")), "${workspace}"],
        "env": {"KEY": "the-secret"},
    }
}


def called(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


SCRIPT = [
    ScriptedReply("Add five apples", called("stock__add", item="apples", count=5)),
    ScriptedReply("apples: 5", "There are 5 apples now."),
    ScriptedReply("Add no pears", called("stock__add", item="pears", count=0)),
    ScriptedReply("must be positive", "That cannot be done."),
    ScriptedReply("Say nothing of it", "There is nothing."),
]
APPLES = {
    "id": "apples",
    "prompt": "Add five apples to the stock.",
    "checks": [
        {"contains": "5 apples"},
        {"matches": r"\b5\b"},
        {"called": "stock__add", "arguments": {"item": "apples"}},
        {"not_called": "stock__clear"},
        {"not_called": "stock__add", "arguments": {"item": "pears"}},
        {"result_of": "stock__count", "arguments": {"item": "apples"}, "matches": "^apples: 5$"},
        {"command": ["cat", "stock.txt"], "contains": "apples 5"},
    ],
}
WRONG = {
    "id": "wrong",
    "prompt": "Add no pears to the stock.",
    "checks": [
        {"contains": "pear"},
        {"called": "stock__add"},
        {"not_called": "stock__add", "arguments": {"item": "pears"}},
        {"result_of": "stock__count", "arguments": {"item": "pears"}},
        {"command": "cat stock.txt"},
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(SCRIPT, template="hermes", name="stock", folder=tmp_path_factory.mktemp("stock")) as running:
        yield running


@pytest.fixture
def evaluate(server, tmp_path, capsys):
    """Run the benchmark on some tasks; return the status, what was printed, and the attempts of the log."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": SERVERS}))

    def run(tasks, *more):
        (tmp_path / "tasks").write_text("\n".join(map(json.dumps, tasks)))
        command = ["eval", "mcp", str(tmp_path / "tasks"), "--base-url", server.base_url, "--workers", "2"]
        command += ["--servers", str(tmp_path / "servers.json"), "--output", str(tmp_path / "log")]
        status = main([*command, *more])
        log = (tmp_path / "log").read_text().splitlines()[1:] if (tmp_path / "log").exists() else []
        return status, capsys.readouterr(), list(map(json.loads, log))

    return run


@pytest.mark.e2e
@real
def test_a_run_is_checked_continues_and_has_a_report(evaluate, tmp_path):
    common = ("--sandbox", "local", "--json", "--report", str(tmp_path / "report.md"))
    status, first, _ = evaluate([APPLES, WRONG], *common)
    assert status == 0
    assert "2/2 " in first.err
    status, printed, log = evaluate([APPLES, WRONG], *common)  # all of it is in the log
    figures = json.loads(printed.out)
    assert (figures["attempts"], figures["solved"], figures["failed"], len(log)) == (2, 1, 0, 2)
    assert figures["accuracy"]["estimate"] == 0.5
    assert figures["usage"]["completion_tokens"] > 4
    assert printed.out == first.out
    by_task = {attempt["task"]: attempt for attempt in log}
    assert (by_task["apples"]["correct"], by_task["apples"]["failed_checks"]) == (True, {})
    assert by_task["wrong"]["text"] == "That cannot be done."
    failed = by_task["wrong"]["failed_checks"]
    assert list(failed) == list(map(json.dumps, WRONG["checks"]))
    reasons = list(failed.values())
    assert reasons[:3] == [
        "it is 'That cannot be done.'",
        'it was called with {"item": "pears", "count": 0} (failed)',
        'it was called with {"item": "pears", "count": 0}',
    ]
    assert reasons[3].startswith("it fails: ")
    assert reasons[4].startswith("it ended with 1: ")
    page = (tmp_path / "report.md").read_text()
    assert "| apples | 1/1 |  |" in page
    assert '| wrong | 0/1 | {"contains": "pear"}, ' in page
    assert "the-secret" not in page + (tmp_path / "log").read_text() + first.err


@pytest.mark.e2e
@pytest.mark.exhaustive
@real
def test_a_limit_is_a_result(evaluate):
    status, printed, log = evaluate([APPLES], "--sandbox", "local", "--steps", "1")
    assert status == 0
    assert log[0]["ended"].startswith("IterationLimitError: ")
    assert not log[0]["correct"]
    assert "| attempts without an answer | 1 |" in printed.out


@pytest.mark.e2e
@pytest.mark.exhaustive
@real
@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({**APPLES, "checks": [{"not_called": "stock__cleer"}]}, "task 'apples': there is no tool 'stock__cleer'. The"),
        ({**APPLES, "servers": {"none": {"command": "/no/such/program"}}}, "the MCP server 'none' cannot be used"),
    ],
)
def test_what_is_wrong_with_servers_is_told_before_the_run(evaluate, task, problem):
    status, printed, log = evaluate([task])
    assert status in {1, 2}
    assert problem in printed.err
    assert log == []


@pytest.mark.e2e
@real
@pytest.mark.bubblewrap
def test_commands_run_in_the_sandbox(evaluate, monkeypatch, tmp_path):
    bwrap = program()
    if isinstance(bwrap, CannotMakeError):
        pytest.skip(str(bwrap))
    monkeypatch.setenv("PATH", f"{Path(bwrap).parent}{os.pathsep}{os.environ['PATH']}")
    outside = tmp_path / "outside"
    outside.write_text("")
    commands = [{"command": "grep 'apples 5' stock.txt"}, {"command": ["test", "!", "-e", str(outside)]}]
    _, _, log = evaluate([{**APPLES, "checks": commands}])
    assert log[0]["failed_checks"] == {}


# --- runs whose context overflows ------------------------------------------------------------------------------------

TOO_LONG = {"message": "request (9000 tokens) exceeds the available context size (8000 tokens)", "code": 400}
OVERFLOW = HttpAnswer(400, (json.dumps({"error": {"type": "exceed_context_size_error", **TOO_LONG}}).encode(),))
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
ADDING = ModelReply(None, calls=[("stock__add", {"item": "apples", "count": 5})], usage=USAGE)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("retries", "solved"), [("2", True), ("1", False)])
def test_a_run_that_overflows_is_begun_again_with_a_stock_of_its_own(evaluate_on, retries, solved):
    """The stock of an overflowed run is never seen: two runs that add five would leave ten."""
    script = [ADDING, OVERFLOW, OVERFLOW, *([ADDING, "There are 5 apples."] if solved else [])]
    status, printed, log = evaluate_on(script, "--overflow-retries", retries)
    assert status == 0, printed.err
    assert (log[0]["correct"], log[0]["failed_checks"]) == (solved, {})
    assert log[0]["ended"].startswith("" if solved else "MaxContextWindowOverflow: ")
    assert log[0]["usage"]["completion_tokens"] >= (10 if solved else 5), "those of runs that overflowed count, too"


@pytest.mark.exhaustive
def test_overflow_retries_are_a_setting_of_the_run(evaluate_on):
    assert evaluate_on([OVERFLOW])[2][0]["ended"].startswith("MaxContextWindowOverflow: ")
    status, printed, _ = evaluate_on([], "--overflow-retries", "1")
    assert status == 2
    assert "is the log of another run: overflow_retries 0, and now 1" in printed.err


@pytest.fixture(scope="module")
def replies():
    with running() as upstream:
        yield upstream


@pytest.fixture
def evaluate_on(replies, tmp_path, capsys):
    """Run the benchmark on scripted replies of a server; return the status, what was printed, and the attempts."""

    def run(script, *more):
        replies.play(*script)
        (tmp_path / "tasks").write_text(json.dumps({**APPLES, "servers": SERVERS}))
        command = ["eval", "mcp", str(tmp_path / "tasks"), "--base-url", replies.url, "--model", "m", "--no-detect"]
        status = main([*command, "--output", str(tmp_path / "log"), "--sandbox", "local", *more])
        log = (tmp_path / "log").read_text().splitlines()[1:]
        return status, capsys.readouterr(), list(map(json.loads, log))

    return run


# --- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "whole", "holds"),
    [
        ({}, {"a": 1}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1.0, "c": 2}, "d": 3}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, [1], False),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        ([1], [1, 2], False),
        ([1, 2], [2, 1], False),
        ("a", "ab", False),
    ],
)
def test_subsets(part, whole, holds):
    assert is_subset(part, whole) is holds


def test_a_call_that_succeeds_once_counts(tmp_path):
    def made(*, is_error):
        return Call("c", "t", {"path": f"{tmp_path}/a"}, "{}"), Result("c", "t", "", is_error)

    outcome = RunOutcome("", [made(is_error=True), made(is_error=False)], None, None, tmp_path)
    assert not read_check({"called": "t", "arguments": {"path": "${workspace}/a"}}, "w").failure(outcome)
    assert read_check({"called": "t", "arguments": {"path": "a"}}, "w").failure(outcome)
    assert read_check({"called": "u"}, "w").failure(outcome) == "it was not called"


# --- files -----------------------------------------------------------------------------------------------------------


def test_toml_and_inline_servers(tmp_path):
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": SERVERS}))
    (tmp_path / "tasks.toml").write_text(
        '[[task]]\nprompt = "a"\nservers = "servers.json"\nchecks = [{contains = "x"}]\n'
        '[[task]]\nprompt = "b"\nservers.own.url = "http://127.0.0.1/mcp"\n[[task.checks]]\ncommand = "true"\n'
    )
    first, second = read_mcp_tasks(tmp_path / "tasks.toml")
    assert (list(first.servers), first.has_command) == (["stock"], False)
    assert (list(second.servers), second.has_command) == (["own"], True)
    assert len(first.id) == 12
    assert not second.graded(TaskAttempt("b", 0, error="x")).correct


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"prompt": " "}, "'prompt' must be a text"),
        ({"check": []}, "'check' is not a key of a task"),
        ({"checks": []}, "at least one check"),
        ({"servers": None}, "'servers' must be"),
        ({"servers": "none.json"}, "cannot read the MCP servers"),
        ({"checks": ["x"]}, "check 1: not an object"),
        ({"checks": [{}]}, "check 1: a check has 'contains'"),
        ({"checks": [{"contains": 1}]}, "'contains' has the wrong type"),
        ({"checks": [{"matches": "("}]}, "'matches' is not a valid regular expression"),
        ({"checks": [{"called": "t", "contains": "x"}]}, "'contains' is not a key of this check"),
        ({"checks": [{"called": 1}]}, "'called' has the wrong type"),
        ({"checks": [{"command": [1]}]}, "'command' is neither"),
    ],
)
def test_files_that_are_wrong(tmp_path, changed, problem):
    (tmp_path / "tasks").write_text(json.dumps({**APPLES, "servers": SERVERS, **changed}))
    with pytest.raises(UsageError, match=problem):
        read_mcp_tasks(tmp_path / "tasks")


@pytest.mark.parametrize(("text", "problem"), [("x", "not TOML"), ("a = 1", "must consist of"), ("", "no tasks")])
def test_toml_that_is_wrong(tmp_path, text, problem):
    (tmp_path / "tasks.toml").write_text(text)
    with pytest.raises(UsageError, match=problem):
        read_mcp_tasks(tmp_path / "tasks.toml")
