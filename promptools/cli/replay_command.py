"""The command `promptools replay`: parse recorded replies again, and show what has changed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptools.cli.shared_arguments import add_dialect_files, add_json
from promptools.cli.terminal_output import print_json, print_styled
from promptools.errors import UsageError
from promptools.recording.replay import RecordedRow, read_rows, update

_STYLES = {"+": "green", "-": "red", "@": "dim"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="DIR|FILE", help="recordings: a file, or a directory of *.jsonl files")
    parser.add_argument("--update", action="store_true", help="update the files with what is read now")
    add_dialect_files(parser)
    add_json(parser)


@dataclass(slots=True)
class _Summary:
    same: int = 0
    changed: list[tuple[RecordedRow, str]] = field(default_factory=list[tuple[RecordedRow, str]])
    broken: list[tuple[Path, int, str]] = field(default_factory=list[tuple[Path, int, str]])


def run(arguments: argparse.Namespace) -> int:
    """Replay recordings; return 1 if a row cannot be read, or if a result changed and `--update` is not given."""
    summary = _replay(arguments.path)
    if arguments.update:
        for path in dict.fromkeys(row.path for row, _ in summary.changed):
            update(path)
    if arguments.json:
        print_json(_as_json(summary))
    else:
        _show(summary, updated=arguments.update)
    return int(bool(summary.broken or (summary.changed and not arguments.update)))


def _replay(path: str) -> _Summary:
    summary = _Summary()
    for row in read_rows(path):
        if not isinstance(row, RecordedRow):
            summary.broken.append((row.path, row.line, row.reason))
            continue
        try:
            difference = row.difference()
        except UsageError as error:
            summary.broken.append((row.path, row.line, str(error)))
            continue
        if difference:
            summary.changed.append((row, difference))
        else:
            summary.same += 1
    return summary


def _show(summary: _Summary, *, updated: bool) -> None:
    for row, difference in summary.changed:
        about = ", ".join(str(row.data[key]) for key in ("model", "mode", "time") if row.data.get(key))
        print_styled([(f"{row.path}:{row.line}", "bold"), (f" ({about})", "")])
        print_styled([(f"{line}\n", _STYLES.get(line[:1], "")) for line in difference.splitlines()])
    for path, line, reason in summary.broken:
        print(f"{path}:{line}: skipped: {reason}", file=sys.stderr)
    changed = f"{len(summary.changed)} changed{' and updated' if updated and summary.changed else ''}"
    print(f"{summary.same} the same, {changed}, {len(summary.broken)} skipped")


def _as_json(summary: _Summary) -> dict[str, Any]:
    return {
        "same": summary.same,
        "changed": [
            {"path": str(row.path), "line": row.line, "recorded": row.expected, "now": row.read()}
            for row, _ in summary.changed
        ],
        "skipped": [{"path": str(path), "line": line, "reason": reason} for path, line, reason in summary.broken],
    }
