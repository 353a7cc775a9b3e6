"""Turn the hunks of a patch into edits of a file: find each hunk's lines, or report why they cannot be found.

The lines are searched for in the file as it was before the patch (`line_search`). Exact matches are tried before looser
ones (`Likeness`). Blank context at the edges of a hunk is left out only if nothing else matches. Hunks usually follow
each other, so matches below the previous hunk's changes are preferred. If a hunk matches in several places, its headers
decide, or the line number in the header of a unified diff. If these do not decide, the patch is rejected, because a
change in the wrong place is worse than no change.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from promptools.harness.toolsets.line_search import Likeness, LineSearch, from_position
from promptools.harness.toolsets.patch_format import MAX_PROBLEMS, Hunk, PatchError, UpdateFile, quote

# The lines of a file that the headers of hunks (`@@ class App`) refer to, and the blocks below them.


NAME_END = re.compile(r"\s*[(:{<\[=;]")
"""Matches the end of the name in a definition, such as `(` in `def run(self):`. The text after the name may be missing
in the header of a hunk, or may differ from the text in the file."""


class HeaderSearch:
    """Finds the lines of a file that the headers of hunks, such as `@@ class App`, refer to."""

    def __init__(self, lines: Sequence[str], loose: LineSearch) -> None:
        self._lines = lines
        self._loose = loose
        self._block_ends: dict[int, int] = {}

    def positions(self, headers: Sequence[str]) -> Sequence[int]:
        """Return the positions of lines that match the last of `headers`, inside the blocks of the headers before it.

        Headers that the file does not contain are skipped.
        """
        heads: Sequence[int] = ()
        for header in headers:
            positions = self._loose.positions([header]) or self._named.get(_name(header), ())
            if heads and positions:
                heads = self.inside(positions, heads) or from_position(positions, heads[0])
            else:
                heads = positions or heads
        return heads

    def inside(self, positions: Sequence[int], heads: Sequence[int]) -> list[int]:
        """Return the `positions` that are inside a block. `heads` are the positions of the blocks' first lines."""
        kept: dict[int, None] = {}
        for head in heads:
            first = bisect_left(positions, head)
            kept |= dict.fromkeys(positions[first : bisect_left(positions, self.block_end(head))])
        return sorted(kept)

    def block_end(self, head: int) -> int:
        """Return the position of the first line after a block. `head` is the position of the block's first line.

        The block consists of its first line and of the blank or more indented lines that follow.
        """
        if head not in self._block_ends:
            indent, end = indentation(self._lines[head]), head + 1
            while end < len(self._lines) and (
                not self._lines[end].strip() or len(indentation(self._lines[end])) > len(indent)
            ):
                end += 1
            self._block_ends[head] = end
        return self._block_ends[head]

    def enclosing(self, at: int) -> str:
        """Return the nearest less indented line above position `at`, without its indentation, or an empty string."""
        own = len(indentation(self._lines[at]))
        for line in reversed(self._lines[:at]):
            if line.strip() and len(indentation(line)) < own:
                return line.strip()
        return ""

    @cached_property
    def _named(self) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            named.setdefault(_name(line), []).append(at)
        named.pop("", None)
        return named


def indentation(line: str) -> str:
    """Return the leading white space of a line."""
    return line[: len(line) - len(line.lstrip())]


def _name(line: str) -> str:
    return NAME_END.split(" ".join(line.split()), maxsplit=1)[0]


# The text of a file as lines, without loss: encoding, byte order mark, line endings and the last newline are kept.


BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class LineEdit:
    """An edit: lines `start` to `end` (exclusive) are replaced by `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


class FileText:
    r"""The lines of a file, and their endings in a separate list.

    A line ends with `\n` or `\r\n`. Invalid UTF-8 is decoded to surrogates, and encoded to the same bytes again.
    """

    def __init__(self, data: bytes) -> None:
        text = data.decode("utf-8", errors="surrogateescape")
        self._bom = BOM if text.startswith(BOM) else ""
        pieces = text[len(self._bom) :].split("\n")
        self._ends_with_newline = pieces[-1] == ""
        if self._ends_with_newline:
            pieces.pop()
        self.lines = [piece.removesuffix("\r") for piece in pieces]
        self._endings = ["\r\n" if piece.endswith("\r") else "\n" for piece in pieces]
        if pieces and not self._ends_with_newline:
            self.lines[-1] = pieces[-1]  # no \n follows: a \r here is a character like any other
            self._endings[-1] = self._endings[-2] if len(pieces) > 1 else "\n"

    def replace(self, edits: Sequence[LineEdit]) -> bytes:
        """Return the file's bytes after `edits`, which must be sorted and must not overlap.

        A new line gets the ending of the line that it replaces, or the ending of the line above if it replaces none.
        """
        usual = Counter(self._endings).most_common(1)[0][0] if self._endings else "\n"
        parts, endings, at = list[str](), list[str](), 0
        for edit in edits:
            parts += self.lines[at : edit.start]
            endings += self._endings[at : edit.start]
            above = endings[-1] if endings else usual
            replaced = self._endings[edit.start : edit.end]
            parts += edit.lines
            endings += [*replaced, *([replaced[-1] if replaced else above] * len(edit.lines))][: len(edit.lines)]
            at = edit.end
        parts += self.lines[at:]
        endings += self._endings[at:]
        if parts and not self._ends_with_newline:
            endings[-1] = ""
        return join_lines(parts, endings, self._bom)


def join_lines(lines: Sequence[str], endings: Sequence[str], bom: str = "") -> bytes:
    """Return lines, joined with their endings, as bytes."""
    text = bom + "".join(line + ending for line, ending in zip(lines, endings, strict=True))
    return text.encode("utf-8", errors="surrogateescape")


# Find the place of each hunk.


MAX_COMPARED = 2000
"""Maximum number of lines of a file that are compared with a line of the patch, to find and show the closest one. It
also limits how many matches of a hunk are compared with the line number in the hunk's header."""
LOOSENESS = {
    Likeness.TRAILING_SPACE: "with other space at the end of lines",
    Likeness.ALL_SPACE: "with other spacing",
    Likeness.LOOK_ALIKE: "with other spacing, or typographic quotes, dashes or spaces",
}


def place_hunks(lines: Sequence[str], section: UpdateFile, notes: list[str]) -> list[LineEdit]:
    """Return the sorted edits for the hunks of `section`, which updates one file; append remarks to `notes`.

    Raises `PatchError` with the problems of all hunks. Once there are `MAX_PROBLEMS`, no further hunk is tried.
    """
    placer = _HunkPlacer(lines, section.path, notes)
    problems: list[str] = []
    for hunk in section.hunks:
        try:
            placer.place(hunk)
        except PatchError as error:
            problems += error.problems
        if len(problems) >= MAX_PROBLEMS:
            break
    if problems:
        raise PatchError(problems)
    return placer.edits


class _HunkPlacer:
    def __init__(self, lines: Sequence[str], path: str, notes: list[str]) -> None:
        self.edits: list[LineEdit] = []
        self._lines = lines
        self._path = path
        self._notes = notes
        self._below = 0
        """Position of the line after the last change of the previous hunk."""
        self._searches: dict[Likeness, LineSearch] = {}
        self._headers = HeaderSearch(lines, self._search(Likeness.ALL_SPACE))

    def _search(self, likeness: Likeness) -> LineSearch:
        if likeness not in self._searches:
            self._searches[likeness] = LineSearch(self._lines, likeness)
        return self._searches[likeness]

    def place(self, hunk: Hunk) -> None:
        """Find the lines of a hunk in the file, and add its edits. Raises `PatchError` if that is not possible."""
        if not hunk.lines:
            raise PatchError(f"line {hunk.number}: the hunk has no lines.")
        variant, likeness, at = self._place_lines(hunk) if hunk.old else (hunk, Likeness.EXACT, self._insertion(hunk))
        reindent = _Indentation(variant, self._lines[at : at + len(variant.old)])
        edits = list(_edits(variant, at, reindent))
        for edit in edits:
            self._add_edit(hunk, edit)
        self._below = edits[-1].end if edits else at
        if likeness is not Likeness.EXACT:
            fitted = "; the added lines got the file's indentation" if reindent.used else ""
            self._note(hunk, f"matched line {at + 1} of {self._path!r} {LOOSENESS[likeness]}{fitted}")

    def _note(self, hunk: Hunk, text: str) -> None:
        self._notes.append(f"line {hunk.number}: {text}")

    def _add_edit(self, hunk: Hunk, edit: LineEdit) -> None:
        index = bisect_left(self.edits, (edit.start, edit.end), key=lambda other: (other.start, other.end))
        while index < len(self.edits) and self.edits[index] == LineEdit(
            edit.start, edit.start, self.edits[index].lines
        ):
            index += 1  # insertions in one place stay in the order of the patch
        before, after = self.edits[index - 1 : index] if index else [], self.edits[index : index + 1]
        if any(other.end > edit.start for other in before) or any(other.start < edit.end for other in after):
            raise PatchError(
                f"line {hunk.number}: another hunk changes line {edit.start + 1} of {self._path!r} already. Write"
                " one hunk for both changes."
            )
        self.edits.insert(index, edit)

    def _place_lines(self, hunk: Hunk) -> tuple[Hunk, Likeness, int]:
        """Return the hunk, the `Likeness` with which it matches, and the line of the file where the match begins.

        If the hunk matches only without the blank context lines at its edges, the hunk is returned without these lines.
        """
        trimmed = hunk.without_blank_edges()
        variants = [hunk, trimmed] if trimmed.old and len(trimmed.lines) < len(hunk.lines) else [hunk]
        tries = [
            (variant, likeness, [line.text for line in variant.old]) for variant in variants for likeness in Likeness
        ]
        if hunk.at_end:
            for variant, likeness, old in tries:
                at = len(self._lines) - len(old)
                if at >= 0 and self._search(likeness).matches(old, at):
                    return variant, likeness, at
        for variant, likeness, old in tries:
            positions = self._search(likeness).positions(old)
            if positions:
                at = self._choose(hunk, positions, len(old))
                if hunk.at_end:
                    self._note(hunk, f"its lines are not at the end of {self._path!r}, but at line {at + 1}")
                if not self._search(likeness).matches(old, at):
                    break  # two hashes collided
                return variant, likeness, at
        if not trimmed.old and trimmed.lines:
            return trimmed, Likeness.EXACT, self._insertion(hunk)
        raise PatchError(self._not_found(variants[-1]))

    def _choose(self, hunk: Hunk, positions: Sequence[int], size: int) -> int:
        """Return which of `positions` the hunk refers to; raise `PatchError` if that is not clear."""
        positions = from_position(positions, self._below) or positions
        heads = self._headers.positions(hunk.headers)
        if hunk.headers and not heads:
            self._note(hunk, f"{quote('@@ ' + hunk.headers[-1])} is not a line of {self._path!r}")
        elif heads and positions[-1] + size <= heads[0]:
            raise PatchError(
                f"line {hunk.number}: the lines of the hunk are at line {positions[-1] + 1} of {self._path!r},"
                f" above {quote('@@ ' + hunk.headers[-1])} (line {heads[0] + 1}), and not below it."
            )
        if len(positions) == 1:
            return positions[0]
        if heads:
            inside = self._headers.inside(positions, heads)
            if not inside and len(heads) == 1:
                inside = list(from_position(positions, heads[0])[:1])
            positions = inside or positions
        if hunk.line_hint is not None and hunk.line_hint in positions[:MAX_COMPARED]:
            return hunk.line_hint
        if len(positions) > 1:
            raise PatchError(self._ambiguous(hunk, positions))
        return positions[0]

    def _insertion(self, hunk: Hunk) -> int:
        """Return the line at which a hunk without context or removed lines is inserted."""
        if hunk.at_end or not self._lines:
            return len(self._lines)
        heads = self._headers.positions(hunk.headers)
        if len(heads) == 1:
            return heads[0] + 1
        if heads:
            raise PatchError(self._ambiguous(hunk, heads))
        raise PatchError(
            f"line {hunk.number}: nothing says where in {self._path!r} the added lines belong. Add a line of the file"
            " above or below them, after a space; or *** End of File after them."
        )

    def _ambiguous(self, hunk: Hunk, positions: Sequence[int]) -> str:
        places = [
            f"line {at + 1}" + (f" (in {quote(outer)})" if (outer := self._headers.enclosing(at)) else "")
            for at in positions[:5]
        ]
        more = f" and {len(positions) - 5} more" if len(positions) > 5 else ""
        return (
            f"line {hunk.number}: the hunk fits {len(positions)} places of {self._path!r}: {', '.join(places)}{more}."
            " Add more lines of context, or a header above it: @@ and the line of the file that begins the function"
            " or section."
        )

    def _not_found(self, hunk: Hunk) -> str:
        old = hunk.old
        texts = [line.text for line in old]
        new = [line.text for line in hunk.lines if line.sign != "-"]
        where = self._search(Likeness.TRAILING_SPACE).positions(new)
        if where and any(line.sign == "+" and line.text.strip() for line in hunk.lines):
            return (
                f"line {hunk.number}: the lines to change are not in {self._path!r}, but the changed ones are, at line"
                f" {where[0] + 1}: the hunk was applied before, or is not needed."
            )
        search = self._search(Likeness.LOOK_ALIKE)
        first, at = search.longest_prefix(texts)
        last, below = search.longest_suffix(texts)
        copy = f"Copy the lines from {self._path!r} as they are now."
        if first >= max(last, 1):
            line = old[first]
            following = self._lines[at + first : at + first + 1]
            there = f"line {at + first + 1} is {quote(following[0])}" if following else "the file ends there"
            return (
                f"line {line.number}: {quote(line.text)} does not follow line {at + first} of {self._path!r}, which the"
                f" hunk matches from line {at + 1}: {there}. {copy}"
            )
        if last:
            line = old[-last - 1]
            there = f"line {below} is {quote(self._lines[below - 1])}" if below else "the file begins there"
            return (
                f"line {line.number}: {quote(line.text)} is not above line {below + 1} of {self._path!r}, which the"
                f" rest of the hunk matches: {there}. {copy}"
            )
        return f"line {old[0].number}: {quote(old[0].text)} is not in {self._path!r}{self._closest(texts[0])}. {copy}"

    def _closest(self, text: str) -> str:
        stripped = [line.strip() for line in self._lines[:MAX_COMPARED]]
        close = difflib.get_close_matches(text.strip()[:300], [line[:300] for line in stripped], n=1)
        if not close:
            return ""
        at = next(at for at, line in enumerate(stripped) if line[:300] == close[0])
        return f"; the most similar line is {at + 1}, {quote(self._lines[at])}"


def _edits(hunk: Hunk, at: int, indentation: _Indentation) -> Iterator[LineEdit]:
    start, added, changed = at, list[str](), False
    for line in hunk.lines:
        if line.sign == " ":
            if changed:
                yield LineEdit(start, at, tuple(added))
            start, added, changed = at + 1, [], False
        else:
            changed = True
        if line.sign == "+":
            added.append(indentation.fit(line.text))
        else:
            at += 1
    if changed:
        yield LineEdit(start, at, tuple(added))


class _Indentation:
    """Converts the indentation of a patch to that of the file, as learned from lines that are in both.

    Removed lines are better examples than context lines: removed lines are indented like added lines, while models
    shorten the indentation of context. An indentation without an example is converted only if there are enough examples
    and all of them are shifted in the same way.
    """

    def __init__(self, hunk: Hunk, file_lines: Sequence[str]) -> None:
        self.used = False
        self._known: dict[str, str] = {}
        self._shifts: set[tuple[str, str]] = set()
        pairs = [pair for pair in zip(hunk.old, file_lines, strict=True) if pair[0].text.strip()]
        removed = [pair for pair in pairs if pair[0].sign == "-"]
        for line, file_line in removed or pairs:
            theirs, own = indentation(line.text), indentation(file_line)
            if self._known.setdefault(theirs, own) != own:
                self._known, self._shifts = {}, set()
                return
            self._shifts.add(_shift(theirs, own))
        added = (indentation(line.text) in self._known for line in hunk.lines if line.sign == "+" and line.text.strip())
        if not removed and len(self._known) < 2 and not any(added):
            self._shifts.clear()

    def fit(self, line: str) -> str:
        """Return an added line with the file's indentation, or unchanged if no matching indentation was learned."""
        if not line.strip():
            return line
        theirs = indentation(line)
        own = self._known.get(theirs)
        if own is None and len(self._shifts) == 1:
            ((more, less),) = self._shifts
            own = more + theirs.removeprefix(less)
        if own is None or own == theirs:
            return line
        self.used = True
        return own + line.lstrip()


def _shift(theirs: str, own: str) -> tuple[str, str]:
    """Return the white space to add to, and to remove from, the patch's indentation to get the file's indentation.

    At least one of the two is empty. If the patch has two spaces and the file has four, two spaces are to be added.
    """
    if own.endswith(theirs):
        return own[: len(own) - len(theirs)], ""
    if theirs.endswith(own):
        return "", theirs[: len(theirs) - len(own)]
    return "", ""
