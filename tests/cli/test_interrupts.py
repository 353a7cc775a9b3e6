"""Ctrl-C ends every command with 130 and without a traceback, whenever it comes: each test waits for its moment."""

import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from terminals import Terminal
from upstream import completion, running, unary

MOMENT = """
import atexit, os, signal, sys

class Finalized:
    def __del__(self):
        interrupt()
        self.late = True  # Python handles the signal here, and may not raise

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

what, module = sys.argv.pop(1), sys.argv.pop(1)
done = []

def watch(event, arguments):
    if event == "import" and arguments[0] == module and not done:
        done.append(1)
        Finalized() if what == "finalizer" else interrupt()

if what not in ("exit", "finalization"):
    sys.addaudithook(watch)
from promptools.__main__ import main
if what == "exit":
    atexit.register(interrupt)

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=int(signal.SIGINT)):
        kill(pid, number)

if what == "finalization":
    signal.last = Last()
sys.exit(main())
"""


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.mark.parametrize(
    ("what", "module", "command"),
    [
        ("import", "promptools.cli", ["version"]),
        ("import", "promptools.cli.command_parser", ["version"]),
        ("import", "promptools.cli.shared_arguments", ["version"]),
        ("import", "openai", ["chat", "http://127.0.0.1:9/v1", "Hi"]),
        ("import", "uvicorn", ["serve", "http://127.0.0.1:9/v1", "--no-detect", "--port", "0"]),
        ("finalizer", "promptools.cli", ["version"]),
        ("finalizer", "promptools.cli.shared_arguments", ["version"]),
        ("finalizer", "openai", ["chat", "http://127.0.0.1:9/v1", "Hi"]),
        ("exit", "", ["dialects", "hermes", "--json"]),
    ],
)
def test_while_it_starts_works_and_ends(what, module, command):
    code = [sys.executable, "-c", MOMENT, what, module, *command]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    if what == "exit":
        assert json.loads(done.stdout)["name"] == "hermes"


def test_while_the_interpreter_ends():
    """Python has restored the default action then, by which an interrupt would kill the process."""
    code = [sys.executable, "-c", MOMENT, "finalization", "", "version"]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def start(*words, cwd=None):
    return Terminal([sys.executable, "-m", "promptools", *words], cwd=cwd)


def ended(terminal):
    """Wait for the end; return what is on the screen, which is never a traceback."""
    # on a busy machine the first one may come before the command reads what is typed
    assert terminal.wait(again="\x03") == 130
    assert b"Traceback" not in terminal.written
    assert b"KeyboardInterrupt" not in terminal.written
    return terminal.text


def test_a_proxy_that_has_just_started(server):
    with start("serve", server.url, "--no-detect", "--port", "0") as terminal:
        terminal.wait_for("listening http")
        terminal.type("\x03")
        ended(terminal)


IN_A_WORKER = """
import os, signal, sys

def watch(event, arguments):
    if event == "import" and arguments[0] == "promptools.cli.workers":
        os.killpg(os.getpgrp(), signal.SIGINT)

if "--multiprocessing-fork" in sys.orig_argv:
    sys.addaudithook(watch)
"""


def test_workers_that_are_being_started(server, tmp_path):
    """A terminal interrupts them too, before they have a session of their own; the first of them plays it here."""
    (tmp_path / "sitecustomize.py").write_text(IN_A_WORKER)
    command = ["serve", server.url, "--no-detect", "--port", "0", "--workers", "2"]
    with Terminal([sys.executable, "-m", "promptools", *command], env={"PYTHONPATH": str(tmp_path)}) as terminal:
        terminal.wait_for("listening http")
        ended(terminal)


def test_a_chat_that_waits_for_a_line(server):
    with start("chat", server.url, "--model", "m", "--no-detect") as terminal:
        terminal.wait_for("you>")
        terminal.type("\x03")
        ended(terminal)


LONG = [pytest.param(command, marks=pytest.mark.exhaustive) for command in ("demo", "discover", "eval")]


@pytest.mark.parametrize("command", ["chat", "batch", *LONG])
def test_a_command_that_waits_for_a_reply(server, command, tmp_path):
    asked, over = threading.Event(), threading.Event()

    def hold():
        asked.set()
        over.wait(300)

    server.play(replace(unary(completion("Hello.")), first=hold))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    request = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    (tmp_path / "in").write_text(json.dumps(request))
    (tmp_path / "tasks").write_text('{"question": "One and one?", "answer": 2}')
    model = [server.url, "--model", "m"]
    words = {
        "chat": ["chat", *model, "--no-detect", "Hi"],
        "batch": ["batch", *model, "--no-detect", "in", "out"],
        "demo": ["demo", *model],
        "discover": ["discover", *model, "--no-detect", "--no-plots", "--output", "found"],
        "eval": ["eval", "aime", *model, "--no-detect", "--tools", "none", "--output", "log", "tasks"],
    }
    with start(*words[command], cwd=tmp_path) as terminal:
        assert asked.wait(300), terminal.text
        terminal.type("\x03")
        try:
            ended(terminal)
        finally:
            over.set()
