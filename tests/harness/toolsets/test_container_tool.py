"""`container.exec`: what models write as a command, and what they read of its result."""

import sys

import pytest
from waiting import LIMITS

from promptools.harness.sandbox import CommandLimits, CommandResult, LocalSandbox
from promptools.harness.toolsets.agent_tool import ToolTimeoutError
from promptools.harness.toolsets.in_distribution import (
    container_exec,
    plain_observation,
    read_command,
    tagged_observation,
)


@pytest.fixture
def sandbox(tmp_path):
    return LocalSandbox(tmp_path, allow_unsandboxed=True, limits=CommandLimits(timeout=300))


@pytest.fixture
def run(sandbox):
    return container_exec(sandbox, plain_observation, 20.0)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["ls", "-la"], ["ls", "-la"]),
        (["bash", "-lc", "ls | wc"], ["bash", "-lc", "ls | wc"]),
        ("ls -la", "ls -la"),
        ("ls", "ls"),
        (["ls"], ["ls"]),
        (["ls -la"], "ls -la"),
        ('["bash", "-lc", "ls -la"]', ["bash", "-lc", "ls -la"]),
        ("[ -f x ] && echo y", "[ -f x ] && echo y"),
        ('["$a" = b ] || echo', '["$a" = b ] || echo'),
        (["head", "-n", 5], ["head", "-n", "5"]),
        ("cat <<'EOF'\nx\nEOF", "cat <<'EOF'\nx\nEOF"),
    ],
)
def test_a_list_is_a_program_and_a_string_a_line(given, meant):
    assert read_command(given) == meant


def test_a_list_that_is_nested_too_deeply_is_a_line_for_the_shell():
    line = '["a", ' + "[" * 100_000
    assert read_command(line) == line


@pytest.mark.parametrize(
    ("given", "error"), [(None, TypeError), ({"a": 1}, TypeError), (5, TypeError), ([], ValueError)]
)
def test_what_is_not_a_command_is_an_error(given, error):
    with pytest.raises(error):
        read_command(given)


def test_arguments_reach_the_program_as_they_are(run):
    assert run(["printf", "%s|", "a b", "$(id)", "`id`", "*"]) == "a b|$(id)|`id`|*|"


def test_a_line_is_run_by_the_shell(run):
    assert run("printf '%s' a | tr a b") == "b"
    assert run(["bash", "-lc", "printf '%s' a | tr a b"]) == "b"


def test_a_folder_and_an_environment_can_be_named(run, tmp_path):
    (tmp_path / "sub").mkdir()
    assert run("pwd", workdir="sub").strip() == str(tmp_path / "sub")
    assert run("pwd", workdir=str(tmp_path / "sub")).strip() == str(tmp_path / "sub")
    assert run("echo $A", env={"A": 1}) == "1\n"


@pytest.mark.parametrize(
    ("timeout", "shown"), [(1000, "after 1 seconds"), (0.1, "after 1 seconds"), (1, "after 1 seconds")]
)
def test_time_outs_are_in_milliseconds_and_small_ones_in_seconds(run, timeout, shown):
    with pytest.raises(ToolTimeoutError) as caught:
        run("sleep 600", timeout=timeout)
    assert shown in caught.value.observation


def test_no_time_out_is_longer_than_the_tools(sandbox):
    for seconds in LIMITS:
        with pytest.raises(ToolTimeoutError, match=rf"the command took more than {seconds} seconds") as caught:
            container_exec(sandbox, plain_observation, seconds)("echo half; sleep 600", timeout=1_000_000)
        if caught.value.output:  # it had begun
            break
    assert (caught.value.seconds, caught.value.output) == (seconds, "half\n")
    assert f"after {seconds} seconds" in caught.value.observation


def test_what_nobody_declared_is_not_an_error(run):
    assert run(["echo", "x"], session_name="a", user="root") == "x\n"


@pytest.mark.parametrize(
    ("result", "plain"),
    [
        (CommandResult("out\n", 0), "out\n"),
        (CommandResult("", 0), "[no output, exit code 0]"),
        (CommandResult(" \n", 0), "[no output, exit code 0]"),
        (CommandResult("out", 2), "out\n[exit code 2]"),
        (CommandResult("", 2), "[exit code 2]"),
        (
            CommandResult("half", 124, timed_out=True),
            "half\n[the command was ended after 20 seconds; it must not wait for input, and long work needs parts]",
        ),
        (CommandResult("half\n", 137, stopped="it was greedy"), "half\n[the command was ended: it was greedy]"),
    ],
)
def test_what_the_model_reads(result, plain):
    assert plain_observation(result, 20) == plain


def test_what_the_model_reads_in_tags():
    assert tagged_observation(CommandResult("out\n", 2), 20) == "<returncode>2</returncode>\n<output>\nout\n</output>"
    assert tagged_observation(CommandResult("x", 124, timed_out=True), 20).endswith("<output>\nx\n</output>")


def test_the_whole_group_ends_with_the_time(run, tmp_path):
    with pytest.raises(ToolTimeoutError) as caught:
        run(["bash", "-c", f"{sys.executable} -c 'import time; time.sleep(600)' & echo $!; wait"], timeout=1)
    text = caught.value.observation
    assert "was ended" in text
