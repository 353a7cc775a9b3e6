"""A small agent: a model reads files and runs commands in a separate folder until it answers.

The loop is one that an app would write around the `openai` client; it is the same with and without promptools. Commands
are run without a shell, and only the programs of `ALLOWED`: the model is not trusted.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from benchmarks.models.ask import MOST_TOKENS, Way, client_of, extra_body
from benchmarks.models.rows import RowFile

TURNS = 6
ALLOWED = ("cat", "grep", "head", "ls", "tail", "wc")
"""Programs that `run_command` runs, besides Python on a file of the folder."""

SYSTEM = "You help with the files of a folder. Use the tools to look at them; then answer the question briefly."
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string", "description": meaning}},
                "required": [parameter],
            },
        },
    }
    for name, description, parameter, meaning in (
        ("read_file", "Return the text of a file.", "path", "Name of the file, such as notes.txt."),
        ("run_command", "Run a command in the folder and return what it prints.", "command", "Such as: ls -l"),
    )
]

FILES = {
    "config.ini": "[server]\nhost = 0.0.0.0\nport = 8471\nworkers = 3\n",
    "access.log": "".join(f"10.0.0.{n} GET /page/{n} 200\n" for n in range(37)),
    "todo.txt": "Before the release: run the command `python3 seal.py` and write down the word that it prints.\n",
    "seal.py": "print('The word is ' + 'quince'[::1])\n",
    "people.csv": "name,phone\nAnna,555-0133\nMaria,555-0178\nTom,555-0129\n",
    "birds.txt": "Seen on Monday: two robins and a blue heron.\n",
    "trees.txt": "Seen on Monday: an old oak and three birches.\n",
    "version.py": "print('inventory 4.12.7')\n",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A question to the agent, and a regular expression that its answer must match."""

    name: str
    question: str
    answer: str


TASKS = (
    Task("port", "Which port does the server in config.ini listen on?", r"\b8471\b"),
    Task("lines", "How many lines does access.log have? Count them with a command.", r"\b37\b"),
    Task("todo", "Read todo.txt, run the command that it names, and tell me the word that it prints.", r"\bquince\b"),
    Task("phone", "What is Maria's phone number? It is in people.csv.", r"555-?0178"),
    Task("version", "Run version.py with python3 and tell me the version that it prints.", r"4\.12\.7"),
    Task("birds", "Read birds.txt and trees.txt. Which of the two files mentions a heron?", r"birds(\.txt)?"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one task."""

    model: str
    way: str
    task: str
    right: bool
    turns: int
    calls: int
    answer: str


RUNS = RowFile(
    Path(__file__).with_name("agent.jsonl"), lambda row: Run(**row), lambda run: (run.model, run.way, run.task)
)


def run(base_url: str, model: str, way: Way) -> None:
    """Run each task that has no run yet, and store the result."""
    have = {RUNS.key(each) for each in RUNS.read()}
    with client_of(base_url, way) as client:
        for task in TASKS:
            if (model, way.name, task.name) in have:
                continue
            held = hold(client, model, way, task)
            print(f"{model}, {way.name}, agent: {task.name}: {'right' if held.right else 'wrong'}", flush=True)
            RUNS.add(held)


def hold(client: openai.OpenAI, model: str, way: Way, task: Task) -> Run:
    """Run one task until the model answers, or until the last turn."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]
    calls = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text, encoding="utf-8")
        for turn in range(1, TURNS + 1):
            try:
                reply = client.chat.completions.create(
                    model=model,
                    messages=messages,
                    tools=TOOLS,
                    temperature=0,
                    max_tokens=MOST_TOKENS,
                    **extra_body(way),
                )
            except openai.APIError as error:
                return Run(model, way.name, task.name, False, turn, calls, f"error: {error}"[:200])
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
            if not message.tool_calls:
                answer = message.content or ""
                right = calls > 0 and re.search(task.answer, answer) is not None
                return Run(model, way.name, task.name, right, turn, calls, answer[:200])
            for call in message.tool_calls:
                calls += 1
                content = result(folder, call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return Run(model, way.name, task.name, False, TURNS, calls, "")


def result(folder: Path, name: str, arguments: str) -> str:
    """Execute a call, and return the result for the model."""
    tools: dict[str, Callable[..., str]] = {"read_file": _read_file, "run_command": _run_command}
    try:
        return tools[name](folder, **json.loads(arguments))
    except (KeyError, TypeError, ValueError, OSError) as error:
        return f"error: {error}"


def _read_file(folder: Path, path: str) -> str:
    return (folder / Path(path).name).read_text(encoding="utf-8")


def _run_command(folder: Path, command: str) -> str:
    program, *rest = shlex.split(command)
    if program in {"python", "python3"} and rest and (folder / Path(rest[0]).name).is_file():
        words = [sys.executable, Path(rest[0]).name]
    elif program in ALLOWED:
        words = [program, *(Path(word).name if "/" in word else word for word in rest)]
    else:
        return f"error: {program} may not be run here"
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=folder, timeout=20)
    return done.stdout + done.stderr
