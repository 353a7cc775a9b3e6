"""`promptools agent` on a real terminal: what the user sees, is asked, and answers."""

import re
import sys
import threading
from dataclasses import replace

import pytest
from terminals import Terminal
from upstream import running

from promptools.harness.agent import read_tape
from promptools.testing import ModelReply

APPEND = ["bash", "-c", "echo '# more' >> notes.txt; echo it is written"]
STREAM = {"stream": True}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def start(server, repo):
    """Run the agent on a terminal, in the folder."""

    def run(*words):
        connect = ["--base-url", server.url, "--model", "m", "--no-detect", "--sandbox", "local"]
        return Terminal([sys.executable, "-m", "promptools", "agent", *words, *connect], cwd=repo)

    return run


def exec_call(*words):
    command = [*APPEND, *words]
    return ModelReply("I add a line.", calls=[("container.exec", {"command": command})])


def test_the_steps_of_a_run_are_seen_as_they_happen(server, repo, start):
    """The second reply is held back until the first step has been seen."""
    seen = threading.Event()
    server.play(exec_call(), replace(ModelReply("Done.").answer(STREAM), first=lambda: seen.wait(300)))
    with start("Add a line.", "--yes") as terminal:
        terminal.wait_for("step 2, 23 tokens,")
        assert re.search(r"I add a line\.\ncall container\.exec \{.*notes\.txt.*\}\nit is written\n", terminal.text)
        assert "Done." not in terminal.text
        seen.set()
        assert terminal.wait() == 0
        lines = terminal.text.splitlines()
    assert lines[-1] == "[2 steps, 0 retries, 46 tokens; answer]"
    assert "Done." in lines
    assert "+# more" in lines
    assert not any(line.startswith(("step 2", "⠋")) for line in lines), "the status line is gone"
    assert b"[y/N]" not in terminal.written
    assert b"\x1b[?25h" in terminal.written, "the cursor is there again"


def test_a_command_runs_once_the_user_has_allowed_it(server, repo, start):
    server.play(exec_call(), "Done.")
    with start("Add a line.") as terminal:
        terminal.wait_for("? [y/N]")
        assert 'run container.exec {"command": ["bash", "-c", ' in terminal.text
        assert (repo / "notes.txt").read_text() == "one\n", "not before the answer"
        terminal.type("y\r")
        assert terminal.wait() == 0
        assert "it is written" in terminal.text.splitlines()
        assert "+# more" in terminal.text.splitlines()
    assert (repo / "notes.txt").read_text() == "one\n# more\n"


def test_a_command_that_is_refused_does_not_run_and_the_model_is_told(server, repo, start):
    """By an n, by Enter alone, by another word, and by the end of the input."""
    answers = {"n": "n\r", "enter": "\r", "other": "yesterday\r", "end": "\x04"}
    server.play(*map(exec_call, answers), "I leave it.")
    with start("Add a line.") as terminal:
        for name, keys in answers.items():
            terminal.wait_for(f'"{name}"]}}? [y/N]')
            terminal.type(keys)
        assert terminal.wait() == 0
        assert "I leave it." in terminal.text.splitlines()
        assert "+# more" not in terminal.text
    assert (repo / "notes.txt").read_text() == "one\n"
    told = [request.json["messages"][-1]["content"] for request in server.requests[1:]]
    assert len(told) == len(answers)
    assert all("the user does not allow this command" in each for each in told)


def test_two_commands_are_asked_about_one_after_the_other(server, repo, start):
    calls = [("container.exec", {"command": ["touch", name]}) for name in ("first", "second")]
    server.play(ModelReply(None, calls=calls), "Done.")
    with start("Make them.") as terminal:
        terminal.wait_for('"first"]}? [y/N]')
        assert '"second"]}?' not in terminal.text
        terminal.type("n\r")
        terminal.wait_for('"second"]}? [y/N]')
        terminal.type("y\r")
        assert terminal.wait() == 0
    assert [(repo / name).exists() for name in ("first", "second")] == [False, True]


def test_an_interrupt_at_the_question_ends_the_run_and_shows_how_to_go_on(server, repo, start, tmp_path):
    server.play(exec_call())
    tape = tmp_path / "tape.jsonl"
    with start("Add a line.", "--tape", str(tape)) as terminal:
        terminal.wait_for("? [y/N]")
        terminal.type("\x03")
        # on a busy machine the first one may come before the answer is read, and be lost
        assert terminal.wait(again="\x03") == 130
        assert f"interrupted; go on with --resume {tape}" in terminal.text.replace("\n", "")
    assert (repo / "notes.txt").read_text() == "one\n"
    assert read_tape(tape).ended is None


def test_what_a_model_writes_cannot_forge_the_question(server, start):
    """Neither text nor arguments move the cursor or clear the screen."""
    server.play(
        ModelReply("Look:\x1b[2J\x1b[1;1H.", calls=[("container.exec", {"command": ["touch", "\x1b[2Kharmless"]})]),
        "Done.",
    )
    with start("Add a line.") as terminal:
        terminal.wait_for("? [y/N]")
        assert r"Look:\x1b[2J\x1b[1;1H." in terminal.text
        assert 'run container.exec {"command": ["touch", "\\u001b[2Kharmless"]}? [y/N]' in terminal.text
        terminal.type("n\r")
        assert terminal.wait() == 0
