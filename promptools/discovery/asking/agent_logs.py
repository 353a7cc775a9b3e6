"""Reasoning strings from logs of agents: tapes, trajectories, and JSON Lines with `reasoning`.

A tape and its recorded messages, a trajectory of `promptools agent`, and rows of any other log are read alike: whatever
object holds a text under `reasoning`, `reasoning_content` or `thinking`, at any depth, is a step of an agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from promptools.discovery.asking.intents import Intent
from promptools.errors import UsageError
from promptools.json_values import is_array, is_object

KIND = "log"
FIELDS = ("reasoning", "reasoning_content", "thinking")
SUFFIXES = frozenset({".json", ".jsonl", ".tape", ".traj", ".ndjson"})
MAX_CHARACTERS = 4000
"""Longer reasoning is cut at its beginning: what comes last is closest to the call."""
MAX_DEPTH = 40


def read_logs(folder: Path) -> list[Intent]:
    """Return the reasoning strings of all logs in a folder and below it, each once; raise `UsageError` without any."""
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
    """Yield the JSON document of a file, or those of its lines; lines that are none are left out."""
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
