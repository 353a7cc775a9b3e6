"""`promptools agent`: a scripted server, real commands in a folder, questions before them, the diff and the tape."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deep_folders import nested
from upstream import running

from promptools.cli import main
from promptools.cli.agent_command import AgentView, FolderSnapshot
from promptools.cli.terminal_output import printable
from promptools.harness.agent import read_tape
from promptools.testing import ModelReply

APPEND = ["bash", "-lc", "echo '# more' >> notes.txt; echo ok"]


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def exec_call(command=APPEND):
    return ModelReply("I add a line.", calls=[("container.exec", {"command": command})])


def agent(server, repo, *words):
    connect = ["--base-url", server.url, "--model", "m", "--no-detect"]
    return main(["agent", *words, "--repo", str(repo), *connect, "--sandbox", "local"])


def test_a_task_is_done_and_its_diff_is_printed(server, repo, capsys, tmp_path):
    server.play(exec_call(), "Done.")
    made = tmp_path / "made.json"
    assert agent(server, repo, "Add a line.", "--yes", "--trajectory", str(made)) == 0
    printed = capsys.readouterr().out
    assert "I add a line." in printed
    assert "call container.exec" in printed
    assert "+# more" in printed
    assert "--- a/notes.txt" in printed
    assert "[2 steps, 0 retries, 46 tokens; answer]" in printed
    assert (repo / "notes.txt").read_text() == "one\n# more\n"
    written = json.loads(made.read_text())
    assert "+# more" in written["info"]["submission"]
    assert written["info"]["exit_status"] == "Submitted"
    declared = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
    assert any("exec" in name for name in declared)


@pytest.mark.parametrize(("answer", "ran"), [("y", True), ("n", False), ("", False), (None, False)])
def test_the_user_is_asked_before_a_command(server, repo, capsys, monkeypatch, answer, ran):
    asked = []

    def reply(question):
        asked.append(question)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", reply)
    server.play(exec_call(), "Done.")
    assert agent(server, repo, "Add a line.") == 0
    assert "run container.exec" in asked[0]
    assert "# more" in asked[0]
    assert ((repo / "notes.txt").read_text() != "one\n") is ran
    assert ("does not allow this command" in capsys.readouterr().out) is not ran


def test_a_run_as_json(server, repo, capsys, monkeypatch):
    """Nothing else is on stdout, not even the question before a command."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    server.play(exec_call(), "Done.")
    assert agent(server, repo, "Add a line.", "--json") == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["ended"], told["error"], told["answer"], told["steps"]) == ("answer", None, "Done.", 2)
    assert "+# more" in told["diff"]
    assert told["messages"][-1]["content"] == "Done."
    assert err.startswith("run container.exec ")
    assert err.endswith("? [y/N] ")


def test_a_quiet_run_shows_what_the_model_says_and_what_it_changed(server, repo, capsys):
    server.play(exec_call(), "Done.")
    assert agent(server, repo, "Add a line.", "--yes", "--quiet") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("I add a line.\nDone.\n---")
    assert "call container.exec" not in out
    assert out.endswith("+# more\n")


def test_instructions_and_parameters_of_the_requests(server, repo, tmp_path, capsys):
    (repo / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "system.txt").write_text("Be brief.\n")
    server.play("Done.", "Done.")
    own = ["--system", str(tmp_path / "system.txt"), "--request", '{"temperature": 1, "seed": 7}', "--effort", "high"]
    assert agent(server, repo, "Do it.", "--yes", "--temperature", "0.5", "--max-tokens", "99", *own) == 0
    sent = server.requests[0].json
    assert sent["messages"][0] == {"role": "system", "content": "Be brief.\n\nUse tabs."}
    assert [sent[key] for key in ("temperature", "seed", "max_tokens", "reasoning_effort")] == [0.5, 7, 99, "high"]
    assert "AGENTS.md of the folder" in capsys.readouterr().err
    assert agent(server, repo, "Do it.", "--yes", "--no-agents-file") == 0
    assert [message["role"] for message in server.requests[1].json["messages"]] == ["user"]


def test_further_messages_continue_the_conversation(server, repo, monkeypatch, capsys):
    messages = iter(["And now?", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(messages))
    server.play("First.", "Second.")
    assert agent(server, repo, "Do it.", "--yes", "-i") == 0
    said = [(message["role"], message["content"]) for message in server.requests[1].json["messages"]]
    assert said == [("user", "Do it."), ("assistant", "First."), ("user", "And now?")]
    assert "Second." in capsys.readouterr().out


def test_events_are_lines_of_json(server, repo, capsys):
    server.play(exec_call(), "Done.")
    assert agent(server, repo, "Add a line.", "--yes", "--events") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert [kind for kind in kinds if kind != "text"] == ["call", "result", "step", "step", "end"]
    call, result = (event for event in events if event["event"] in {"call", "result"})
    assert (call["name"], call["id"], result["is_error"]) == ("container.exec", result["id"], False)
    assert (events[-1]["answer"], "+# more" in events[-1]["diff"]) == ("Done.", True)


@pytest.mark.exhaustive
def test_the_tools_of_mcp_servers_are_offered_and_asked_about(server, repo, tmp_path, monkeypatch):
    program = Path(__file__).parents[1] / "harness" / "toolsets" / "mcp_test_server.py"
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s": {"command": sys.executable, "args": [str(program)]}}}))
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    look, add = ("s__look", {"where": "here"}), ("s__add", {"a": 1, "b": 2})
    server.play(ModelReply(None, calls=[look, add]), "Done.")
    assert agent(server, repo, "Do it.", "--mcp", str(config)) == 0
    results = [message["content"] for message in server.requests[1].json["messages"] if message["role"] == "tool"]
    assert results == ["looked here", "3"]
    assert len(asked) == 1
    assert "run s__add" in asked[0]


def test_files_are_read_without_asking(server, repo, monkeypatch):
    monkeypatch.setattr("builtins.input", pytest.fail)
    server.play(ModelReply(None, calls=[("repo_browser.open_file", {"path": "notes.txt"})]), "Done.")
    assert agent(server, repo, "Read.") == 0
    assert "one" in server.requests[1].json["messages"][-1]["content"]


def test_a_run_that_reached_a_limit_is_resumed_from_its_tape(server, repo, capsys, tmp_path):
    tape = tmp_path / "tape.jsonl"
    server.play(exec_call(), exec_call(["true"]))
    assert agent(server, repo, "Add a line.", "--yes", "--steps", "2", "--tape", str(tape)) == 1
    assert "steps: the model still calls tools" in capsys.readouterr().out
    server.play("Done.")
    assert agent(server, repo, "--yes", "--resume", str(tape)) == 0
    sent = server.requests[0].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "tool"]
    assert (repo / "notes.txt").read_text() == "one\n# more\n"
    assert read_tape(tape).ended == "answer"
    assert agent(server, repo, "--yes", "--resume", str(tape)) == 2
    assert "complete" in capsys.readouterr().err


def test_an_interrupted_run_shows_its_diff_and_how_to_go_on(server, repo, capsys, tmp_path, monkeypatch):
    def interrupt(question):
        (repo / "notes.txt").write_text("two\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupt)
    server.play(exec_call())
    tape = tmp_path / "tape.jsonl"
    assert agent(server, repo, "Add a line.", "--tape", str(tape)) == 130
    printed = capsys.readouterr()
    assert "+two" in printed.out
    assert f"--resume {tape}" in printed.err
    assert read_tape(tape).messages[-1]["role"] == "tool"


def test_what_is_missing_is_named(server, repo, capsys):
    assert agent(server, repo) == 2
    assert "there is no task" in capsys.readouterr().err
    assert main(["agent", "x", "--repo", str(repo), "--sandbox", "docker"]) == 2
    assert "--image" in capsys.readouterr().err


def discovered_tool(name, *names, aliases):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    marks = {"names": list(names), "aliases": aliases}
    return {"type": "function", "function": {"name": name, "parameters": schema, "x-promptools": marks}}


def test_tools_have_the_names_that_were_discovered(server, repo, capsys, tmp_path):
    tools = [
        discovered_tool("read_file", "repo_browser.open_file", "cat", aliases={"filepath": "path"}),
        discovered_tool("browse", aliases={}),
    ]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    server.play(ModelReply(None, calls=[("cat", {"filepath": "notes.txt"})]), "Done.")
    assert agent(server, repo, "Read.", "--discovered", str(tmp_path)) == 0
    declared = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
    assert "read_file" in declared
    assert not any("open_file" in name for name in declared)
    assert "one" in server.requests[1].json["messages"][-1]["content"]
    assert "not offered, as nothing here runs them: browse" in capsys.readouterr().err


def test_a_renamed_command_is_asked_about_too(server, repo, monkeypatch, tmp_path):
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    asked = []
    (tmp_path / "tools.json").write_text(json.dumps([discovered_tool("shell", "container.exec", aliases={})]))
    server.play(ModelReply(None, calls=[("shell", {"command": ["touch", "made"]})]), "Done.")
    assert agent(server, repo, "Run.", "--discovered", str(tmp_path / "tools.json")) == 0
    assert len(asked) == 1
    assert not (repo / "made").exists()


def test_the_home_folder_is_not_a_workspace(server, repo, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(repo))
    assert agent(server, repo, "Add a line.") == 2
    assert "home folder" in capsys.readouterr().err


def test_control_characters_never_reach_the_terminal(capsys):
    assert printable("a\x1b[2Jb\tc\nd\x07\x9b\u202e") == r"a\x1b[2Jb" "\tc\n" r"d\x07\x9b\u202e"
    with AgentView() as view:
        from promptools.harness.agent import TextEvent

        view.show(TextEvent("a\x1b]0;title\x07b"))
    assert "\x1b" not in capsys.readouterr().out


def test_a_difference_of_every_kind(tmp_path):
    (tmp_path / "same").write_text("same\n")
    (tmp_path / "gone").write_text("gone\n")
    (tmp_path / "data").write_bytes(b"\0\1")
    (tmp_path / "changed").write_text("a\nb")
    snapshot = FolderSnapshot(tmp_path)
    assert snapshot.difference() == ""
    (tmp_path / "gone").unlink()
    (tmp_path / "data").write_bytes(b"\0\2\3")
    (tmp_path / "changed").write_text("a\nc")
    (tmp_path / "new").write_text("new\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    (tmp_path / "same").write_text("same\n")
    assert snapshot.difference().splitlines() == [
        "--- a/changed",
        "+++ b/changed",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "\\ No newline at end of file",
        "+c",
        "\\ No newline at end of file",
        "data: changed",
        "--- a/gone",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-gone",
        "--- /dev/null",
        "+++ b/new",
        "@@ -0,0 +1 @@",
        "+new",
    ]


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed here")


def git(folder, *words):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


def repository(folder):
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    (folder / "inner.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


NOT_SHOWN = "inner/.git: {}, which is not shown; look at its hooks and settings before you run git there"


@needs_git
def test_what_changed_in_an_inner_repository_is_shown_or_named(server, repo, capsys):
    inner = repository(repo / "inner")
    line = "cd inner && echo two >> inner.txt && git -c user.name=x -c user.email=x@example.org commit -qam two"
    server.play(exec_call(["bash", "-lc", line]), "Done.")
    assert agent(server, repo, "Commit.", "--yes") == 0
    printed = capsys.readouterr().out
    assert "--- a/inner/inner.txt" in printed
    assert "+two" in printed
    assert NOT_SHOWN.format("changed") in printed
    snapshot = FolderSnapshot(repo)
    assert snapshot.difference() == ""
    (inner / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    assert snapshot.difference() == NOT_SHOWN.format("changed") + "\n"


@needs_git
def test_an_inner_repository_that_is_made_or_removed(repo):
    snapshot = FolderSnapshot(repo)
    repository(repo / "inner")
    assert snapshot.difference().endswith(NOT_SHOWN.format("added") + "\n")
    snapshot = FolderSnapshot(repo)
    shutil.rmtree(repo / "inner" / ".git")
    assert snapshot.difference() == "inner/.git: removed, which is not shown\n"


@needs_git
def test_what_changed_in_a_submodule_is_shown(repo, tmp_path):
    origin = repository(tmp_path / "origin")
    repository(repo)
    git(repo, "submodule", "add", "-q", str(origin), "part")
    snapshot = FolderSnapshot(repo)
    (repo / "part" / "inner.txt").write_text("one\ntwo\n")
    (repo / "part" / ".git").write_text("gitdir: ../elsewhere\n")
    lines = snapshot.difference().splitlines()
    assert {"--- a/part/inner.txt", "+two", "--- a/part/.git", "+gitdir: ../elsewhere"} <= set(lines)


def test_very_many_nested_folders_are_walked(repo):
    before = FolderSnapshot(repo)
    with nested(repo, 1500):
        (repo / "d" / "d" / "new.txt").write_text("x\n")
        difference = before.difference()
        (repo / "d" / "d" / "new.txt").unlink()
    assert "b/d/d/new.txt" in difference


def test_links_to_folders_are_shown(repo):
    snapshot = FolderSnapshot(repo)
    (repo / "link").symlink_to("/etc")
    assert snapshot.difference() == "link: added\n"
