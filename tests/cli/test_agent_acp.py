"""`promptools agent --acp`: a real client of the SDK, over the pipes of a real process, and a scripted model."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import acp
import pytest
from acp.schema import EnvVariable, ImageContentBlock, McpServerStdio, ResourceContentBlock
from editors import Editor, agent, blocks
from upstream import running

from promptools.cli import main
from promptools.cli.agent_acp import prompt_text
from promptools.testing import HttpAnswer, ModelReply

PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
-one
+two
*** End Patch"""
PLAIN = ("--model", "m", "--no-detect")
NOISE = """
import os, sys
def hook(event, _):
    if event == "subprocess.Popen":
        print("noise of Python", flush=True)
        os.write(1, b"noise of C\\n")
        open(os.path.join(os.path.dirname(__file__), "noise"), "w").close()
sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@dataclass
class Desk:
    """An editor at work: its agent's process, in which each test has sessions of its own."""

    runner: asyncio.Runner
    editor: Editor
    connection: acp.Agent
    tapes: Path

    def answers(self, *answers):
        """Forget what was said, and answer the next questions so."""
        self.editor.__init__(*answers)
        return self.editor

    def run(self, talk):
        return self.runner.run(talk)

    async def session(self, folder):
        return (await self.connection.new_session(cwd=str(folder), mcp_servers=[])).session_id

    async def ask(self, session, text):
        return (await self.connection.prompt(session_id=session, prompt=blocks(text))).stop_reason


@pytest.fixture(scope="module")
def desk(server, tmp_path_factory):
    """A process in which Python and C print to stdout while a command starts."""
    folder, editor = tmp_path_factory.mktemp("desk"), Editor()
    (folder / "sitecustomize.py").write_text(NOISE)
    words = (*PLAIN, "--tape", str(folder / "tapes"))
    with asyncio.Runner() as runner:
        process = agent(server.url, editor, *words, PYTHONPATH=str(folder))
        yield Desk(runner, editor, runner.run(process.__aenter__()), folder / "tapes")
        runner.run(process.__aexit__(None, None, None))


def shell(line, text=None):
    return ModelReply(text, calls=[("container.exec", {"command": ["bash", "-lc", line]})])


def texts(messages):
    return [(message["role"], message["content"]) for message in messages]


def test_a_task_in_an_editor(server, desk, repo, caplog):
    """Thoughts, calls with their status, questions, the diff, the answer; then a second prompt goes on.

    Nothing but the protocol is on stdout: the SDK would log what it cannot read.
    """
    patch = ModelReply("I change it.", calls=[("repo_browser.apply_patch", {"patch": PATCH})], reasoning="Hm.")
    server.play(patch, shell("echo done; exit 3"), "Done.", "Bye.")
    editor = desk.answers("allow")

    async def talk():
        session = await desk.session(repo)
        first = await desk.ask(session, "Change it.")
        said = editor.said(session)
        return first, await desk.ask(session, "Thanks."), said

    first, second, said = desk.run(talk())
    assert (desk.tapes.parent / "noise").exists()
    assert caplog.records == []
    assert (first, second) == ("end_turn", "end_turn")
    assert editor.asked == ["bash -lc 'echo done; exit 3'"]
    assert editor.options == [("allow", "allow_once"), ("always", "allow_always"), ("deny", "reject_once")]
    thoughts = "".join(entry[1] for entry in said if entry[0] == "agent_thought_chunk")
    answer = "".join(entry[1] for entry in said if entry[0] == "agent_message_chunk")
    assert (thoughts, answer) == ("Hm.", "I change it.Done.")
    calls = [entry for entry in said if entry[0].startswith("tool_call")]
    assert calls[0][2:] == ("edit", "pending")
    assert calls[1] == ("tool_call_update", "in_progress", [])
    assert calls[2][1] == "completed"
    assert calls[2][2][1] == (str(repo / "notes.txt"), "one\n", "two\n")
    assert calls[3] == ("tool_call", "bash -lc 'echo done; exit 3'", "execute", "pending")
    assert calls[4:] == [
        ("tool_call_update", "in_progress", []),
        ("tool_call_update", "completed", ["done\n[exit code 3]"]),
    ]
    assert texts(server.requests[3].json["messages"])[-2:] == [("assistant", "Done."), ("user", "Thanks.")]


def test_what_the_user_allows(server, desk, repo):
    """Denied, no answer, allowed once, allowed always: the model reads what was not run, and goes on."""
    lines = [f"echo {number} >> notes.txt" for number in range(5)]
    server.play(*map(shell, lines), "Done.")
    editor = desk.answers("deny", "cancelled", "allow", "always")

    async def talk():
        return await desk.ask(await desk.session(repo), "Count.")

    assert desk.run(talk()) == "end_turn"
    assert (repo / "notes.txt").read_text() == "one\n2\n3\n4\n"
    assert len(editor.asked) == 4
    results = [text for role, text in texts(server.requests[5].json["messages"]) if role == "tool"]
    assert ["does not allow this call" in text for text in results] == [True, True, False, False, False]
    statuses = [entry[1] for entry in editor.said() if entry[0] == "tool_call_update"]
    assert statuses == ["failed", "failed", *["in_progress", "completed"] * 3]


def test_a_turn_is_cancelled(server, desk, repo):
    """While a question is open, while a command runs, and while the server answers; the conversation goes on."""
    held = threading.Event()
    waiting = HttpAnswer(first=held.wait)
    sleep = "echo $$ > pid; echo begun; sleep 1000"
    server.play(shell("echo 1"), shell(sleep), waiting, "Done.")
    editor = desk.answers(asyncio.Event(), "always")

    async def cancelled(session, begun):
        turn = asyncio.create_task(desk.ask(session, "Go."))
        await begun()
        await desk.connection.cancel(session_id=session)
        return await turn

    async def asked():
        while not editor.asked:
            await asyncio.sleep(0.01)

    async def runs():
        while not (repo / "pid").exists() or not (repo / "pid").read_text():
            await asyncio.sleep(0.01)

    async def requested():
        while len(server.requests) < 3:
            await asyncio.sleep(0.01)

    async def talk():
        session = await desk.session(repo)
        reasons = [await cancelled(session, begun) for begun in (asked, runs, requested)]
        held.set()
        return [*reasons, await desk.ask(session, "Go on.")]

    assert desk.run(talk()) == ["cancelled"] * 3 + ["end_turn"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((repo / "pid").read_text()), 0)
    sent = server.requests[-1].json["messages"]
    results = [text for role, text in texts(sent) if role == "tool"]
    assert "cancelled the run" in results[0]
    assert results[1] == "begun\n[the command was ended: it was interrupted]"
    assert [role for role, _ in texts(sent)] == ["user", "assistant", "tool"] * 2 + ["user", "user"]


def test_a_path_that_cannot_be_shown_ends_no_turn(server, desk, repo):
    patch = PATCH.replace("notes.txt", "a\0b" + 20_000 * " " + "c")
    server.play(ModelReply(None, calls=[("repo_browser.apply_patch", {"patch": patch})]), "Done.")
    desk.answers()

    async def talk():
        return await desk.ask(await desk.session(repo), "Change it.")

    assert desk.run(talk()) == "end_turn"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [("file:///home/me/my%20file.md", "/home/me/my file.md"), ("https://a.b/c%20d", "https://a.b/c%20d")],
)
def test_a_file_is_named_by_its_path(uri, shown):
    assert prompt_text([ResourceContentBlock(name="it", uri=uri, type="resource_link")]) == f"[it]({shown})"


def test_instructions_are_not_read_where_the_protocol_is(capsys):
    assert main(["agent", "--acp", "--system", "-"]) == 2
    assert "name a file for --system" in capsys.readouterr().err


def test_what_the_editor_decides_is_no_argument(capsys):
    assert main(["agent", "Do it.", "--acp", "--json", "--repo", "/tmp"]) == 2
    assert "leave out the task, --repo, --json" in capsys.readouterr().err


def test_what_is_wrong_is_an_error_of_the_protocol(server, desk, repo):
    refused = HttpAnswer(400, (b'{"error": {"message": "no such model", "type": "invalid_request_error"}}',))
    server.play(*[refused] * 4)
    desk.answers("always")
    errors = []

    async def fails(request):
        with pytest.raises(acp.RequestError) as caught:
            await request
        errors.append((caught.value.code, str(caught.value)))

    async def talk():
        connection = desk.connection
        await fails(desk.session("repo"))
        await fails(desk.session(Path.home()))
        gone = McpServerStdio(name="gone", command="/gone", args=[], env=[EnvVariable(name="A", value="b")])
        await fails(connection.new_session(cwd=str(repo), mcp_servers=[gone]))
        await fails(desk.ask("x", "Hi."))
        await fails(connection.load_session(session_id="../x", cwd=str(repo), mcp_servers=[]))
        session = await desk.session(repo)
        image = ImageContentBlock(type="image", data="", mime_type="image/png")
        await fails(connection.prompt(session_id=session, prompt=[image]))
        await fails(desk.ask(session, "Hi."))
        server.play(*[shell("true")] * 4)
        return await desk.ask(session, "Again and again.")

    assert desk.run(talk()) == "max_turn_requests"
    codes, words = zip(*errors, strict=True)
    assert codes == (-32602, -32602, -32603, -32002, -32002, -32602, -32603)
    assert "'repo' is not an absolute path" in words[0]
    assert "home folder" in words[1]
    assert "'gone' cannot be used" in words[2]
    assert "block of type 'image'" in words[5]
    assert "no such model" in words[6]


@pytest.mark.exhaustive
def test_sessions_side_by_side_and_in_a_later_process(server, desk, repo, tmp_path):
    """Both wait for an answer at once, each in its folder; with --tape, another process shows and continues one."""
    other = tmp_path / "other"
    other.mkdir()
    touch = ModelReply("I make a file.", calls=[("container.exec", {"command": ["touch", "made"]})])
    server.play(touch, touch, "Done.", "Done.")
    both = asyncio.Barrier(2)
    editor, later = desk.answers(both, both), Editor()

    async def talk():
        ids = [await desk.session(at) for at in (repo, other)]
        reasons = await asyncio.gather(*(desk.ask(own, f"In {own}.") for own in ids))
        server.play("Once more.")
        async with agent(server.url, later, *PLAIN, "--tape", str(desk.tapes)) as connection:
            await connection.load_session(session_id=ids[0], cwd=str(repo), mcp_servers=[])
            shown = later.said()
            await connection.prompt(session_id=ids[0], prompt=blocks("Again."))
        return ids, reasons, shown

    ids, reasons, shown = desk.run(talk())
    assert reasons == ["end_turn", "end_turn"]
    assert (repo / "made").exists()
    assert (other / "made").exists()
    for own in ids:
        assert [entry for entry in editor.said(own) if entry[0] == "tool_call"] == [
            ("tool_call", "touch made", "execute", "pending")
        ]
    assert [entry[0] for entry in shown] == [
        "user_message_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert shown[0][1] == f"In {ids[0]}."
    assert shown[2] == ("tool_call", "touch made", "execute", "pending")
    assert [role for role, _ in texts(server.requests[-1].json["messages"])] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
