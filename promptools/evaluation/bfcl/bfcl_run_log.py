"""The settings of a run, which must be the same when it goes on, and how promptools obtained each reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptools.errors import UsageError
from promptools.evaluation.bfcl.bfcl_process import LOG
from promptools.evaluation.resumable_log import ResumableLog
from promptools.types import Reply

FILE = "run.jsonl"


class BfclRunLog(ResumableLog):
    """The log in the folder of a run."""

    PLACE = "folder"

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.replies: Counter[str] = Counter()
        """How many replies there were in each mode, and how many with a call that the server missed or got wrong."""
        self.overflow_retries = 0
        """How many times the questions whose context overflowed were asked again."""
        super().__init__(folder / FILE, settings)

    def add(self, row: dict[str, Any]) -> None:
        """Count a reply, or a retry."""
        if "overflow_retry" in row:
            self.overflow_retries += 1
            return
        self.replies[f"in {row.get('mode')} mode"] += 1
        self.replies["with a repaired call"] += bool(row.get("repaired"))

    def record(self, reply: Reply) -> None:
        """Record how a reply was obtained; none of its text."""
        native = reply.trace.mode == "native"
        repaired = any(call.fixes or (native and call.dialect != "native") for call in reply.calls)
        row = {"mode": reply.trace.mode, "repaired": repaired}
        self.write(row)
        self.add(row)

    def record_overflow_retry(self) -> None:
        """Record that the questions whose context overflowed are asked again."""
        row = {"overflow_retry": self.overflow_retries + 1}
        self.write(row)
        self.add(row)


def check_folder(folder: Path) -> None:
    """Raise `UsageError` for a folder with files that are not of a run."""
    if folder.is_file():
        raise UsageError(f"{str(folder)!r} is a file; --output is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not ((folder / FILE).exists() or (folder / LOG).exists()):
        raise UsageError(f"{str(folder)!r} is not empty, and not the folder of a run; choose another")
