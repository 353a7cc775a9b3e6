"""Tables in Markdown, and the parts of a page that are generated.

A part is between two HTML comments, which name the `make` target that writes it. The rest of the page belongs to its
authors, or to other targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)


def begin(target: str) -> str:
    """Return the line before the part that a target writes."""
    return f"<!-- made by `make {target}` -->\n"


def end(target: str) -> str:
    """Return the line after the part that a target writes."""
    return f"<!-- end of what `make {target}` made -->\n"


def read_part(page: Path, target: str) -> str:
    """Return the part of a page that a target writes."""
    return _split(page, target)[1]


def write_part(page: Path, target: str, part: str) -> None:
    """Replace the part of a page that a target writes; everything else stays as it is, byte for byte."""
    before, _, after = _split(page, target)
    page.write_bytes(f"{before}{part}{after}".encode())


def _split(page: Path, target: str) -> tuple[str, str, str]:
    """Return what is before a part, the part, and what is after it; the two comments are not of the part."""
    text = page.read_bytes().decode()
    before, opened, rest = text.partition(begin(target))
    part, closed, after = rest.partition(end(target))
    if not (opened and closed):
        raise SystemExit(f"{page.name} has no place for what `make {target}` makes: {begin(target)}{end(target)}")
    return before + opened, part, closed + after
