"""The marked blocks of a page of the documentation."""

import re
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "http://localhost:8000/v1"
"""Where the pages have their server."""
BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    marks: tuple[str, ...]
    text: str
    line: int

    @property
    def saved(self) -> str | None:
        return next((mark.removeprefix("save=") for mark in self.marks if mark.startswith("save=")), None)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(tuple(found["info"].split()), found["text"], text.count("\n", 0, found.start()) + 1)
        for found in BLOCK.finditer(text)
    ]
