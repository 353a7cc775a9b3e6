"""Patches between two states of a folder, for the tests: written by difflib, read by nobody but them."""

import difflib
from pathlib import Path


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file in a folder, with its content and mode."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def contents(root: Path) -> dict[str, bytes]:
    return {name: data for name, (data, _) in snapshot(root).items()}


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def patch(*sections: str) -> str:
    return "\n".join(["*** Begin Patch", *sections, "*** End Patch"])


def hunks(before: list[str], after: list[str], context: int) -> list[str]:
    """The hunks of an Update section."""
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        lines.append("@@")
        for tag, low, high, new_low, new_high in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[low:high]]
            else:
                lines += [f"-{line}" for line in before[low:high]]
                lines += [f"+{line}" for line in after[new_low:new_high]]
    return lines


def update(path: str, before: list[str], after: list[str], *, context: int = 3, move_to: str | None = None) -> str:
    move = [f"*** Move to: {move_to}"] if move_to else []
    return "\n".join([f"*** Update File: {path}", *move, *hunks(before, after, context)])


def add(path: str, lines: list[str]) -> str:
    return "\n".join([f"*** Add File: {path}", *(f"+{line}" for line in lines)])
