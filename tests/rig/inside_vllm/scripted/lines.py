"""Select the reply to a prompt: by the rules of `promptools.lab.script.ScriptedReply`, from a file that may change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class FileLine(NamedTuple):
    """A reply, and the phrases that select it."""

    cue: str | None
    says: str
    setting: str | None


class ScriptFile:
    """The lines in a JSON file, `[[cue, says, setting], ...]`; read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._lines: tuple[FileLine, ...] = ()

    def answer(self, prompt: str) -> str:
        """Return the reply to `prompt`; empty if the script has none."""
        state = self._path.stat()
        seen = (state.st_mtime_ns, state.st_ino, state.st_size)
        if seen != self._seen:
            self._lines = tuple(FileLine(*entry) for entry in json.loads(self._path.read_text(encoding="utf-8")))
            self._seen = seen
        return choose(prompt, self._lines)


def choose(prompt: str, lines: Sequence[FileLine]) -> str:
    """Return the reply for the latest cue in `prompt` with its latest setting; empty if there is none."""
    cue = _latest(prompt, (line.cue for line in lines))
    setting = _latest(prompt, (line.setting for line in lines))
    replies = {line.setting: line.says for line in lines if line.cue == cue}
    return replies.get(setting, replies.get(None, ""))


def _latest(prompt: str, phrases: Iterable[str | None]) -> str | None:
    """Return the last phrase in `prompt`; of two that begin at the same offset, the longer one."""
    ordered = sorted({phrase for phrase in phrases if phrase is not None}, key=len, reverse=True)
    if not ordered:
        return None
    matches = re.findall("|".join(re.escape(phrase) for phrase in ordered), prompt)
    return matches[-1] if matches else None
