"""What changed in a folder between two moments, as a unified diff.

No git is asked: commands of a model may have changed its settings, which name programs that it runs. The files of a
repository further down are shown as all others are; of its `.git` only that it changed.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from promptools.harness.sandbox.folder_walk import walk

MAX_FILE = 1 << 20
"""Bytes of a file whose changes are shown; of a larger one only that it changed."""
MAX_HELD = 256 * 2**20
"""Bytes of files that are held in memory; beyond it, only that a file changed is shown."""
_REPOSITORIES = frozenset({".git", ".hg", ".svn"})
_SKIPPED = frozenset({*_REPOSITORIES, "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})

State: TypeAlias = "tuple[int, int, bytes | None]"
"""Time of the last change, size, and content, if it is held."""


class FolderSnapshot:
    """The files of a folder at one moment."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files, self._repositories = _read(root), _read_repositories(root)

    def difference(self) -> str:
        """Return what has changed since then as a unified diff; empty if nothing has."""
        now = _read(self._root)
        parts: list[str] = []
        for name in sorted(self._files.keys() | now.keys()):
            before, after = self._files.get(name), now.get(name)
            if before != after and (before is None or after is None or before[1:] != after[1:] or before[2] is None):
                parts.append(_file_difference(name, before, after))
        return "".join([*parts, *self._changed_repositories()])

    def _changed_repositories(self) -> Iterator[str]:
        now = _read_repositories(self._root)
        for name in sorted(self._repositories.keys() | now.keys()):
            before, after = self._repositories.get(name), now.get(name)
            if before != after:
                look = "" if after is None else "; look at its hooks and settings before you run git there"
                yield f"{name}: {_what_happened(before, after)}, which is not shown{look}\n"


def _walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder without going into folders that are skipped."""
    for folder, names, entries in walk(root):
        yield folder, [*names], entries
        names[:] = [name for name in names if name not in _SKIPPED]


def _read(root: Path) -> dict[str, State]:
    files: dict[str, State] = {}
    held = 0
    for folder, names, entries in _walk(root):
        links = (name for name in names if Path(folder, name).is_symlink())
        for entry in (*entries, *links):
            path = Path(folder, entry)
            try:
                state = path.lstat()
                small = not path.is_symlink() and path.is_file() and state.st_size <= MAX_FILE
                content = path.read_bytes() if small and held + state.st_size <= MAX_HELD else None
            except OSError:
                continue  # it is gone, or may not be read
            held += len(content or b"")
            files[path.relative_to(root).as_posix()] = (state.st_mtime_ns, state.st_size, content)
    return files


def _read_repositories(root: Path) -> dict[str, int]:
    """Return a fingerprint of the `.git` of each repository below the root; sandboxes protect the root's own."""
    return {
        Path(folder, name).relative_to(root).as_posix(): _fingerprint(Path(folder, name))
        for folder, names, _ in _walk(root)
        for name in names
        if name in _REPOSITORIES and Path(folder) != root
    }


def _fingerprint(folder: Path) -> int:
    """Return a number that changes with the names, sizes and times of the files of a folder, within this process."""
    states: list[tuple[str, int, int]] = []
    for place, _, entries in walk(folder):
        for entry in entries:
            path = Path(place, entry)
            with contextlib.suppress(OSError):  # it is gone
                state = path.lstat()
                states.append((str(path), state.st_mtime_ns, state.st_size))
    return hash(frozenset(states))


def _file_difference(name: str, before: State | None, after: State | None) -> str:
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"{name}: {_what_happened(before, after)}\n"
    origin = "/dev/null" if before is None else f"a/{name}"
    target = "/dev/null" if after is None else f"b/{name}"
    lines = difflib.unified_diff(old, new, origin, target)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _what_happened(before: object, after: object) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _lines(state: State | None) -> list[str] | None:
    """Return the lines of a file; None if they cannot be shown, and none for a file that does not exist."""
    if state is None:
        return []
    content = state[2]
    if content is None or b"\0" in content:
        return None
    return content.decode("utf-8", "replace").splitlines(keepends=True)
