"""Apply patches in the V4A format to the files in a folder, and define the tool for this.

Either all changes of a patch are made, or none.
A patch is parsed (`patch_format`), its hunks are located in the files (`hunk_placement`), and the files are written
(`file_changes`).
"""

from __future__ import annotations

import difflib
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from promptools.harness.toolsets.agent_tool import AgentTool
from promptools.harness.toolsets.file_changes import FileState, PatchedFolder
from promptools.harness.toolsets.hunk_placement import FileText, join_lines, place_hunks
from promptools.harness.toolsets.patch_format import AddFile, DeleteFile, PatchError, UpdateFile, parse_patch
from promptools.types import Tool

MAX_NOTES = 20
EMPTY_PATCH = "*** Begin Patch\n*** End Patch\n"
MAX_UPDATES = 50
"""Maximum number of sections of a patch that may update the same file, because each section scans the whole file."""
NAMES = ("repo_browser.apply_patch", "apply_patch")
ALIASES = ("input", "diff", "unified_diff")


def apply_patch(root: Path, text: str) -> str:
    """Apply a patch in the V4A format to the files in `root`, and return a summary of the changes for the model.

    If there is any problem, no file is changed, and `PatchError` reports the problems with their lines in the patch.
    Files outside of `root`, and files in `.git`, are never touched.
    """
    patch = parse_patch(text)
    folder = PatchedFolder(root)
    try:
        application = _Application(folder)
        problems: list[str] = []
        for section in patch.sections:
            try:
                application.apply(section)
            except PatchError as error:
                problems += [
                    problem if problem.startswith("line ") else f"line {section.number}: {problem}"
                    for problem in error.problems
                ]
        if problems:
            raise PatchError(problems)
        left = folder.commit()
    finally:
        folder.close()
    notes = [*(f"{name!r} has old content and could not be removed" for name in left), *patch.notes, *application.notes]
    if len(notes) > MAX_NOTES:
        notes[MAX_NOTES:] = [f"and {len(notes) - MAX_NOTES} more notes"]
    return "\n".join(["Done.", *application.summary, *(f"Note: {note}" for note in notes)])


def main() -> None:
    """Run as the program `apply_patch` in sandboxes: apply the patch in the argument, or else on standard input."""
    data = os.fsencode(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin.buffer.read()
    try:
        told, code = apply_patch(Path.cwd(), data.decode("utf-8")), 0
    except (PatchError, UnicodeDecodeError) as error:
        told, code = str(error), 1
    sys.stdout.buffer.write(f"{told}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    sys.exit(code)


def patch_tool(root: Path, name: str = NAMES[0]) -> AgentTool:
    """Return the tool that applies patches to the files in `root`. It can be called by both names that gpt-oss uses."""

    def run(patch: str = EMPTY_PATCH, **_: Any) -> str:
        return apply_patch(root, patch)

    tool = Tool(
        name,
        "Changes files by a patch.",
        {"type": "object", "properties": {"patch": {"type": "string", "default": EMPTY_PATCH}}},
        dangerous=True,
        aliases=dict.fromkeys(ALIASES, "patch"),
        names=tuple(other for other in NAMES if other != name),
        free_text="patch",
    )
    return AgentTool(tool, run)


@dataclass(slots=True)
class _Application:
    folder: PatchedFolder
    summary: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    updates: Counter[PurePosixPath] = field(default_factory=Counter[PurePosixPath])

    def apply(self, section: AddFile | DeleteFile | UpdateFile) -> None:
        """Collect the changes of one section of a patch, which adds, removes or updates one file."""
        if isinstance(section, AddFile):
            self._add(section)
        elif isinstance(section, DeleteFile):
            path = self.folder.resolve(section.path)
            self._existing(path, section.path)
            self.folder.change(path, None)
            self.summary.append(f"D {path}")
        else:
            self._update(section)

    def _add(self, section: AddFile) -> None:
        path = self.folder.resolve(section.path)
        self._check_free(path, "use *** Update File, or *** Delete File before it.")
        before = self.folder.before(path)
        data = join_lines(section.lines, ["\n"] * len(section.lines))
        self.folder.change(path, FileState(data, before.mode if before else None))
        self.summary.append(f"A {path} (+{len(section.lines)})")

    def _update(self, section: UpdateFile) -> None:
        path = self.folder.resolve(section.path, link=section.move_to is None)
        target = path if section.move_to is None else self.folder.resolve(section.move_to)
        old = self._existing(path, section.path)
        if target != path:
            self._check_free(target, "*** Move to: needs a path that is free.")
        elif not section.hunks:
            raise PatchError(f"there is nothing to change in {section.path!r}; write a hunk that begins with @@.")
        self.updates[path] += 1
        if self.updates[path] > MAX_UPDATES:
            raise PatchError(f"{section.path!r} is updated more than {MAX_UPDATES} times; write one section for it.")
        text = FileText(old.data)
        edits = place_hunks(text.lines, section, self.notes)
        added, removed = sum(len(edit.lines) for edit in edits), sum(edit.end - edit.start for edit in edits)
        new = FileState(text.replace(edits), old.mode)
        if target != path:
            self.folder.change(path, None)
            self.summary.append(f"R {path} -> {target} (+{added} -{removed})")
        else:
            self.summary.append(f"M {path} (+{added} -{removed})")
        self.folder.change(target, new)
        if new == old and target == path:
            self.notes.append(f"line {section.number}: {section.path!r} stays as it was")

    def _check_free(self, path: PurePosixPath, advice: str) -> None:
        kind = self.folder.read_kind(path)
        if kind:
            raise PatchError(f"there is a {kind} {str(path)!r} already; {advice}")

    def _existing(self, path: PurePosixPath, name: str) -> FileState:
        state = self.folder.read(path)
        if state is not None:
            return state
        names = self.folder.similar(path)
        close = difflib.get_close_matches(path.name, names[:2000], n=3)
        there = f"; in its folder there are: {', '.join(close)}" if close else ""
        raise PatchError(f"there is no file {name!r}{there}.")
