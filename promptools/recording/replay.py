"""Replay: read recorded rows again, and compare with what was read of them when they were written."""

from __future__ import annotations

import difflib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promptools
from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.recording.row_reading import read_row


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One row of a file of recordings."""

    path: Path
    line: int
    """Counted from 1."""
    data: Mapping[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """The file's name and the line, as in `20260101-120000-77.jsonl:3`."""
        return f"{self.path.name}:{self.line}"

    @property
    def expected(self) -> list[dict[str, Any]]:
        """What was read of each reply of the row."""
        return list(self.data["expected"])

    def read(self) -> list[dict[str, Any]]:
        """Return what is read now. Raises `UsageError` for a row that this version cannot read."""
        return read_row(self.data)

    def difference(self) -> str:
        """Return a unified diff of what was read and what is read now; empty if both are the same."""
        before, after = self.expected, self.read()
        if before == after:
            return ""
        lines = difflib.unified_diff(_lines(before), _lines(after), "recorded", "now", lineterm="")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A line that is no row."""

    path: Path
    line: int
    reason: str


def read_rows(path: str | os.PathLike[str]) -> Iterator[RecordedRow | BrokenRow]:
    """Yield the rows of a file, or of all `*.jsonl` files of a directory in the order of their names.

    Raises `UsageError` if there is no such file, or none in the directory.
    """
    for file in _files(Path(path)):
        for number, line in enumerate(_read(file).split(b"\n"), 1):
            if line.strip():
                yield _parse(file, number, line)


def update(path: Path) -> int:
    """Write what is read now into the rows of a file, and return how many changed; other lines stay as they are."""
    changed = 0
    lines: list[bytes] = []
    for number, line in enumerate(_read(path).split(b"\n"), 1):
        row = _parse(path, number, line) if line.strip() else None
        after = _updated(row) if isinstance(row, RecordedRow) else None
        changed += after is not None
        lines.append(line if after is None else after)
    _replace(path, b"\n".join(lines))
    return changed


def _updated(row: RecordedRow) -> bytes | None:
    """Return the line of a row that is read otherwise now, with what is read; None for any other row."""
    try:
        expected = row.read()
    except UsageError:
        return None
    if expected == row.expected:
        return None
    data = {**row.data, "promptools": promptools.__version__, "expected": expected}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _replace(path: Path, content: bytes) -> None:
    """Replace a file's content at once, so that nothing is lost if writing fails."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"there is no file or directory {str(path)!r}")
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise UsageError(f"{str(path)!r} holds no recording: no file there ends in .jsonl")
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes) -> RecordedRow | BrokenRow:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        return BrokenRow(path, number, f"no JSON: {clip(str(error))}")
    if not (is_object(data) and is_array(data.get("expected")) and is_array(data.get("replies"))):
        return BrokenRow(path, number, "no recorded reply: it lacks `replies` or `expected`")
    return RecordedRow(path, number, data)


def _lines(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=2).splitlines()
