"""`open_file`: the lines of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from promptools.toolsets.in_distribution.repo_browser.workspace_files import Parts, PathError, WorkspaceFiles, shown

MAX_LINE = 2000
"""Characters of a line that are shown."""
MAX_READ = 1 << 27
"""Bytes that are read to count the lines of a file."""
_LOOKED_AT = 8192
"""Bytes at the beginning of a file by which it is text or not."""


class FileReader:
    """Reads files of the workspace."""

    def __init__(self, files: WorkspaceFiles, max_output: int) -> None:
        self._files = files
        self._max_output = max_output

    def open_file(
        self,
        path: str,
        line_start: float | None = None,
        line_end: float | None = None,
        line_numbers: bool = True,
        **_: Any,
    ) -> str:
        """Return the lines of a file from `line_start` to `line_end`, as many as the budget allows."""
        first = max(int(line_start), 1) if line_start is not None else 1
        last = int(line_end) if line_end is not None and line_end > 0 else None
        if last is not None and last < first:
            raise ValueError(f"line_end {last} is before line_start {first}")
        parts = self._files.locate(path)
        with self._files.open_file(parts) as descriptor, os.fdopen(os.dup(descriptor), "rb") as stream:
            beginning = stream.read(_LOOKED_AT)
            size = os.fstat(descriptor).st_size
            if b"\0" in beginning:
                return f"[{shown(parts)} is no text: {size} bytes]"
            stream.seek(0)
            return self._select(stream, parts, first, last, numbered=line_numbers)

    def _select(self, stream: Any, parts: Parts, first: int, last: int | None, *, numbered: bool) -> str:
        shown_lines: list[str] = []
        room, total, full = self._max_output, 0, False
        for total, line in enumerate(_lines(stream), 1):
            if full or total < first or (last is not None and total > last):
                continue
            text = _decode(line)
            entry = f"{total:6}\t{text}" if numbered else text
            room -= len(entry.encode()) + 1
            full = room < 0 and bool(shown_lines)
            if not full:
                shown_lines.append(entry)
        if total < first:
            if first == 1:
                return f"[{shown(parts)} is empty]"
            raise PathError(f"{shown(parts)!r} has {total} lines; there is no line {first}")
        end = first + len(shown_lines) - 1
        if full:
            wanted = min(last or total, total)
            shown_lines.append(f"[lines {end + 1} to {wanted} are not shown; the file has {total} lines]")
        return "\n".join(shown_lines)


def _lines(stream: Any) -> Iterator[bytes]:
    """Yield the lines of a file; one without end is cut, and so is a file without end."""
    left = MAX_READ
    while left > 0 and (line := stream.readline(left)):
        left -= len(line)
        yield line


def _decode(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    if len(text) <= MAX_LINE:
        return text
    return f"{text[:MAX_LINE]} [{len(text) - MAX_LINE} more characters in this line]"
