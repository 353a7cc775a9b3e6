"""The tools of `repo_browser`: they list folders, search and read files, inside the workspace only.

They open files only through `WorkspaceFiles`, so no path leads out of the workspace.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import regex

from promptools.errors import UsageError, clip
from promptools.harness.sandbox import Sandbox, SandboxError
from promptools.harness.sandbox.processes import shorten

# Files of the workspace, opened so that no path leads out of it.
#
# Paths come from a model, and files from commands that the model ran. So there may be symbolic links to anywhere, and a
# command that is still running may exchange a folder for a link at any moment. A path is first resolved with all its
# links, and the result must be inside. Then it is opened folder by folder, each relative to the folder before it, and
# never through a link: a folder that was exchanged meanwhile is refused. Pipes and devices are refused too, since
# opening one may wait forever.


SKIPPED_FOLDERS = frozenset((
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache",
))  # fmt: skip
"""Large, generated folders. Their names are listed, but their contents are listed or searched only if a call names such
a folder as its path."""

MAX_DEPTH = 100
"""Maximum depth to which folders are listed or searched. It also limits the number of folders that are open at the same
time, because a folder stays open while the folders in it are read."""

Parts = tuple[str, ...]
"""The parts of a path inside the workspace, after links were resolved."""


class PathError(ValueError):
    """A path leads out of the workspace, or to something that cannot be read; the message is for the model."""


class WorkspaceFiles:
    """Opens the files below `root`, the folder that commands see at the path `workspace`."""

    def __init__(self, root: Path, workspace: str) -> None:
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise UsageError("the tools for files need a POSIX system: elsewhere a path cannot be kept inside a folder")
        self.root = root
        self._workspace = workspace

    def locate(self, path: str) -> Parts:
        """Return the resolved parts of a path; raise `PathError` if it leads outside the workspace or does not exist.

        A relative path starts in the workspace. An absolute path must be inside the workspace. It may begin with the
        path of the workspace as commands see it, or with the path of the workspace on this machine.
        """
        if "\0" in path:
            raise PathError("a path cannot contain NUL")
        relative = self._relative(path.strip())
        try:
            resolved = (self.root / relative).resolve(strict=True)
        except FileNotFoundError:
            raise PathError(f"{clip(path)!r} does not exist") from None
        except RecursionError:
            raise PathError(f"{clip(path)!r} cannot be resolved: too many links lead to each other") from None
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
        """Open a folder and yield its descriptor; raise `PathError` if it is not a folder."""
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
        """Open a file and yield its descriptor; raise `PathError` if it is not a regular file."""
        if not parts:
            raise PathError(f"{shown(parts)!r} is a folder")
        with self.open_folder(parts[:-1]) as folder:
            descriptor = open_at(folder, parts[-1], os.O_NONBLOCK, shown(parts))
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise PathError(f"{shown(parts)!r} is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}")
            yield descriptor
        finally:
            os.close(descriptor)

    def is_folder(self, parts: Parts) -> bool:
        """Return whether a path leads to a folder."""
        return self.root.joinpath(*parts).is_dir()


def open_at(folder: int, name: str, flags: int, path: str) -> int:
    """Open `name` in a folder for reading without following links; `path` is for the message of a `PathError`."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        raise PathError(f"{path!r} cannot be opened: {error.strerror}") from None


def shown(parts: Parts) -> str:
    """Return a path in the form in which the model sees it."""
    return "/".join(parts) or "."


# `print_tree` and `list_dir`: the names below a folder.


DEFAULT_DEPTH = 3
MAX_PER_FOLDER = 200
"""Maximum number of names that are listed for one folder."""
MAX_ENTRIES = 5000
"""Maximum number of names that are listed in total."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, folder or link in a list, with the entries below it."""

    name: str
    is_folder: bool = False
    link: str | None = None
    inner: tuple[_Entry, ...] = ()
    note: str = ""
    """A note for the model about names that are not listed, such as `[not listed]`; empty if there are none."""


class FolderLister:
    """Lists folders of the workspace; links are shown but not followed."""

    def __init__(self, files: WorkspaceFiles, max_output: int) -> None:
        self._files = files
        self._max_output = max_output

    def print_tree(self, path: str = "", depth: float = DEFAULT_DEPTH, **_: Any) -> str:
        """Return the tree of names below a folder, `depth` levels deep (at most `MAX_DEPTH`)."""
        parts, entries = self._read(path, depth)
        lines = [shown(parts), *_branches(entries, "")]
        folders, files = _count(entries)
        return shorten("\n".join(lines), self._max_output) + f"\n\n{folders} folders, {files} files"

    def list_dir(self, path: str = "", depth: float = 1, **_: Any) -> str:
        """Return the paths below a folder, one on each line, `depth` levels deep (at most `MAX_DEPTH`)."""
        parts, entries = self._read(path, depth)
        lines = list(_paths(entries, "".join(f"{part}/" for part in parts)))
        return shorten("\n".join(lines), self._max_output) if lines else "[the folder is empty]"

    def _read(self, path: str, depth: float) -> tuple[Parts, tuple[_Entry, ...]]:
        levels = int(max(1, min(depth, MAX_DEPTH)))
        note = "[deeper folders are not listed: name one as the path]" if depth > MAX_DEPTH else ""
        parts = self._files.locate(path)
        if not self._files.is_folder(parts):
            raise PathError(f"{shown(parts)!r} is not a folder; read it with open_file")
        with self._files.open_folder(parts) as folder:
            return parts, _read_folder(folder, levels, _Room(MAX_ENTRIES, note), shown(parts))


class _Room:
    """Counts how many more names may be listed. `too_deep` is the note for folders that are too deep to be listed."""

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
    """Return the number of folders and the number of files, on all levels."""
    folders = files = 0
    for entry in entries:
        inner_folders, inner_files = _count(entry.inner)
        folders += inner_folders + entry.is_folder
        files += inner_files + bool(entry.name and not entry.is_folder)
    return folders, files


# `open_file`: the lines of a file.


MAX_LINE = 2000
"""Maximum number of characters of a line that are shown."""
MAX_READ = 1 << 27
"""Maximum number of bytes of a file that are read to count its lines."""
_LOOKED_AT = 8192
"""Number of bytes at the beginning of a file that are checked. If there is a NUL among them, the file is not text."""


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
        """Return the lines of a file from `line_start` to `line_end`, as many as fit into the maximum output."""
        first = max(int(line_start), 1) if line_start is not None else 1
        last = int(line_end) if line_end is not None and line_end > 0 else None
        if last is not None and last < first:
            raise ValueError(f"line_end {last} is before line_start {first}")
        parts = self._files.locate(path)
        with self._files.open_file(parts) as descriptor, os.fdopen(os.dup(descriptor), "rb") as stream:
            beginning = stream.read(_LOOKED_AT)
            size = os.fstat(descriptor).st_size
            if b"\0" in beginning:
                return f"[{shown(parts)} is not text: {size} bytes]"
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
    """Yield the lines of a file. At most `MAX_READ` bytes are read, since the file may be endless."""
    left = MAX_READ
    while left > 0 and (line := stream.readline(left)):
        left -= len(line)
        yield line


def _decode(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    if len(text) <= MAX_LINE:
        return text
    return f"{text[:MAX_LINE]} [{len(text) - MAX_LINE} more characters in this line]"


# `search`: lines that match a regular expression, found by ripgrep in the sandbox, or here if the sandbox has no
# ripgrep.
#
# Both skip the same folders, disregard files such as .gitignore, and return `path:line:text`, sorted by path.


DEFAULT_RESULTS = 20
MAX_RESULTS = 1000
MAX_FOUND_LINE = 300
"""Maximum number of characters of a matching line that are shown."""
MAX_FILE = 1 << 24
"""The size in bytes of the largest file that is searched."""
SECONDS = 30.0
_RIPGREP_OUTPUT = 1 << 22


class FileSearch:
    """Searches files of the workspace."""

    def __init__(self, files: WorkspaceFiles, sandbox: Sandbox, max_output: int) -> None:
        self._files = files
        self._sandbox = sandbox
        self._max_output = max_output
        self._has_ripgrep: bool | None = None

    def search(self, path: str = "", query: str = "", max_results: float = DEFAULT_RESULTS, **_: Any) -> str:
        """Return up to `max_results` lines that match the regular expression `query`, in files at or below a path."""
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
        """Return the lines that ripgrep finds; None if ripgrep is missing or fails.

        At most `most` + 1 lines are returned. The additional line only shows that there are more than `most` matches.
        """
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
        if result.exit_code not in {0, 1}:  # ripgrep rejects the regular expression, or cannot read a file
            return None
        lines = result.output.split("\n")[: most + 1] if result.output else []
        return [_clip_line(line.removeprefix("./").removesuffix("\r")) for line in lines if line]

    def _search_here(self, parts: Parts, query: str, most: int, notes: list[str]) -> list[str]:
        try:
            pattern = regex.compile(query)
        except regex.error as error:
            pattern = regex.compile(regex.escape(query))
            notes.append(f"[the query is not a regular expression ({error}), so it was searched for literally]")
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
    """Yield matching lines with their numbers; raise `TimeoutError` after the deadline."""
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
    """Return whether `name` is a folder, and not a link to a folder."""
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _text_in(folder: int, name: str) -> str | None:
    """Return the content of a text file in a folder; None for anything else, including links."""
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
    return clip(line, MAX_FOUND_LINE)
