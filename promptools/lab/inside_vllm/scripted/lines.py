"""What a prompt is answered with: the rules of `promptools.lab.script.Line`, read from a file that may change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """A reply: what it answers, and where."""

    cue: str | None
    says: str
    setting: str | None


class Script:
    """The lines in a JSON file, `[[cue, says, setting], ...]`; read again when the file is another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._lines: tuple[Line, ...] = ()

    def answer(self, prompt: str) -> str:
        """Give the reply to `prompt`; empty where the script has none."""
        state = self._path.stat()
        seen = (state.st_mtime_ns, state.st_ino, state.st_size)
        if seen != self._seen:
            self._lines = tuple(Line(*each) for each in json.loads(self._path.read_text(encoding="utf-8")))
            self._seen = seen
        return choose(prompt, self._lines)


def choose(prompt: str, lines: Sequence[Line]) -> str:
    """Give what the latest cue in `prompt` is answered with under its latest setting; empty where nothing is said."""
    cue = _latest(prompt, (line.cue for line in lines))
    setting = _latest(prompt, (line.setting for line in lines))
    said = {line.setting: line.says for line in lines if line.cue == cue}
    return said.get(setting, said.get(None, ""))


def _latest(prompt: str, phrases: Iterable[str | None]) -> str | None:
    """Give the phrase that stands last in `prompt`; of two that begin at one place, the longer."""
    told = sorted({phrase for phrase in phrases if phrase is not None}, key=len, reverse=True)
    if not told:
        return None
    found = re.findall("|".join(re.escape(phrase) for phrase in told), prompt)
    return found[-1] if found else None
