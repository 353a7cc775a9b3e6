"""Walk folders that are nested to any depth.

Commands may create such folders. Before Python 3.12, `os.walk` is recursive and would fail on them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder, top-down, with the names of its subfolders and of its other entries, as `os.walk` does.

    A folder that cannot be read, for example because its path is too long, is left out. A folder whose name the caller
    removes from the list is skipped. Links are never followed.
    """
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            continue
        folders = {entry.name: entry for entry in entries if _is_folder(entry)}
        names = list(folders)
        yield folder, names, [entry.name for entry in entries if entry.name not in folders]
        waiting += [folders[name].path for name in reversed(names) if not folders[name].is_symlink()]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to a folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False
