"""A patch as data: its sections, their hunks, and the error of a patch that cannot be applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from promptools.errors import PromptoolsError, clip

MAX_PROBLEMS = 8
"""Problems that one error describes."""


class PatchError(PromptoolsError):
    """A patch cannot be applied. `problems` says why, each with the line of the patch.

    No file was changed; if `changed`, the disk failed, and then failed again when changes were undone.
    """

    def __init__(self, problems: str | Sequence[str], *, changed: bool = False) -> None:
        self.changed = changed
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[:MAX_PROBLEMS])
        if len(self.problems) > MAX_PROBLEMS:
            shown.append(f"and {len(self.problems) - MAX_PROBLEMS} more problems")
        super().__init__("\n".join(shown if changed else ["No file was changed.", *shown]))


def quote(line: str) -> str:
    """Return a line as an error message shows it."""
    return f"`{clip(line, 120)}`"


@dataclass(frozen=True, slots=True)
class HunkLine:
    """A line of a hunk: `sign` is a space for context, `-` or `+`; `number` is its line in the patch."""

    sign: str
    text: str
    number: int


@dataclass(slots=True)
class Hunk:
    """Lines that are changed together, with the context in which they are."""

    number: int
    """Line of the patch where the hunk begins."""
    headers: list[str] = field(default_factory=list[str])
    """What follows `@@`, from the outer to the inner one: lines of the file above the hunk."""
    line_hint: int | None = None
    """The line of the file that a header in the style of unified diffs names, counted from 0."""
    lines: list[HunkLine] = field(default_factory=list[HunkLine])
    at_end: bool = False
    """Whether `*** End of File` follows."""

    @property
    def old(self) -> list[HunkLine]:
        """The lines that the file must have."""
        return [line for line in self.lines if line.sign != "+"]

    def without_blank_edges(self) -> Hunk:
        """Return the hunk without blank context at its beginning and end, which may be nothing but layout."""
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
    """A new file."""

    path: str
    number: int
    lines: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class DeleteFile:
    """A file that is removed."""

    path: str
    number: int


@dataclass(slots=True)
class UpdateFile:
    """A file whose lines are changed; with `move_to`, it gets another name too."""

    path: str
    number: int
    move_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list[Hunk])


@dataclass(slots=True)
class Patch:
    """The sections of a patch in their order, and notes on what was accepted although it is no part of the format."""

    sections: list[AddFile | DeleteFile | UpdateFile] = field(default_factory=list[AddFile | DeleteFile | UpdateFile])
    notes: list[str] = field(default_factory=list[str])
