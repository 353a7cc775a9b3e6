"""What users want of an agent in a repository, by kind of prompt; no intent names a tool."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptools.errors import UsageError
from promptools.json_values import is_object

OTHER = "other"


@dataclass(frozen=True, slots=True)
class Intent:
    """A prompt with its kind: `explore`, `search`, `read`, `edit`, `run`, or the file's own."""

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
    """Read a file of intents: a text in each line, or a JSON object `{"text": ..., "kind": ...}`."""
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
        raise UsageError(f"{where}: no JSON: {error}") from error
    text, kind = (data.get("text"), data.get("kind", OTHER)) if is_object(data) else (None, None)
    if not isinstance(text, str) or not text.strip() or not isinstance(kind, str):
        raise UsageError(f'{where}: write {{"text": ..., "kind": ...}}')
    return Intent(text, kind)
