"""No process outlives whoever wanted its server, however that one ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rig import guard as rig_guard

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="whether a process lives is read from /proc"),
    pytest.mark.exhaustive,
]

PARENT = """
import subprocess, sys, time, signal
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import time; print('ready', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), "child", child.pid, flush=True)
if "quick" in sys.argv:
    sys.exit(3)
time.sleep(600)
"""


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(*processes: int) -> bool:
    """Wait until none of them lives."""
    until = time.monotonic() + 300
    while any(alive(each) for each in processes):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def run(*arguments: str) -> tuple[subprocess.Popen[str], int, int]:
    """Start a guard; give it, the server that it runs, and the process that the server has started."""
    command = [*rig_guard.COMMAND, sys.executable, "-c", PARENT, *arguments]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert guard.stdout is not None
    said = ""
    while "child" not in said or "ready" not in said:
        line = guard.stdout.readline()
        assert line, "the guard ended"
        said += line
    server, child = re.search(r"running (\d+)", said), re.search(r"child (\d+)", said)
    assert server
    assert child
    return guard, int(server[1]), int(child[1])


def close(guard: subprocess.Popen[str]) -> int:
    guard.communicate(timeout=300)
    return guard.returncode


def test_all_end_when_standard_input_closes():
    guard, server, child = run()
    assert alive(server)
    assert alive(child)
    close(guard)
    assert ends(server, child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_end_with_the_guard(number):
    guard, server, child = run()
    guard.send_signal(number)
    guard.wait(timeout=300)
    assert ends(server), "the kernel ends it with its guard"
    if number == signal.SIGKILL:
        os.kill(child, signal.SIGKILL)  # nobody was left to end it: a server's own children see to that themselves
    assert ends(child)
    close(guard)


def test_ctrl_c_is_not_for_the_guard():
    guard, server, _ = run()
    guard.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert guard.poll() is None
    assert alive(server)
    close(guard)
    assert ends(server)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_server_that_does_not_listen_is_made_to_end(stopped):
    guard, server, child = run("deaf")
    if stopped:
        os.kill(server, signal.SIGSTOP)
    close(guard)
    assert ends(server, child)


def test_what_a_server_leaves_behind_ends_when_it_ends():
    guard, server, child = run("quick")
    assert guard.wait(timeout=300) == 3
    assert ends(server, child)
    close(guard)
