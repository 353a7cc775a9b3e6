"""The text of a file as lines, without loss: encoding, byte order mark, line endings and the last newline stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class LineEdit:
    """Lines `start` to `end` (exclusive) are replaced by `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


class FileText:
    r"""Lines of a file without their endings, which are kept beside them.

    A line ends with `\n` or `\r\n`. Bytes that are no UTF-8 become surrogates, and the same bytes again.
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
        """Return the file's bytes after edits, which are sorted and do not overlap.

        A new line gets the ending of the line that it replaces, else of the line above.
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
    """Return the bytes of lines with their endings."""
    text = bom + "".join(line + ending for line, ending in zip(lines, endings, strict=True))
    return text.encode("utf-8", errors="surrogateescape")
