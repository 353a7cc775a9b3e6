"""Ten small tasks in a folder, for `promptools agent` and for the loop that an app writes around the `openai` client.

Both have the same tools, gpt-oss' own, in the same sandbox, and the same limits. A rule decides whether a task is
right: the answer must contain what only a call could reveal, or the files must be changed as the task says and all
other files must be unchanged. The model's answers are kept (`kept_answers`), so that a run costs only what has changed
since.

    python -m benchmarks.models.folder_tasks            the tasks that have no row, then the page
    python -m benchmarks.models.folder_tasks --threads 1 --task fix
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import openai

from benchmarks.models.ask import ALONE, AS_IT_COMES
from benchmarks.models.conversations.app import client_of
from benchmarks.models.conversations.kept_answers import KeptAnswers, answers_of
from benchmarks.models.rows import RowFile
from promptools.cli import agent_command
from promptools.cli.agent_setup import agent_toolsets, build_agent, instructions
from promptools.errors import PromptoolsError
from promptools.harness.agent.harness_errors import TerminatingError
from promptools.harness.sandbox import BubblewrapSandbox, Sandbox
from promptools.harness.toolsets import AgentTool
from promptools.schema import Tools

WAYS = ("plain loop", "promptools agent")
STEPS = 8
MOST_TOKENS = 300
"""Maximum number of tokens of a reply; a longer reply would be an endless repetition."""
OUTPUT = 2000
"""Bytes of a result that the model reads."""
SYSTEM = "You work in a folder of files. Use the tools to look at them and to change them; then answer briefly."

FILES = {
    "config.ini": "[server]\nhost = 0.0.0.0\nport = 8471\nworkers = 3\n",
    "access.log": "".join(f"10.0.0.{n} GET /page/{n} 200\n" for n in range(37)),
    "todo.txt": "Before the release: run the command `python3 seal.py` and write down the word that it prints.\n",
    "seal.py": "print('The word is ' + 'quince'[::1])\n",
    "version.py": "print('inventory 4.12.' + str(3 + 4))\n",
    "birds.txt": "Seen on Monday: two robins and a blue heron.\n",
    "trees.txt": "Seen on Monday: an old oak and three birches.\n",
    "sums.py": "def add(a, b):\n    return a - b\n",
    "test_sums.py": "from sums import add\n\nassert add(2, 3) == 5, 'add(2, 3) must be 5'\nprint('passed')\n",
    "README.md": "# Inventory\n\nKeeps teh list of all parts.\n",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and the rule that judges it: a pattern for the answer, or the changed files and a check of them."""

    name: str
    text: str
    answer: str = ""
    changed: dict[str, str] = field(default_factory=dict[str, str])
    """Regular expressions that whole files must match in the end."""
    passes: str = ""
    """Python that must run without an error in the end."""

    @property
    def digest(self) -> str:
        """A digest of the task, its files and its limits. A task whose digest has changed is done again."""
        parts = [asdict(self), FILES, SYSTEM, STEPS, MOST_TOKENS, OUTPUT]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


TASKS = (
    Task("port", "Which port does the server in config.ini listen on?", r"\b8471\b"),
    Task("lines", "How many lines does access.log have? Count them with a command.", r"\b37\b"),
    Task("todo", "Read todo.txt, run the command that it names, and tell me the word that it prints.", r"\bquince\b"),
    Task("version", "Run version.py with python3 and tell me the version that it prints.", r"4\.12\.7"),
    Task("heron", "Which file mentions a heron? Search for it.", r"birds\.txt"),
    Task(
        "fix",
        "`python3 test_sums.py` fails. Find the error in sums.py and correct it.",
        changed={"sums.py": r"(?s).*def add\b.*"},
        passes="import test_sums",
    ),
    Task(
        "setting",
        "Change the port in config.ini to 9090.",
        changed={"config.ini": r"\[server\]\nhost = 0\.0\.0\.0\nport ?= ?9090\nworkers = 3\n?"},
    ),
    Task(
        "typo",
        "There is a spelling mistake in README.md. Correct it.",
        changed={"README.md": r"# Inventory\n\nKeeps the list of all parts\.\n?"},
    ),
    Task(
        "create",
        "Make a file greeting.txt with the single line: hello folder",
        changed={"greeting.txt": r"hello folder\n?"},
    ),
    Task(
        "function",
        "Add a function double(x), which returns twice x, to sums.py. Leave add as it is.",
        changed={"sums.py": r"(?s)def add\(a, b\):\n    return a - b\n.*"},
        passes="from sums import double; assert double(21) == 42",
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One task, done in one way."""

    model: str
    way: str
    task: str
    digest: str
    right: bool
    steps: int
    calls: int
    ended: str
    answer: str


RUNS = RowFile(
    Path(__file__).with_name("folder_tasks.jsonl"),
    lambda row: Run(**row),
    lambda run: (run.model, run.way, run.task, run.digest),
)


def read() -> list[Run]:
    """Return the last run of each task in each way, for the tasks as they are now."""
    today = {(task.name, task.digest) for task in TASKS}
    return [run for run in RUNS.read() if (run.task, run.digest) in today]


# The two ways: what they did, how they ended, and the answer.

Done = tuple[int, int, str, str]
"""Steps, calls, how it ended, and the answer."""


def with_agent(transport: KeptAnswers, model: str, root: Path, sandbox: Sandbox, task: Task) -> Done:
    """Do a task as `promptools agent` does, with its arguments."""
    parser = argparse.ArgumentParser()
    agent_command.add(parser)
    words = [task.text, "--yes", "--steps", str(STEPS), "--max-tokens", str(MOST_TOKENS), "--temperature", "0"]
    arguments = parser.parse_args(words)
    tools = agent_toolsets(arguments, root, sandbox, [])
    told = f"{SYSTEM}\n{instructions(arguments, root)}".strip()
    with client_of(AS_IT_COMES, transport) as client, tempfile.TemporaryDirectory() as folder:
        agent = build_agent(arguments, client, tools, model=model, instructions=told)
        try:
            done = agent.run(task.text, tape=Path(folder, "run.jsonl"))  # a tape makes the ids the same in each run
        except TerminatingError as error:
            if error.transcript is None:
                raise
            done = error.transcript
        except (PromptoolsError, openai.OpenAIError) as error:
            return 0, 0, f"{type(error).__name__}: {error}"[:200], ""
    return done.iterations, len(done.calls), done.ended, done.content


def with_plain_loop(transport: KeptAnswers, model: str, root: Path, sandbox: Sandbox, task: Task) -> Done:
    """Do a task with the `openai` client alone, and with a loop as an app would write it."""
    arguments = argparse.Namespace(python=None, search=None)
    tools = {_plain_name(entry): entry for each in agent_toolsets(arguments, root, sandbox, []) for entry in each.tools}
    payloads: Any = Tools([entry.tool for entry in tools.values()]).to_openai()
    for name, payload in zip(tools, payloads, strict=True):
        payload["function"]["name"] = name
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.text}]
    calls = 0
    with client_of(ALONE, transport) as client:
        for step in range(1, STEPS + 1):
            try:
                reply = client.chat.completions.create(
                    model=model, messages=messages, tools=payloads, temperature=0, max_tokens=MOST_TOKENS
                )
            except openai.APIError as error:
                return step, calls, f"error: {error}"[:200], ""
            message: Any = reply.choices[0].message
            if not message.tool_calls:
                return step, calls, "answer", message.content or ""
            said: dict[str, Any] = {"role": "assistant", "content": message.content or "", "tool_calls": []}
            messages.append(said)
            for call in message.tool_calls:
                own = f"call{calls:05}"
                calls += 1
                function = {"name": call.function.name, "arguments": call.function.arguments}
                said["tool_calls"].append({"id": own, "type": "function", "function": function})
                messages.append({"role": "tool", "tool_call_id": own, "content": _result(tools, **function)})
    return STEPS, calls, "steps", ""


def _plain_name(entry: AgentTool) -> str:
    return entry.tool.name.replace(".", "_")  # OpenAI's API takes no dots


def _result(tools: dict[str, AgentTool], name: str, arguments: str) -> str:
    try:
        return str(tools[name].run(**json.loads(arguments)))[:OUTPUT]
    except Exception as error:  # noqa: BLE001  whatever a tool raises goes to the model
        return f"Error: {type(error).__name__}: {error}"[:OUTPUT]


DO: dict[str, Callable[[KeptAnswers, str, Path, Sandbox, Task], Done]] = {
    "plain loop": with_plain_loop,
    "promptools agent": with_agent,
}


# The rule.


def is_right(task: Task, done: Done, root: Path, sandbox: Sandbox) -> bool:
    """Whether the answer and the files are as the task asks, and at least one call was made."""
    _, calls, _, answer = done
    files = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in root.iterdir() if path.is_file()}
    fine = calls > 0 and re.search(task.answer, answer) is not None
    fine = fine and all(re.fullmatch(pattern, files.get(name, "")) for name, pattern in task.changed.items())
    fine = fine and all(files.get(name) == text for name, text in FILES.items() if name not in task.changed)
    return fine and (not task.passes or sandbox.run(["python3", "-B", "-c", task.passes]).exit_code == 0)


# The run.


def do(transport: KeptAnswers, model: str, served: str, way: str, task: Task) -> Run:
    """Do a task in a new folder."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for file, text in FILES.items():
            (root / file).write_text(text, encoding="utf-8")
            os.utime(root / file, (1_790_000_000, 1_790_000_000))  # `ls -l` shows the same in each run
        sandbox = BubblewrapSandbox(root, bwrap=_bubblewrap())
        try:
            done = DO[way](transport, served, root, sandbox, task)
            right = is_right(task, done, root, sandbox)
        finally:
            sandbox.close()
    steps, calls, ended, answer = done
    return Run(model, way, task.name, task.digest, right, steps, calls, ended, answer[:300])


def _bubblewrap() -> str:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    import environments

    return str(environments.path_of("bubblewrap"))


def main(words: Sequence[str] | None = None) -> int:
    """Do the tasks that have no row yet, and write the page."""
    from benchmarks.models import page
    from benchmarks.models.__main__ import AGENT, path_of

    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.folder_tasks", description=__doc__)
    parser.add_argument("--threads", type=int, help="of the model's server (default: as many as there are cores)")
    parser.add_argument("--task", action="append", choices=[task.name for task in TASKS], help="only this one")
    parser.add_argument("--again", action="store_true", help="those that have a row, too; answers are kept")
    asked = parser.parse_args(words)
    file = path_of(AGENT)
    if file is None:
        return 1
    have = set() if asked.again else {(run.way, run.task) for run in read() if run.model == AGENT}
    with answers_of(file, threads=asked.threads) as kept:
        for task in TASKS:
            for way in WAYS:
                if (way, task.name) in have or (asked.task and task.name not in asked.task):
                    continue
                run = do(kept, AGENT, file.stem, way, task)
                print(
                    f"{way}: {task.name}: {'right' if run.right else 'wrong'}, {run.calls} calls, {run.ended}",
                    flush=True,
                )
                RUNS.add(run)
    page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
