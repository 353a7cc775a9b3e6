"""`search`: lines that match a regular expression, found by ripgrep in the sandbox, or here if it has none.

Both skip the same folders, heed no ignore files, and return `path:line:text`, sorted by path.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

import regex

from promptools.errors import clip
from promptools.harness.sandbox import Sandbox, SandboxError
from promptools.harness.sandbox.processes import shorten
from promptools.toolsets.in_distribution.repo_browser.workspace_files import (
    MAX_DEPTH,
    SKIPPED_FOLDERS,
    Parts,
    PathError,
    WorkspaceFiles,
    open_at,
    shown,
)

DEFAULT_RESULTS = 20
MAX_RESULTS = 1000
MAX_LINE = 300
"""Characters of a line that are shown."""
MAX_FILE = 1 << 24
"""Bytes of a file that is searched here."""
SECONDS = 30.0
_RIPGREP_OUTPUT = 1 << 22
_LOOKED_AT = 8192


class FileSearch:
    """Searches files of the workspace."""

    def __init__(self, files: WorkspaceFiles, sandbox: Sandbox, max_output: int) -> None:
        self._files = files
        self._sandbox = sandbox
        self._max_output = max_output
        self._has_ripgrep: bool | None = None

    def search(self, path: str = "", query: str = "", max_results: float = DEFAULT_RESULTS, **_: Any) -> str:
        """Return the lines below a path that match, at most `max_results`."""
        if not query:
            raise ValueError("the query is empty")
        most = min(max(int(max_results), 1), MAX_RESULTS)
        parts = self._files.locate(path)
        lines, notes = self._by_ripgrep(parts, query, most), list[str]()
        if lines is None:
            lines = self._search_here(parts, query, most, notes)
        if len(lines) > most:
            notes.append(f"[only the first {most} results are shown; narrow the search, or raise max_results]")
        if not lines:
            notes.insert(0, "[no matches]")
        results = shorten("\n".join(lines[:most]), self._max_output)
        return "\n".join(filter(None, (results, *notes)))

    def _by_ripgrep(self, parts: Parts, query: str, most: int) -> list[str] | None:
        """Return at least `most` + 1 lines if there are so many; None if ripgrep cannot do it."""
        try:
            if self._has_ripgrep is None:
                self._has_ripgrep = self._sandbox.run(["rg", "--version"]).exit_code == 0
            if not self._has_ripgrep:
                return None
            options = [
                "--no-config",
                "--no-ignore",
                "--hidden",
                "--no-heading",
                "--color=never",
                "--crlf",
                "-nH",
                "--sort=path",
            ]
            options += [f"--glob=!**/{name}/" for name in sorted(SKIPPED_FOLDERS)]
            options += [f"--max-count={most + 1}", f"--max-filesize={MAX_FILE}", "--max-columns=10000"]
            options += ["--max-columns-preview", "-e", query, "--", f"./{shown(parts)}" if parts else "./"]
            result = self._sandbox.run(["rg", *options], timeout=SECONDS, max_output=_RIPGREP_OUTPUT)
        except SandboxError:
            return None
        if result.exit_code not in {0, 1}:  # not a regular expression to it, or a file that it cannot read
            return None
        lines = result.output.split("\n")[: most + 1] if result.output else []
        return [_clip_line(line.removeprefix("./").removesuffix("\r")) for line in lines if line]

    def _search_here(self, parts: Parts, query: str, most: int, notes: list[str]) -> list[str]:
        try:
            pattern = regex.compile(query)
        except regex.error as error:
            pattern = regex.compile(regex.escape(query))
            notes.append(f"[the query is no regular expression ({error}), so it was searched for as it is]")
        deadline = time.monotonic() + SECONDS
        lines: list[str] = []
        try:
            for path, text in self._texts(parts, notes):
                for number, line in _matches(pattern, text, deadline):
                    lines.append(_clip_line(f"{path}:{number}:{line}"))
                    if len(lines) > most:
                        return lines
        except TimeoutError:
            notes.append(f"[the search was ended after {SECONDS:g} seconds; narrow it]")
        return lines

    def _texts(self, parts: Parts, notes: list[str]) -> Iterator[tuple[str, str]]:
        """Yield the path and the content of each text file at or below a path."""
        if not self._files.is_folder(parts):
            with self._files.open_file(parts) as descriptor:
                text = _read_text(descriptor)
            if text is not None:
                yield shown(parts), text
            return
        with self._files.open_folder(parts) as folder:
            too_deep: list[str] = []
            yield from _texts_below(folder, parts, MAX_DEPTH, too_deep)
        if too_deep:
            notes.append(
                f"[folders more than {MAX_DEPTH} levels deep were not searched, such as {clip(too_deep[0])!r}]"
            )


def _matches(pattern: regex.Pattern[str], text: str, deadline: float) -> Iterator[tuple[int, str]]:
    """Yield the lines that match, with their numbers; raise `TimeoutError` after the deadline."""
    for number, line in enumerate(text.split("\n"), 1):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        shown_line = line.removesuffix("\r")
        if pattern.search(shown_line, timeout=left):
            yield number, shown_line


def _texts_below(folder: int, parts: Parts, depth: int, too_deep: list[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(os.listdir(folder)):
        inside = (*parts, name)
        if not _is_folder(folder, name):
            text = _text_in(folder, name)
            if text is not None:
                yield shown(inside), text
        elif depth <= 1:
            too_deep.append(shown(inside))
        elif name not in SKIPPED_FOLDERS:
            with contextlib.suppress(PathError):
                descriptor = open_at(folder, name, os.O_DIRECTORY, name)
                try:
                    yield from _texts_below(descriptor, inside, depth - 1, too_deep)
                finally:
                    os.close(descriptor)


def _is_folder(folder: int, name: str) -> bool:
    """Whether `name` is a folder, and no link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _text_in(folder: int, name: str) -> str | None:
    """Return the content of a text file in a folder; None for anything else, links among it."""
    try:
        descriptor = open_at(folder, name, os.O_NONBLOCK, name)
    except PathError:
        return None
    try:
        return _read_text(descriptor)
    finally:
        os.close(descriptor)


def _read_text(descriptor: int) -> str | None:
    size = os.fstat(descriptor).st_size
    if not 0 < size <= MAX_FILE:
        return None
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        try:
            beginning = stream.read(_LOOKED_AT)
            data = None if b"\0" in beginning else beginning + stream.read(MAX_FILE)
        except OSError:
            return None
    return None if data is None else data.decode("utf-8", "replace").removesuffix("\n")


def _clip_line(line: str) -> str:
    return clip(line, MAX_LINE)
