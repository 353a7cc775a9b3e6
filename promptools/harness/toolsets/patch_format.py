"""The V4A patch format: the data of a patch, its sections and their hunks, and its parser.

    *** Begin Patch
    *** Add File: docs/new.md         a new file; each of its lines begins with +
    +# Title
    *** Delete File: old.py
    *** Update File: src/app.py
    *** Move to: src/main.py          optional: the file's new path
    @@ class App:                     optional: lines of the file above the hunk, outer to inner
    @@     def run(self):
             context                  a space, then a line of the file
    -        removed
    +        added
    *** End of File                   optional: the hunk is at the end of the file
    *** End Patch

Text outside of `*** Begin Patch` and `*** End Patch` does not belong to the patch: fences, a shell's here-document,
prose. It is skipped, with a note. A patch without its last line is an error, because it may have been cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from promptools.errors import PromptoolsError, clip
from promptools.json_values import is_object, try_json

# A patch as data: its sections, their hunks, and the error of a patch that cannot be applied.


MAX_PROBLEMS = 8
"""Maximum number of problems that one error describes."""


class PatchError(PromptoolsError):
    """A patch cannot be applied. `problems` lists the reasons with their lines in the patch.

    If `changed` is true, some changes were written, and undoing them failed. If not, no file was changed.
    """

    def __init__(self, problems: str | Sequence[str], *, changed: bool = False) -> None:
        self.changed = changed
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[:MAX_PROBLEMS])
        if len(self.problems) > MAX_PROBLEMS:
            shown.append(f"and {len(self.problems) - MAX_PROBLEMS} more problems")
        super().__init__("\n".join(shown if changed else ["No file was changed.", *shown]))


def quote(line: str) -> str:
    """Return a line quoted for an error message."""
    return f"`{clip(line, 120)}`"


@dataclass(frozen=True, slots=True)
class HunkLine:
    """A line of a hunk. `sign` is `-`, `+`, or a space for context; `number` is the line number in the patch."""

    sign: str
    text: str
    number: int


@dataclass(slots=True)
class Hunk:
    """A part of a file's update: neighboring lines to remove or add, and lines of context between and around them."""

    number: int
    """Line of the patch where the hunk begins."""
    headers: list[str] = field(default_factory=list[str])
    """The texts after `@@`, from the outer to the inner header. They are lines of the file above the hunk."""
    line_hint: int | None = None
    """The file's line, counted from 0, at which the hunk begins according to its header; None if the header does not
    say so. A header may state line numbers as in a unified diff: `@@ -12,3 +12,4 @@` gives 11."""
    lines: list[HunkLine] = field(default_factory=list[HunkLine])
    at_end: bool = False
    """Whether `*** End of File` follows, so that the hunk is at the end of the file."""

    @property
    def old(self) -> list[HunkLine]:
        """The lines that the file must contain: the context and the removed lines."""
        return [line for line in self.lines if line.sign != "+"]

    def without_blank_edges(self) -> Hunk:
        """Return the hunk without the blank context lines at its beginning and end.

        The model may have added these lines only as layout.
        """
        first, last = 0, len(self.lines)
        while first < last and self._is_blank_context(first):
            first += 1
        while last > first and self._is_blank_context(last - 1):
            last -= 1
        return Hunk(self.number, self.headers, self.line_hint, self.lines[first:last], self.at_end)

    def _is_blank_context(self, index: int) -> bool:
        line = self.lines[index]
        return line.sign == " " and not line.text.strip()


@dataclass(slots=True)
class AddFile:
    """The section of a patch that adds a file. `number` is the line of the patch where the section begins."""

    path: str
    number: int
    lines: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class DeleteFile:
    """The section of a patch that removes a file. `number` is the line of the patch where the section begins."""

    path: str
    number: int


@dataclass(slots=True)
class UpdateFile:
    """The section of a patch that changes lines of a file. If `move_to` is set, the file is also renamed.

    `number` is the line of the patch where the section begins.
    """

    path: str
    number: int
    move_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list[Hunk])


@dataclass(slots=True)
class Patch:
    """The sections of a patch in order, and notes on deviations from the format that were accepted."""

    sections: list[AddFile | DeleteFile | UpdateFile] = field(default_factory=list[AddFile | DeleteFile | UpdateFile])
    notes: list[str] = field(default_factory=list[str])


# Reading.


BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
SECTION = re.compile(r"\*\*\* ?(Add|Delete|Update) File:[ \t]*(.*)")
MOVE = re.compile(r"\*\*\* ?Move to:[ \t]*(.*)", re.IGNORECASE)
LINE_RANGES = re.compile(r"-(\d+)(?:,\d+)? \+\d+(?:,\d+)?(?: @@ ?(.*))?")
SURROGATE = re.compile(r"[\ud800-\udfff]")
NO_NEWLINE = "\\ No newline at end of file"
MARKERS = "*** Add File: PATH, *** Delete File: PATH, *** Update File: PATH or *** End Patch"
EXAMPLE = "*** Begin Patch\n*** Update File: path/to/file\n@@\n context\n-old line\n+new line\n*** End Patch"


def parse_patch(text: str) -> Patch:
    """Parse a patch; raise `PatchError` if it is invalid. Errors and notes count the lines of `text` from 1."""
    return _PatchParser(text).parse()


class _PatchParser:
    def __init__(self, text: str) -> None:
        self.patch = Patch()
        self.lines = self._unwrap(text).split("\n")
        for number, line in enumerate(self.lines, 1):
            if SURROGATE.search(line):
                raise PatchError(f"line {number}: half of a surrogate pair is not a character and cannot be written.")
        self.at = 0
        self.blank: list[int] = []
        """The line numbers of the empty lines since the last `+` line of a new file. These lines belong to the file
        only if another `+` line follows."""

    def _unwrap(self, text: str) -> str:
        """Return the patch inside a text in JSON, such as `{"patch": "..."}` or `["apply_patch", "..."]`.

        Any other text is returned unchanged.
        """
        if not text.lstrip().startswith(("{", "[")):
            return text
        value: Any = try_json(text, [])
        last: Any = (list(value.values() if is_object(value) else value) or [None])[-1]
        if isinstance(last, str) and BEGIN in last:
            self.patch.notes.append("the patch was inside of JSON; lines are counted in the patch itself")
            return last
        return text

    def parse(self) -> Patch:
        """Parse each part of the text from `*** Begin Patch` to `*** End Patch`. There may be several such parts."""
        outside = 0
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if line.strip() == BEGIN:
                self._parse_body(crlf=line.endswith("\r"))
            elif line.strip():
                outside += 1
        if not self.patch.sections:
            raise PatchError(self._nothing_found())
        if outside:
            lines = "1 line" if outside == 1 else f"{outside} lines"
            self.patch.notes.append(f"{lines} outside of {BEGIN} and {END} left out")
        return self.patch

    def _nothing_found(self) -> str:
        stripped = [line.strip() for line in self.lines]
        if BEGIN in stripped:
            return f"line {stripped.index(BEGIN) + 1}: the patch is empty; write {MARKERS.rpartition(' or')[0]}."
        for number, line in enumerate(stripped, 1):
            if BEGIN in line:
                return f"line {number}: {BEGIN} must be a line of its own. The patch must have real line breaks."
            if SECTION.match(line):
                return (
                    f"line {number}: {BEGIN} is missing above it. Send the whole patch again, in this form:\n{EXAMPLE}"
                )
            if line.startswith("--- ") and "".join(stripped[number : number + 1]).startswith("+++ "):
                return f"line {number}: this is a unified diff. Write the patch in this form:\n{EXAMPLE}"
        return f"There is no patch in the text. Write it in this form:\n{EXAMPLE}"

    def _parse_body(self, *, crlf: bool) -> None:
        begin = self.at
        section: AddFile | DeleteFile | UpdateFile | None = None
        while self.at < len(self.lines):
            line, number = self.lines[self.at], self.at + 1
            self.at += 1
            marker = line.rstrip()
            if marker == END:
                return
            if marker == BEGIN:
                raise PatchError(f"line {number}: {BEGIN} inside of a patch; write {END} before it.")
            if match := SECTION.fullmatch(marker):
                section = self._open_section(match, number)
            elif isinstance(section, AddFile):
                self._add_line(section, line.removesuffix("\r") if crlf else line, number)
            elif isinstance(section, UpdateFile):
                self._update_line(section, line.removesuffix("\r"), number)
            elif marker:
                where = f"after {quote('*** Delete File: ' + section.path)}" if section else f"after {BEGIN}"
                raise PatchError(f"line {number}: {quote(line)} {where} has no meaning; write {MARKERS}.")
        raise PatchError(
            f"line {len(self.lines)}: {END} is missing for the patch that begins in line {begin}; it may have been cut"
            f" off. Send the whole patch again, or several smaller ones."
        )

    def _open_section(self, match: re.Match[str], number: int) -> AddFile | DeleteFile | UpdateFile:
        kind, path = match[1], match[2].strip()
        if not path:
            raise PatchError(f"line {number}: there is no path after {quote(match[0].strip())}.")
        section: AddFile | DeleteFile | UpdateFile
        section = {"Add": AddFile, "Delete": DeleteFile, "Update": UpdateFile}[kind](path, number)
        self.patch.sections.append(section)
        self.blank.clear()
        return section

    def _add_line(self, section: AddFile, line: str, number: int) -> None:
        if line.startswith("+"):
            if self.blank:
                self.patch.notes.append(f"line {self.blank[0]}: an empty line of {section.path!r} was read as +")
            section.lines += ["" for _ in self.blank]
            self.blank.clear()
            section.lines.append(line[1:])
        elif line.rstrip() == END_OF_FILE or (not section.lines and line.rstrip() == "@@"):
            pass
        elif line.strip():
            raise PatchError(
                f"line {number}: {quote(line)} in the new file {section.path!r} must begin with +, like each of its"
                " lines."
            )
        else:
            self.blank.append(number)

    def _update_line(self, section: UpdateFile, line: str, number: int) -> None:
        hunk = section.hunks[-1] if section.hunks else None
        if line.startswith("@@"):
            self._open_hunk(section, line, number)
        elif match := MOVE.fullmatch(line.rstrip()):
            if hunk or section.move_to is not None:
                raise PatchError(f"line {number}: write *** Move to: directly after *** Update File: {section.path}.")
            section.move_to = match[1].strip()
        elif line.rstrip() == END_OF_FILE:
            if hunk is None or not hunk.lines:
                raise PatchError(f"line {number}: there is no hunk before {END_OF_FILE}.")
            hunk.at_end = True
        elif line == NO_NEWLINE:
            self.patch.notes.append(f"line {number}: left out; a file ends with a newline if it did so before")
        elif line[:1] in {"", " ", "+", "-"}:
            self._add_hunk_line(section, hunk, HunkLine(line[:1] or " ", line[1:], number))
        elif line.startswith("***"):
            raise PatchError(f"line {number}: {quote(line)} is not a line of a patch; write {MARKERS}.")
        else:
            raise PatchError(
                f"line {number}: {quote(line)} must begin with a space (context), - (removed) or + (added), and"
                " then the line of the file with all of its own indentation."
            )

    def _add_hunk_line(self, section: UpdateFile, hunk: Hunk | None, line: HunkLine) -> None:
        if hunk is None or hunk.at_end:
            if not line.text.strip() and line.sign == " ":
                return  # an empty line between sections
            hunk = Hunk(line.number)
            section.hunks.append(hunk)
        hunk.lines.append(line)

    def _open_hunk(self, section: UpdateFile, line: str, number: int) -> None:
        header, hint = line[2:].strip(), None
        if match := LINE_RANGES.match(header):
            header, hint = (match[2] or "").strip(), max(int(match[1][:9]) - 1, 0)
        else:
            header = header.removesuffix("@@").rstrip()
        if section.hunks and not any(line.text.strip() or line.sign != " " for line in section.hunks[-1].lines):
            hunk = section.hunks[-1]  # `@@ class A` and `@@ def f` one after the other belong to one hunk
            hunk.lines.clear()
        else:
            hunk = Hunk(number)
            section.hunks.append(hunk)
        hunk.line_hint = hint if hint is not None else hunk.line_hint
        if header:
            hunk.headers.append(header)
