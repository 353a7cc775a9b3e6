"""Commands without a sandbox: what they return, and how they end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from patching import check_apply_patch
from waiting import LIMITS

from promptools.errors import UsageError
from promptools.harness.sandbox import CommandLimits, LocalSandbox
from promptools.harness.sandbox.processes import UsageWatch, descendants


@pytest.fixture
def sandbox(tmp_path):
    made = LocalSandbox(tmp_path, allow_unsandboxed=True, limits=CommandLimits(timeout=300))
    yield made
    made.close()


def test_apply_patch_is_on_the_path(sandbox, tmp_path):
    check_apply_patch(sandbox, tmp_path)


def test_it_has_to_be_wanted(tmp_path):
    with pytest.raises(UsageError, match="allow_unsandboxed=True"):
        LocalSandbox(tmp_path)


def test_the_root_has_to_be_a_folder(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        LocalSandbox(tmp_path / "none", allow_unsandboxed=True)


def test_limits_are_positive():
    with pytest.raises(UsageError, match="'output' is 0"):
        CommandLimits(output=0)


def test_a_list_is_a_program_and_its_arguments(sandbox):
    assert sandbox.run(["printf", "%s|", "a b", "$HOME", "`id`"]).output == "a b|$HOME|`id`|"


def test_a_string_is_a_line_for_the_shell(sandbox):
    assert sandbox.run("printf '%s|' a b | tr a-z A-Z; exit 3").output == "A|B|"
    assert sandbox.run("exit 3").exit_code == 3


def test_both_outputs_come_in_order(sandbox):
    assert sandbox.run("echo 1; echo 2 >&2; echo 3").output == "1\n2\n3\n"


def test_a_signal_is_an_exit_code_as_shells_have_it(sandbox):
    assert sandbox.run("kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_a_program_that_is_not_there_is_a_result(sandbox):
    result = sandbox.run(["no-such-program"])
    assert (result.exit_code, "no-such-program" in result.output) == (127, True)
    assert sandbox.run([]).exit_code in {126, 127}
    assert sandbox.run(["echo", "a\0b"]).exit_code == 126


def test_it_starts_in_the_workspace_or_below(sandbox, tmp_path):
    (tmp_path / "sub").mkdir()
    assert sandbox.run("pwd").output.strip() == str(tmp_path)
    assert sandbox.run("pwd", cwd="sub").output.strip() == str(tmp_path / "sub")
    assert sandbox.run("pwd", cwd="none").exit_code == 126


def test_the_environment_is_not_this_process(sandbox, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in sandbox.run("env").output
    assert "SET=1" in sandbox.run("env", env={"SET": "1"}).output


def test_without_input_it_reads_an_empty_one(sandbox):
    assert sandbox.run("cat; echo end").output == "end\n"


@pytest.mark.parametrize("text", ["some input\n", "x" * 300_000])
def test_input_is_written_while_output_is_read(sandbox, text):
    result = sandbox.run("cat", stdin=text, max_output=400_000)
    assert result.output == text


def test_input_that_nobody_reads_is_not_an_error(sandbox):
    assert sandbox.run("exec <&-; echo done", stdin="x" * 300_000).output == "done\n"


def test_output_without_end_is_ended_and_bounded(sandbox):
    for seconds in LIMITS:
        result = sandbox.run("yes", timeout=seconds)
        if result.truncated:  # it had begun
            break
    assert (result.timed_out, result.truncated, result.exit_code) == (True, True, 124)
    assert len(result.output) < 10_200


def test_a_command_that_closes_its_outputs_is_waited_for(sandbox, tmp_path):
    assert sandbox.run("exec >&- 2>&-; sleep 0.2; touch done").exit_code == 0
    assert (tmp_path / "done").exists()


def test_a_time_out_ends_the_whole_group(sandbox, tmp_path):
    for seconds in LIMITS:
        result = sandbox.run("sleep 600 & echo $!; sleep 600", timeout=seconds)
        assert result.timed_out
        if result.output:  # it had begun
            break
    assert ended(int(result.output))


def test_what_a_command_leaves_running_is_ended_and_not_waited_for(sandbox):
    result = sandbox.run("sleep 3600 & echo $!")  # which is longer than the limit of the command
    assert not result.timed_out
    assert ended(int(result.output))


def test_an_exception_leaves_nothing_running(sandbox):
    """As with Ctrl-C: the exception comes up in the middle of the wait."""
    pids = []

    def watch(process):
        pids.append(process)
        raise KeyboardInterrupt

    from promptools.harness.sandbox.processes import ProcessSettings, run_process

    settings = ProcessSettings(arguments=["sleep", "600"], env=os.environ, watch=watch)
    with pytest.raises(KeyboardInterrupt):
        run_process(settings, stdin=None, timeout=300, output=100)
    assert ended(pids[0])


def test_a_started_process_is_talked_to_and_ended(sandbox):
    before = set(threading.enumerate())
    process = sandbox.start("while read line; do echo got $line; done")
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"got one\n"
    process.kill()
    process.kill()  # it may have ended already
    for thread in set(threading.enumerate()) - before:
        thread.join(300)
        assert not thread.is_alive()


MANY = """
import os, sys, time
for number in range(64):  # never more, should nothing stop it
    if os.fork() == 0:
        if "sessions" in sys.argv:
            os.setsid()
        time.sleep(60)
        os._exit(0)
    print(number, flush=True)
if "parents" in sys.argv:
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["together", "sessions", "parents"])
def test_too_many_processes_are_ended(tmp_path, how):
    """Also those in sessions of their own, and those whose parent has ended."""
    limits = CommandLimits(timeout=300, processes=32)
    sandbox = LocalSandbox(tmp_path, allow_unsandboxed=True, limits=limits)
    line = f"{sys.executable} -c '{MANY}' {how} promptools-many-{os.getpid()}; sleep 60"
    result = sandbox.run(line)
    assert (result.stopped, result.timed_out) == ("it had more than 32 processes", False)
    assert all(ended(process) for process in running(f"promptools-many-{os.getpid()}"))


def test_a_started_process_that_has_too_many_is_ended(tmp_path):
    with LocalSandbox(tmp_path, allow_unsandboxed=True, limits=CommandLimits(processes=32)) as sandbox:
        process = sandbox.start([sys.executable, "-c", MANY, "together"])
        assert process.stdout.read().split()  # to its end
        process.kill()
        assert process.stopped == "it had more than 32 processes"


def test_as_many_processes_as_the_limit_are_not_ended(tmp_path):
    sandbox = LocalSandbox(tmp_path, allow_unsandboxed=True, limits=CommandLimits(processes=70))
    code = MANY.replace("time.sleep(60)", "time.sleep(1)")
    result = sandbox.run([sys.executable, "-c", code, "together"])
    assert (result.exit_code, result.stopped, len(result.output.split())) == (0, "", 64)


def running(words):
    """Return the processes whose command has these words."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and words in (path / "cmdline").read_text():
                found.append(int(path.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def test_leaving_it_ends_what_was_started(tmp_path):
    with LocalSandbox(tmp_path, allow_unsandboxed=True) as sandbox:
        process = sandbox.start("echo $$; exec sleep 600")
        started = int(process.stdout.readline())
    assert ended(started)


def test_memory_of_all_processes_is_counted(tmp_path):
    code = "import os, time; b = bytearray(b'x') * 40_000_000; os.fork(); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.readline()
        try:
            assert len(descendants(process.pid)) == 1
            # the watch looks below the process it is given: this one is above
            assert UsageWatch(CommandLimits(memory=10_000_000), tmp_path)(os.getpid()).endswith("bytes of memory")
            assert not UsageWatch(CommandLimits(memory=10**12), tmp_path)(os.getpid())
        finally:
            for child in descendants(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()


def ended(process):
    """Whether a process that was killed has ended: it takes a moment. A zombie has."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
