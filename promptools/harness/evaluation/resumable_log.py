"""A log from which a run can be resumed. Each line is JSON.

The first line has the settings of the run, and each line after it is a row. A line that was cut off when the process
ended is skipped.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from promptools.errors import UsageError
from promptools.json_values import is_object, try_json

SETTINGS = "settings"


class ResumableLog(ABC):
    """Base class of logs. If `path` is given, the rows are also written to this file.

    If the file exists, its rows are read. Raises `UsageError` if the file's settings differ from `settings`.
    """

    PLACE = "file"
    """The word that error messages use for the location of the log, which the user chose: `file` or `folder`."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._known = False
        self._file: IO[str] | None = None
        self.settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        if path is None:
            return
        complete = self._read(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
        if not complete:
            self._file.write("\n")
        if not self._known:
            self.write({SETTINGS: self.settings})

    @abstractmethod
    def add(self, row: dict[str, Any]) -> None:
        """Add a row that was read from the file, unless the row has an unknown format."""

    def _read(self, path: Path) -> bool:
        """Read the rows of the file; return whether its last line is complete."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return True
        except OSError as error:
            raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
        for line in text.split("\n"):
            data = try_json(line)
            if is_object(data) and SETTINGS in data:
                self._check_settings(data[SETTINGS])
            elif is_object(data) and self._known:
                self.add(data)
        if text.strip() and not self._known:
            raise UsageError(f"{str(path)!r} is not the log of a run; choose another {self.PLACE}")
        return not text or text.endswith("\n")

    def _check_settings(self, known: Any) -> None:
        self._known = True
        if known == self.settings:
            return
        names = sorted({*self.settings, *known} if is_object(known) else self.settings)
        different = [
            f"{name} {known.get(name)!r}, and now {self.settings.get(name)!r}"
            for name in names
            if is_object(known) and known.get(name) != self.settings.get(name)
        ]
        raise UsageError(
            f"{str(self._path)!r} is the log of another run: {'; '.join(different) or 'its settings cannot be read'}."
            f" Choose another {self.PLACE}, or the same settings"
        )

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row to the file immediately, if the log has a file."""
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
