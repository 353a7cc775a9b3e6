"""The results so far, one row per line of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.models.ask import Row
from benchmarks.models.conversations.transcript import Transcript

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RowFile(Generic[R]):
    """A file of rows, which are dataclasses. Of several rows with the same key, the last counts."""

    path: Path
    of: Callable[[dict[str, Any]], R]
    key: Callable[[R], Hashable]

    def read(self) -> list[R]:
        """Return all rows; for each key, only the last."""
        if not self.path.exists():
            return []
        rows = (self.of(json.loads(line)) for line in self.path.read_text(encoding="utf-8").splitlines())
        return [*{self.key(row): row for row in rows}.values()]

    def add(self, row: R) -> None:
        """Append a row at once, so that it is kept whatever happens next."""
        with self.path.open("a", encoding="utf-8") as out:
            out.write(_line(row))

    def remove(self, drop: Callable[[R], bool]) -> None:
        """Delete the rows for which `drop` is true, and all rows that newer rows have replaced."""
        if self.path.exists():
            lines = [_line(row) for row in self.read() if not drop(row)]
            self.path.write_text("".join(lines), encoding="utf-8")


def _line(row: Any) -> str:
    return json.dumps(asdict(row), ensure_ascii=False) + "\n"


QUESTIONS = RowFile(
    Path(__file__).with_name("results.jsonl"),
    lambda row: Row(**row),
    lambda row: (row.model, row.way, row.question, row.digest),
)
"""The answers to questions. Their keys contain the digest of the question's text."""


def transcripts(path: Path) -> RowFile[Transcript]:
    """Return a file of transcripts. Their keys contain the digests of the conversation and of the prompt's words."""
    return RowFile(
        path, Transcript.from_dict, lambda row: (row.model, row.way, row.conversation, row.digest, row.words)
    )


CONVERSATIONS = transcripts(Path(__file__).with_name("conversations") / "transcripts.jsonl")
