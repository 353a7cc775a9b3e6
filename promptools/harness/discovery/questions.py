"""The questions that a discovery asks a model.

Many contain an intent: a task for an agent, or reasoning from the logs of agents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from promptools.errors import UsageError
from promptools.json_values import is_array, is_object

# Intents: what users ask an agent to do in a repository, by kind. No intent names a tool.


OTHER = "other"


@dataclass(frozen=True, slots=True)
class Intent:
    """A prompt, such as a task for an agent, and its kind: `explore`, `search`, `read`, `edit`, `run` or another."""

    text: str
    kind: str = OTHER


_TEXTS = {
    "explore": (
        "Get an overview of this repository before you change anything.",
        "What is in the folder src? Look at its structure first.",
        "I have no idea how this project is laid out. Find out.",
        "List the files of the current folder.",
        "Which modules does the package have? Look for yourself.",
        "Explore the tests folder, two levels deep.",
        "Begin by looking around in the repository.",
        "Show me the layout of the folder docs/guide.",
    ),
    "search": (
        "Find where the function parse_header is defined.",
        "Search the code for all uses of RetryPolicy.",
        "Where is the environment variable APP_TOKEN read?",
        'Find every file that contains the text "TODO".',
        "Which tests mention the class SessionStore? Search for it.",
        "grep the folder src for 'raise ValueError'.",
        "Locate the definition of the constant MAX_DEPTH.",
        "Search for the error message 'connection was closed early' in the sources.",
    ),
    "read": (
        "Read the file src/app/main.py.",
        "Show me lines 40 to 80 of src/app/server.py.",
        "What does the function at line 120 of lib/cache.py do? Open the file.",
        "Open README.md and tell me how to install this.",
        "Look at the beginning of tests/test_api.py, the first 30 lines.",
        "Read pyproject.toml and name the dependencies.",
        "Open config/settings.yaml.",
        "View src/models/user.py from line 10 to line 25.",
    ),
    "edit": (
        "In src/app/main.py, rename the variable cnt to count. Make the change.",
        "Fix the off-by-one error in line 12 of lib/pages.py: `<=` must be `<`.",
        "Add a docstring to the function load in src/io.py.",
        "Create the file notes.txt with the single line 'hello'.",
        "Delete the unused import os from src/app/cli.py.",
        "Change the default timeout in config/settings.yaml from 10 to 30.",
        "Move the file utils/old.py to utils/legacy.py.",
        "Append the line 'build/' to .gitignore.",
    ),
    "run": (
        "Run the test suite and report what fails.",
        "Which version of Python is installed here? Check.",
        "Run the script scripts/build.sh.",
        "Compute 2**61 - 1 modulo 97 by running code.",
        "Execute `git status` in the repository.",
        "Check whether port 8080 is in use on this machine.",
        "Run only tests/test_api.py, verbosely.",
        "How much disk space is left? Run a command to find out.",
    ),
}

INTENTS = tuple(Intent(text, kind) for kind, texts in _TEXTS.items() for text in texts)


def read_intents(path: Path) -> list[Intent]:
    """Read intents from a file. Each line is a text, or a JSON object `{"text": ..., "kind": ...}`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error
    intents = [_read(line.strip(), f"{str(path)!r}, line {at}") for at, line in enumerate(lines, 1) if line.strip()]
    if not intents:
        raise UsageError(f"{str(path)!r} has no intents: write one in each line")
    return list(dict.fromkeys(intents))


def _read(line: str, where: str) -> Intent:
    if not line.startswith("{"):
        return Intent(line)
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}") from error
    text, kind = (data.get("text"), data.get("kind", OTHER)) if is_object(data) else (None, None)
    if not isinstance(text, str) or not text.strip() or not isinstance(kind, str):
        raise UsageError(f'{where}: write {{"text": ..., "kind": ...}}')
    return Intent(text, kind)


# The questions of each stage.


Stage = Literal["intent", "targeted", "list", "forced", "describe", "defined"]

TARGETED = (
    "{text} Do it now, with the tool that you would use, and give it all the arguments that it takes.",
    "{text} Make exactly one tool call for it, with precise arguments. Do not answer in words.",
)
LISTS = (
    "List the names of all tools that you can call, one in each line, without explanations.",
    "Which tools do you have for working in a repository? Give their exact names.",
    "What are the tools that you were trained to use? Name each with its namespace, if it has one.",
    "Name every function that you can call for files, searches, edits and commands.",
)
FORCED = (
    "Call the tool `{name}` now. Make up fitting arguments; answer with nothing but the call.",
    "Show that you can use `{name}`: make one call of it, with realistic arguments.",
    "Your next message must be a call of `{name}` in a Python repository.",
)
DESCRIPTIONS = (
    "Describe the tool `{name}`: list each of its parameters by name, with its type and what it does.",
    "Write the JSON Schema of the parameters of the tool `{name}`.",
    "Which arguments does `{name}` take? Name each, and say whether it is required.",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the model in one stage. `repeat` is 0 when the question is first asked, then 1, and so on."""

    stage: Stage
    prompt: str
    repeat: int
    kind: str = ""
    subject: str = ""
    """The tool that the question is about, or the place where tools are defined: `system`, `developer` or `request`."""
    tools: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def key(self) -> str:
        """A digest of the question, used as the key of the question's sample in the log."""
        asked = [self.stage, self.prompt, self.repeat, self.subject, list(self.tools), dict(self.options)]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:20]


def intent_questions(intents: Sequence[Intent], repeats: int) -> list[Question]:
    """Return the texts of the intents as questions without tool definitions, each `repeats` times."""
    return [Question("intent", own.text, repeat, own.kind) for repeat in range(repeats) for own in intents]


def targeted_questions(intents: Sequence[Intent], repeats: int) -> list[Question]:
    """Return questions that contain the texts of the intents, and also ask for a call with precise arguments."""
    return [
        Question("targeted", form.format(text=own.text), repeat, own.kind)
        for repeat in range(repeats)
        for own in intents
        for form in TARGETED
    ]


def list_questions(repeats: int) -> list[Question]:
    """Return questions that ask for the names of the model's tools."""
    return [Question("list", text, repeat) for repeat in range(repeats) for text in LISTS]


def forced_questions(name: str, repeats: int) -> list[Question]:
    """Return questions that ask the model to call the tool `name`."""
    return [Question("forced", text.format(name=name), n, subject=name) for n in range(repeats) for text in FORCED]


def description_questions(name: str, repeats: int) -> list[Question]:
    """Return questions that ask for the parameters of the tool `name`."""
    return [
        Question("describe", text.format(name=name), n, subject=name) for n in range(repeats) for text in DESCRIPTIONS
    ]


def defined_questions(
    intents: Sequence[Intent],
    repeats: int,
    tools: Sequence[Mapping[str, Any]],
    placement: str,
    options: Mapping[str, Any],
) -> list[Question]:
    """Return the texts of the intents as questions whose requests define `tools`, each `repeats` times.

    `placement` says where the tools are defined, and `options` are the promptools options that put them there.
    """
    return [
        Question("defined", own.text, repeat, own.kind, placement, tools, options)
        for repeat in range(repeats)
        for own in intents
    ]


# Texts of reasoning from logs of agents: tapes, trajectories, and other JSON lines.
#
# All logs are read in the same way. An object at any depth that has a text under `reasoning`, `reasoning_content` or
# `thinking` is a step of an agent.


KIND = "log"
FIELDS = ("reasoning", "reasoning_content", "thinking")
SUFFIXES = frozenset({".json", ".jsonl", ".tape", ".traj", ".ndjson"})
MAX_CHARACTERS = 4000
"""Maximum number of characters of a reasoning text. A longer text loses its beginning, because its end leads to the
call."""
MAX_DEPTH = 40


def read_logs(folder: Path) -> list[Intent]:
    """Return the distinct reasoning texts in all agent logs under a folder, each as an `Intent`.

    Raises `UsageError` if the logs contain no reasoning.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a folder")
    texts: dict[str, None] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file()):
        for document in _documents(path):
            texts.update(dict.fromkeys(_reasoning(document)))
    if not texts:
        raise UsageError(f"no log in {str(folder)!r} holds reasoning; the keys that are read are {', '.join(FIELDS)}")
    return [Intent(text, KIND) for text in texts]


def _documents(path: Path) -> Iterator[Any]:
    """Yield the content of a JSON file. If the file is not a single JSON document, yield each line that is JSON."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        for line in text.split("\n"):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _reasoning(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if is_object(value):
        texts = [text.strip() for text in map(value.get, FIELDS) if isinstance(text, str)]
        yield from (text[-MAX_CHARACTERS:] for text in texts[:1] if text)
        for own in value.values():
            yield from _reasoning(own, depth + 1)
    elif is_array(value):
        for own in value:
            yield from _reasoning(own, depth + 1)
