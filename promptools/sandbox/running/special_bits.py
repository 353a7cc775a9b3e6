"""Removing setuid and setgid bits from files, where no filter of system calls keeps commands from setting them.

A shell with such a bit runs as its owner, for everyone on the machine who can reach it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from promptools.errors import clip
from promptools.sandbox.protocol import SandboxError

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_SPECIAL = stat.S_ISUID | stat.S_ISGID


@dataclass(slots=True)
class _Level:
    """A folder on the way down: which one it is, and the folders in it that are still to be visited."""

    name: str
    identity: tuple[int, int]
    waiting: list[str]


def clear_special_bits(root: Path) -> list[str]:
    """Clear the bits of all files below a folder in which no command runs any more; return their paths.

    A folder keeps its setgid bit, which says only which group new files belong to. Raises `SandboxError` for what
    cannot be cleared, after all the rest. Only one folder is open at a time, so none is too deep.
    """
    cleared: list[str] = []
    failed: list[str] = []
    levels: list[_Level] = []
    folder = os.open(root, _FOLDER)
    try:
        levels.append(_enter(folder, ".", cleared, failed, levels))
        while levels:
            if not levels[-1].waiting:
                levels.pop()
                folder = _ascend(folder, levels) if levels else folder
                continue
            name = levels[-1].waiting.pop()
            inner = _open_folder(folder, name)
            if inner is None:
                failed.append(_path(levels, name))
                continue
            os.close(folder)
            folder = inner
            levels.append(_enter(folder, name, cleared, failed, levels))
    finally:
        os.close(folder)
    if failed:
        raise SandboxError(
            f"a setuid bit that a command may have set in the workspace {str(root)!r} cannot be cleared: remove, as the"
            f" owner, {', '.join(repr(clip(path)) for path in failed[:3])}{', and others' if failed[3:] else ''}"
        )
    return cleared


def _enter(folder: int, name: str, cleared: list[str], failed: list[str], levels: list[_Level]) -> _Level:
    """Clear the bits of the files of a folder, and return it with the folders in it."""
    status = os.fstat(folder)
    level = _Level(name, (status.st_dev, status.st_ino), [])
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                level.waiting.append(entry.name)
                continue
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:  # removed by a program outside of the sandbox
                continue
            if stat.S_ISREG(mode) and mode & _SPECIAL:
                path = _path([*levels, level], entry.name)
                (cleared if _cleared(folder, entry.name, mode) else failed).append(path)
    return level


def _cleared(folder: int, name: str, mode: int) -> bool:
    try:
        os.chmod(name, stat.S_IMODE(mode) & ~_SPECIAL, dir_fd=folder)
    except OSError:  # it belongs to another user
        return False
    return True


def _open_folder(folder: int, name: str) -> int | None:
    """Open a folder; one that its owner may not list, though others may pass through it, is made readable first."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        try:
            os.chmod(name, 0o700, dir_fd=folder)
            return os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            return None


def _ascend(folder: int, levels: list[_Level]) -> int:
    """Close a folder and open the one that it is in."""
    status = os.stat("..", dir_fd=folder)
    if (status.st_dev, status.st_ino) != levels[-1].identity:
        raise SandboxError(f"the folder {clip(_path(levels, ''))!r} was moved while it was searched for setuid bits")
    above = os.open("..", _FOLDER, dir_fd=folder)
    os.close(folder)
    return above


def _path(levels: list[_Level], name: str) -> str:
    return "/".join([*(level.name for level in levels[1:]), name])
