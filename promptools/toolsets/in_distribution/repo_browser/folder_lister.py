"""`print_tree` and `list_dir`: the names below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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

DEFAULT_DEPTH = 3
MAX_PER_FOLDER = 200
"""Names of one folder that are listed."""
MAX_ENTRIES = 5000
"""Names that are listed at all."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name in a folder, with what is below it."""

    name: str
    is_folder: bool = False
    link: str | None = None
    inner: tuple[_Entry, ...] = ()
    note: str = ""
    """Why something is not listed."""


class FolderLister:
    """Lists folders of the workspace; links are shown, and not followed."""

    def __init__(self, files: WorkspaceFiles, max_output: int) -> None:
        self._files = files
        self._max_output = max_output

    def print_tree(self, path: str = "", depth: float = DEFAULT_DEPTH, **_: Any) -> str:
        """Return the tree of names below a folder, `depth` levels of it, up to `MAX_DEPTH`."""
        parts, entries = self._read(path, depth)
        lines = [shown(parts), *_branches(entries, "")]
        folders, files = _count(entries)
        return shorten("\n".join(lines), self._max_output) + f"\n\n{folders} folders, {files} files"

    def list_dir(self, path: str = "", depth: float = 1, **_: Any) -> str:
        """Return the paths below a folder, `depth` levels of them, up to `MAX_DEPTH`, one on each line."""
        parts, entries = self._read(path, depth)
        lines = list(_paths(entries, "".join(f"{part}/" for part in parts)))
        return shorten("\n".join(lines), self._max_output) if lines else "[the folder is empty]"

    def _read(self, path: str, depth: float) -> tuple[Parts, tuple[_Entry, ...]]:
        levels = int(max(1, min(depth, MAX_DEPTH)))
        note = "[deeper folders are not listed: name one as the path]" if depth > MAX_DEPTH else ""
        parts = self._files.locate(path)
        if not self._files.is_folder(parts):
            raise PathError(f"{shown(parts)!r} is no folder; read it with open_file")
        with self._files.open_folder(parts) as folder:
            return parts, _read_folder(folder, levels, _Room(MAX_ENTRIES, note), shown(parts))


class _Room:
    """How many names may still be listed, and the note on a folder that is too deep."""

    def __init__(self, left: int, too_deep: str) -> None:
        self.left = left
        self.too_deep = too_deep


def _read_folder(folder: int, depth: int, room: _Room, path: str) -> tuple[_Entry, ...]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    listed: list[_Entry] = []
    for entry in entries[:MAX_PER_FOLDER]:
        if room.left <= 0:
            break
        room.left -= 1
        listed.append(_read_entry(entry, folder, depth, room, path))
    if len(listed) < len(entries):
        listed.append(_Entry("", note=f"[{len(entries) - len(listed)} more are not listed]"))
    return tuple(listed)


def _read_entry(entry: os.DirEntry[str], folder: int, depth: int, room: _Room, path: str) -> _Entry:
    name = entry.name
    if entry.is_symlink():
        try:
            return _Entry(name, link=os.readlink(name, dir_fd=folder))
        except OSError:
            return _Entry(name)
    if not entry.is_dir(follow_symlinks=False):
        return _Entry(name)
    if depth <= 1:
        return _Entry(name, is_folder=True, note=room.too_deep)
    if name in SKIPPED_FOLDERS:
        return _Entry(name, is_folder=True, note="[not listed]")
    try:
        inner = open_at(folder, name, os.O_DIRECTORY, f"{path}/{name}")
    except PathError:
        return _Entry(name, is_folder=True, note="[cannot be read]")
    try:
        return _Entry(name, is_folder=True, inner=_read_folder(inner, depth - 1, room, f"{path}/{name}"))
    finally:
        os.close(inner)


def _branches(entries: tuple[_Entry, ...], indent: str) -> Iterator[str]:
    for number, entry in enumerate(entries, 1):
        last = number == len(entries)
        yield f"{indent}{'└── ' if last else '├── '}{_label(entry)}"
        yield from _branches(entry.inner, indent + ("    " if last else "│   "))


def _paths(entries: tuple[_Entry, ...], parent: str) -> Iterator[str]:
    for entry in entries:
        yield parent + _label(entry) if entry.name else entry.note
        yield from _paths(entry.inner, f"{parent}{entry.name}/")


def _label(entry: _Entry) -> str:
    name = entry.name.encode("utf-8", "replace").decode()
    kind = "/" if entry.is_folder else "" if entry.link is None else f" -> {entry.link}"
    return " ".join(filter(None, (name + kind, entry.note)))


def _count(entries: tuple[_Entry, ...]) -> tuple[int, int]:
    """Return the numbers of folders and of files."""
    folders = files = 0
    for entry in entries:
        inner_folders, inner_files = _count(entry.inner)
        folders += inner_folders + entry.is_folder
        files += inner_files + bool(entry.name and not entry.is_folder)
    return folders, files
