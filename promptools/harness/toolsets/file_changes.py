"""Changes to files in a folder: all of them are made, or none.

Nothing outside of the folder is read or written, even if another process moves files and links at the same time. Each
path is resolved once, and must lead to a place inside the folder. The resolved path is then opened from the folder
down, directory by directory, without following links. New content is first written to temporary files, which reveals
full disks and missing permissions. Then each old file is renamed, and the new file takes its name. If any of this
fails, all names are restored.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from promptools.errors import UsageError, clip
from promptools.harness.toolsets.patch_format import PatchError

DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
REGULAR = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
NEW_FILE_MODE = 0o666
PERMISSIONS = 0o777
"""The permission bits that a changed file keeps. As with write(2), a change clears the setuid and setgid bits."""
MAX_FOLDERS = 100
MAX_FILE_BYTES = 64 << 20
FORBIDDEN = ".git"
"""The name of git's folder. No patch may change the files in this folder, because git runs some of them (the hooks)."""

Undo: TypeAlias = "list[Callable[[], object]]"


@dataclass(frozen=True, slots=True)
class FileState:
    """The content of a file, and its permissions. If `mode` is None, the file gets the permissions of a new file."""

    data: bytes
    mode: int | None = None


class PatchedFolder:
    """Collects changes to the files in a folder. `commit` then writes all of them, or none."""

    def __init__(self, root: Path) -> None:
        if os.open not in os.supports_dir_fd:
            raise UsageError("patches are applied on POSIX systems only: files cannot be opened safely here")
        try:
            self._root = Path(os.path.realpath(root, strict=True))
            self._root_fd = os.open(self._root, os.O_RDONLY | DIRECTORY)
        except (OSError, ValueError) as error:
            raise UsageError(f"{str(root)!r} is not a folder that can be opened: {error}") from error
        self._before: dict[PurePosixPath, FileState | None] = {}
        self._after: dict[PurePosixPath, FileState | None] = {}

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root_fd)

    def resolve(self, path: str, *, link: bool = False) -> PurePosixPath:
        """Return a path relative to the folder, with symbolic links resolved; raise `PatchError` if it leads outside.

        A path that is itself a symbolic link is accepted only if `link` is true.
        """
        pure = PurePosixPath(path)
        if "\0" in path or not pure.parts:
            raise PatchError(f"{path!r} is not the path of a file.")
        if pure.is_absolute():
            inside = pure.relative_to(self._root) if pure.is_relative_to(self._root) else PurePosixPath(pure.name)
            raise PatchError(f"{path!r} is absolute; write a path relative to the root folder, such as {inside}.")
        if ".." in pure.parts:
            raise PatchError(f"{path!r} has '..' in it; write a path relative to the root folder, without '..'.")
        if len(pure.parts) > MAX_FOLDERS:
            raise PatchError(f"{clip(path)!r} is more than {MAX_FOLDERS} folders deep; choose a shorter path.")
        try:
            real = Path(os.path.realpath(self._root / pure))
            is_link = (self._root / pure).is_symlink()
        except RecursionError:
            raise PatchError(f"{path!r} cannot be a path: too many links lead to each other.") from None
        except (OSError, ValueError) as error:
            raise PatchError(f"{path!r} cannot be a path: {error}.") from error
        if not real.is_relative_to(self._root) or real == self._root:
            raise PatchError(f"{path!r} leads outside of the root folder by a symbolic link; it cannot be changed.")
        resolved = PurePosixPath(real.relative_to(self._root))
        if any(part.lower() == FORBIDDEN for part in (*pure.parts, *resolved.parts)):
            raise PatchError(f"{path!r} is in a {FORBIDDEN} folder; these files cannot be changed.")
        if is_link and not link:
            raise PatchError(f"{path!r} is a symbolic link to {str(resolved)!r}; name that file instead.")
        return resolved

    def read(self, path: PurePosixPath) -> FileState | None:
        """Return a file's content after the changes so far; None if the file does not exist."""
        if path not in self._after:
            self._before[path] = self._after[path] = self._read(path)
        return self._after[path]

    def before(self, path: PurePosixPath) -> FileState | None:
        """Return the content that a file on disk had when it was first read.

        Return None if the file was not read, or did not exist.
        """
        return self._before.get(path)

    def change(self, path: PurePosixPath, state: FileState | None) -> None:
        """Set a file's new content; None removes the file."""
        if state is not None:
            for parent in path.parents[:-1]:
                if self.read_kind(parent) == "file":
                    raise PatchError(f"{str(path)!r} cannot be: {str(parent)!r} is a file, not a folder.")
        self._after[path] = state

    def read_kind(self, path: PurePosixPath) -> str:
        """Return what a path leads to after the changes so far: `file`, `folder`, or an empty string for nothing."""
        if path in self._after:
            return "file" if self._after[path] else ""
        try:
            with _Parent(self._root_fd, path) as parent:
                mode = os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            raise PatchError(f"{str(path)!r} cannot be looked up: {error.strerror}.") from error
        return "folder" if stat.S_ISDIR(mode) else "file"

    def _read(self, path: PurePosixPath) -> FileState | None:
        try:
            with _Parent(self._root_fd, path) as parent:
                file = os.open(path.name, os.O_RDONLY | REGULAR, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise PatchError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                what = "folder" if stat.S_ISDIR(status.st_mode) else "special file"
                raise PatchError(f"{str(path)!r} is a {what}, not a text file.")
            if status.st_size > MAX_FILE_BYTES:
                raise PatchError(f"{str(path)!r} is too large: more than {MAX_FILE_BYTES >> 20} MiB.")
            with os.fdopen(file, "rb", closefd=False) as opened:
                return FileState(opened.read(), stat.S_IMODE(status.st_mode) & PERMISSIONS)
        finally:
            os.close(file)

    def similar(self, path: PurePosixPath) -> list[str]:
        """Return all names in the folder where the missing `path` should be, so that a similar name can be suggested.

        Return an empty list if the folder cannot be read.
        """
        try:
            with _Parent(self._root_fd, path) as parent, os.scandir(parent) as entries:
                return sorted(entry.name for entry in entries)
        except OSError:
            return []

    def commit(self) -> list[str]:
        """Write all changes. If one of them fails, undo the others and raise `PatchError`.

        Returns the names of old files that could not be removed afterwards.
        """
        changed = {path: state for path, state in self._after.items() if state != self._before.get(path)}
        undo: Undo = []
        kept: list[tuple[PurePosixPath, str]] = []
        path = PurePosixPath()
        try:
            written: dict[PurePosixPath, str] = {}
            for path, state in changed.items():
                if state:
                    written[path] = self._write_temporary(path, state, undo)
            for path in changed:
                if self._before.get(path):
                    kept.append((path, self._rename(path, path.name, _temporary_name(), undo)))
                if path in written:
                    self._rename(path, written[path], path.name, undo)
        except BaseException as error:
            self._undo(undo)
            if isinstance(error, OSError):
                raise PatchError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
            raise
        return [str(path.with_name(name)) for path, name in kept if not self._removed(path, name)]

    def _undo(self, undo: Undo) -> None:
        failed: list[OSError] = []
        for step in reversed(undo):
            try:
                step()
            except OSError as error:
                failed.append(error)
        if failed:
            raise PatchError(f"a change failed and could not be undone: {failed[0]}", changed=True) from failed[0]

    def _write_temporary(self, path: PurePosixPath, state: FileState, undo: Undo) -> str:
        """Write the new content to a temporary file in the same folder; return its name."""
        name = _temporary_name()
        for folder in reversed(path.parents[:-1]):
            self._make_folder(folder, undo)
        with _Parent(self._root_fd, path) as parent:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | REGULAR
            mode = NEW_FILE_MODE if state.mode is None else state.mode
            descriptor = os.open(name, flags, mode, dir_fd=parent)
        undo.append(lambda: self._unlink(path, name))
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(state.data)
            if state.mode is not None:
                os.fchmod(descriptor, state.mode)
        return name

    def _make_folder(self, folder: PurePosixPath, undo: Undo) -> None:
        with _Parent(self._root_fd, folder) as parent:
            try:
                os.mkdir(folder.name, dir_fd=parent)
            except FileExistsError:
                return
        undo.append(lambda: self._remove_folder(folder))

    def _remove_folder(self, folder: PurePosixPath) -> None:
        with _Parent(self._root_fd, folder) as parent:
            os.rmdir(folder.name, dir_fd=parent)

    def _rename(self, path: PurePosixPath, old: str, new: str, undo: Undo | None = None) -> str:
        """Rename a file in the folder of `path`; return its new name."""
        with _Parent(self._root_fd, path) as parent:
            os.rename(old, new, src_dir_fd=parent, dst_dir_fd=parent)
        if undo is not None:
            undo.append(lambda: self._rename(path, new, old))
        return new

    def _unlink(self, path: PurePosixPath, name: str) -> None:
        with _Parent(self._root_fd, path) as parent:
            os.unlink(name, dir_fd=parent)

    def _removed(self, path: PurePosixPath, name: str) -> bool:
        try:
            self._unlink(path, name)
        except OSError:
            return False
        return True


class _Parent:
    """A context manager that opens the folder that contains `path`, and yields the folder's file descriptor.

    No links are followed.
    """

    def __init__(self, root: int, path: PurePosixPath) -> None:
        self.descriptor = os.dup(root)
        for part in path.parts[:-1]:
            try:
                inner = os.open(part, os.O_RDONLY | DIRECTORY, dir_fd=self.descriptor)
            finally:
                os.close(self.descriptor)
            self.descriptor = inner

    def __enter__(self) -> int:
        return self.descriptor

    def __exit__(self, *exc_info: object) -> None:
        os.close(self.descriptor)


def _temporary_name() -> str:
    return f".promptools-patch-{secrets.token_hex(8)}"
