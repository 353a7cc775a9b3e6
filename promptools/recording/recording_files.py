"""The files of recordings: JSON lines in a directory, rotated by size; the oldest are deleted beyond a limit.

Several processes may write to one directory, each to its own files, which only their owner can read. A file that
another process has deleted, as the oldest, is noticed before the next row is written.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from promptools.errors import UsageError

FILES = 10
"""The number of files that the limit is divided into."""
_NAME = re.compile(r"\d{8}-\d{6}-\d+(?:-\d+)?\.jsonl")


class RecordingFiles:
    """Appends lines to the current file of a directory that holds at most about `limit` bytes."""

    def __init__(self, directory: str | os.PathLike[str], limit: int) -> None:
        self.directory = Path(directory)
        self._limit = limit
        self._descriptor: int | None = None
        self._path: Path | None = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot record in {str(directory)!r}: {error.strerror}") from error
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise UsageError(f"cannot record in {str(directory)!r}: no permission to write there")

    def write(self, line: bytes) -> None:
        """Append a line. Raises `OSError`, after which the file may end in a part of it."""
        descriptor = self._current(len(line))
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def close(self) -> None:
        """Close the current file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._path = None

    def _current(self, size: int) -> int:
        if self._descriptor is not None:
            state = os.fstat(self._descriptor)
            if state.st_nlink and (not state.st_size or state.st_size + size <= self._limit // FILES):
                return self._descriptor
            self.close()
        self._delete_oldest()
        self._descriptor, self._path = self._open()
        return self._descriptor

    def _open(self) -> tuple[int, Path]:
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        number = 1
        while True:
            path = self.directory / f"{stem}{f'-{number}' if number > 1 else ''}.jsonl"
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), path
            except FileExistsError:
                number += 1

    def _delete_oldest(self) -> None:
        """Delete the oldest files until there is room for another."""
        files = [(path.stat(), path) for path in self.directory.iterdir() if _NAME.fullmatch(path.name)]
        files.sort(key=lambda item: (item[0].st_mtime_ns, item[1].name))
        total = sum(state.st_size for state, _ in files)
        for state, path in files:
            if total + self._limit // FILES <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= state.st_size
