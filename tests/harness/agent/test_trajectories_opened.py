"""Trajectories of our agents, opened by mini-swe-agent itself: its inspector shows every step, call and result."""

import json
import os
import subprocess
from pathlib import Path

import environments
import pytest
from recipes.recipe import CannotMakeError
from terminals import Terminal
from upstream import running

from promptools.client import OpenAI
from promptools.harness.agent import Agent, IterationLimitError, RunLimits, trajectory
from promptools.profiles import Config
from promptools.testing import ModelReply

PROGRAM = Path(__file__).with_name("inspect_trajectories.py")
SCRIPT = [
    ModelReply("I look.", calls=[("look", {"path": "a.py"}), ("look", {"path": "b.py"})], reasoning="Two files."),
    ModelReply(None, calls=[("look", {"path": "[red]c.py[/red]"})]),
    ModelReply("All are seen.", reasoning="Enough."),
]

pytestmark = pytest.mark.__getattr__("mini-swe-agent")


@pytest.fixture(scope="module")
def python():
    try:
        return environments.path_of("mini-swe-agent")
    except CannotMakeError as error:
        pytest.skip(f"no mini-swe-agent: {error}")


def look(path: str) -> dict[str, object]:
    """Look at a file."""
    return {"path": path, "lines": ["x = 1", "\x1b[31mred\x1b[0m"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The trajectory of a run with an answer, and that of one that reached a limit."""
    folder = tmp_path_factory.mktemp("trajectories")
    with running() as server, OpenAI(base_url=server.url, api_key="k", config=Config(), max_retries=0) as client:
        agent = Agent(client, [look], model="m", instructions="Be brief.", limits=RunLimits(steps=3))
        server.play(*SCRIPT)
        write(folder / "answer.traj.json", agent.run("Look at the files."))
        server.play(*SCRIPT[:2], SCRIPT[1])
        with pytest.raises(IterationLimitError) as caught:
            agent.run("Look for ever.")
        write(folder / "limit.traj.json", caught.value.transcript)
    return folder


def write(path, transcript):
    path.write_text(json.dumps(trajectory(transcript, submission="diff"), ensure_ascii=False), encoding="utf-8")


def settings(folder):
    """The environment: nothing of the user's own settings, and no words at its beginning."""
    return {**os.environ, "MSWEA_GLOBAL_CONFIG_DIR": str(folder), "MSWEA_SILENT_STARTUP": "1"}


def test_every_step_is_a_page_with_its_call_and_its_results(python, files, tmp_path):
    names = [str(files / f"{name}.traj.json") for name in ("answer", "limit")]
    done = subprocess.run(
        [python, PROGRAM, *names], check=True, capture_output=True, text=True, env=settings(tmp_path), timeout=120
    )
    pages = json.loads(done.stdout)
    assert [page["notices"] for page in pages] == [[]] * len(pages)
    assert [page["title"] for page in pages] == [
        *(f"Trajectory 1/2 - answer.traj.json - Step {step}/4" for step in (1, 2, 3, 4)),
        *(f"Trajectory 2/2 - limit.traj.json - Step {step}/4" for step in (1, 2, 3, 4)),
    ]
    assert pages[0]["shown"] == ["SYSTEM", "Be brief.", "USER", "Look at the files."]
    result = '{"path":"%s","lines":["x = 1","\\u001b[31mred\\u001b[0m"]}'
    calls = 'I look.\nlook({"path": "a.py"})\nlook({"path": "b.py"})'
    assert pages[1]["shown"] == [
        *("ASSISTANT", calls, "REASONING", "Two files."),
        *("USER", result % "a.py", "USER", result % "b.py"),
    ]
    assert pages[2]["shown"][:2] == ["ASSISTANT", 'look({"path": "[red]c.py[/red]"})']
    assert pages[3]["shown"] == ["ASSISTANT", "All are seen.", "REASONING", "Enough."]
    assert pages[7]["shown"] == pages[2]["shown"][:2], "the call of the last reply was not run"


def test_its_own_command_opens_a_folder_of_them(python, files, tmp_path):
    """As a user does it, on a terminal: the keys of the inspector lead through the steps."""
    command = [str(python.with_name("mini-extra")), "inspect", str(files)]
    with Terminal(command, env=settings(tmp_path)) as terminal:
        terminal.wait_for("Trajectory 1/2 - answer.traj.json - Step 1/4")
        terminal.wait_for("Look at the files.")
        terminal.type("$")
        terminal.wait_for("Step 4/4")
        terminal.wait_for("All are seen.")
        terminal.type("q")
        assert terminal.wait() == 0
