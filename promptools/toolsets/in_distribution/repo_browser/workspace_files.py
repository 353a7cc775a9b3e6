"""Files of the workspace, opened so that no path leads out of it.

Paths come from a model, and the files from commands that it ran: there may be symbolic links to anywhere, and a command
that still runs may exchange a folder for a link at any moment. So a path is first resolved with all its links, and has
to be inside. Then it is opened folder by folder, each relative to the one before and none of them through a link: what
was exchanged meanwhile is refused. Pipes and devices are refused too, as opening one may wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path, PurePosixPath

from promptools.errors import UsageError, clip

SKIPPED_FOLDERS = frozenset((
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache",
))  # fmt: skip
"""Folders that are named but not descended into, unless a path names them: generated, and large."""

MAX_DEPTH = 100
"""Levels of folders that are listed and searched: each is open while what is in it is read."""

Parts = tuple[str, ...]
"""A path inside the workspace, without links."""


class PathError(ValueError):
    """A path that leads out of the workspace, or to nothing that can be read; the message is for the model."""


class WorkspaceFiles:
    """The files below `root`, which commands see at `workspace`."""

    def __init__(self, root: Path, workspace: str) -> None:
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise UsageError("the tools for files need a POSIX system: elsewhere a path cannot be kept inside a folder")
        self.root = root
        self._workspace = workspace

    def locate(self, path: str) -> Parts:
        """Return what a path means; raise `PathError` if it is outside, or does not exist.

        A relative path begins in the workspace; an absolute one has to be in it, as commands or this machine see it.
        """
        if "\0" in path:
            raise PathError("a path cannot contain NUL")
        relative = self._relative(path.strip())
        try:
            resolved = (self.root / relative).resolve(strict=True)
        except FileNotFoundError:
            raise PathError(f"{clip(path)!r} does not exist") from None
        except RecursionError:
            raise PathError(f"{clip(path)!r} cannot be resolved: too many links lead to one another") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
            raise PathError(f"{clip(path)!r} cannot be resolved: {getattr(error, 'strerror', error)}") from None
        if not resolved.is_relative_to(self.root):
            raise self._outside(path)
        return resolved.relative_to(self.root).parts

    def _relative(self, path: str) -> PurePosixPath:
        given = PurePosixPath(path or ".")
        if not given.is_absolute():
            return given
        for root in (self._workspace, str(self.root)):
            if given.is_relative_to(root):
                return given.relative_to(root)
        raise self._outside(path)

    def _outside(self, path: str) -> PathError:
        return PathError(f"{clip(path)!r} is outside of {self._workspace!r}; give a path relative to that folder")

    @contextlib.contextmanager
    def open_folder(self, parts: Parts) -> Generator[int]:
        """Open a folder and yield its descriptor; raise `PathError` if it is none."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in parts:
                inner = open_at(descriptor, name, os.O_DIRECTORY, shown(parts))
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def open_file(self, parts: Parts) -> Generator[int]:
        """Open a file and yield its descriptor; raise `PathError` if it is no regular file."""
        if not parts:
            raise PathError(f"{shown(parts)!r} is a folder")
        with self.open_folder(parts[:-1]) as folder:
            descriptor = open_at(folder, parts[-1], os.O_NONBLOCK, shown(parts))
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise PathError(f"{shown(parts)!r} is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}")
            yield descriptor
        finally:
            os.close(descriptor)

    def is_folder(self, parts: Parts) -> bool:
        """Whether a path is a folder."""
        return self.root.joinpath(*parts).is_dir()


def open_at(folder: int, name: str, flags: int, path: str) -> int:
    """Open `name` in a folder for reading, and not through a link; `path` is for the message of a `PathError`."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        raise PathError(f"{path!r} cannot be opened: {error.strerror}") from None


def shown(parts: Parts) -> str:
    """Return a path as the model reads it."""
    return "/".join(parts) or "."
