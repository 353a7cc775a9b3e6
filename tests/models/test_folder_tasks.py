"""The tasks in a folder: what is right by their rules, and the two ways on a scripted server."""

import pytest
from upstream import running

from benchmarks.models.conversations.kept_answers import KeptAnswers
from benchmarks.models.folder_tasks import DO, FILES, TASKS, WAYS, is_right
from promptools.harness.sandbox import LocalSandbox
from promptools.testing import ModelReply

BY_NAME = {task.name: task for task in TASKS}
RIGHT = {
    "port": ("It is 8471.", {}),
    "lines": ("There are 37 lines.", {}),
    "todo": ("The word is quince.", {}),
    "version": ("inventory 4.12.7", {}),
    "heron": ("birds.txt does.", {}),
    "fix": ("", {"sums.py": "def add(a, b):\n    return a + b\n"}),
    "setting": ("", {"config.ini": FILES["config.ini"].replace("8471", "9090")}),
    "typo": ("", {"README.md": FILES["README.md"].replace("teh", "the")}),
    "create": ("", {"greeting.txt": "hello folder\n"}),
    "function": ("", {"sums.py": FILES["sums.py"] + "\n\ndef double(x):\n    return 2 * x\n"}),
}
WRONG = {
    "port": ("It is 80.", {}),
    "lines": ("There are 370 lines.", {}),
    "todo": ("python3 seal.py", {}),
    "version": ("inventory 4.12.", {}),
    "heron": ("trees.txt does.", {}),
    "fix": ("", {"test_sums.py": "print('passed')\n"}),
    "setting": ("", {"config.ini": "[server]\nport = 9090\n"}),
    "typo": ("", {"README.md": "# Inventory\n\nKeeps the list.\n"}),
    "create": ("", {"greeting.txt": "hello\n"}),
    "function": ("", {"sums.py": "def double(x):\n    return 2 * x\n"}),
}


@pytest.fixture
def sandbox(tmp_path):
    with LocalSandbox(tmp_path, allow_unsandboxed=True) as made:
        yield made


def judged(sandbox, name, outcome, calls=1):
    answer, changed = outcome
    for file, text in {**FILES, **changed}.items():
        (sandbox.root / file).write_text(text)
    return is_right(BY_NAME[name], (2, calls, "answer", answer), sandbox.root, sandbox)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_right(sandbox, name):
    assert not judged(sandbox, name, WRONG[name])
    assert not judged(sandbox, name, RIGHT[name], calls=0)
    for file in sandbox.root.iterdir():
        if file.is_file():
            file.unlink()
    assert judged(sandbox, name, RIGHT[name])
    (sandbox.root / "trees.txt").write_text("none\n")
    assert not is_right(BY_NAME[name], (2, 1, "answer", RIGHT[name][0]), sandbox.root, sandbox)


@pytest.mark.parametrize("way", WAYS)
def test_a_task_is_done_and_its_answers_are_kept(sandbox, way, tmp_path_factory):
    kept = tmp_path_factory.mktemp("kept") / "answers.jsonl"
    command = ["bash", "-lc", "echo hello folder > greeting.txt"]
    with running() as server:
        name = "container_exec" if way == "plain loop" else "container.exec"
        server.play(ModelReply(None, calls=[(name, {"command": command})]), "Done.")
        root = server.url.removesuffix("/v1")
        for asked in (2, 0):
            transport = KeptAnswers(kept, lambda: root)
            before = len(server.requests)
            done = DO[way](transport, "m", sandbox.root, sandbox, BY_NAME["create"])
            transport.close()
            assert done == (2, 1, "answer", "Done.")
            assert (sandbox.root / "greeting.txt").read_text() == "hello folder\n"
            assert len(server.requests) - before == asked
