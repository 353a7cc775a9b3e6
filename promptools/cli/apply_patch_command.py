"""The command `promptools apply-patch`: apply a patch in the V4A format to files."""

from __future__ import annotations

import argparse
from pathlib import Path

from promptools.cli.shared_arguments import add_json, read_text
from promptools.cli.terminal_output import print_json


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", nargs="?", help="the patch, or text with a patch in it (default: stdin)")
    parser.add_argument("--root", metavar="DIR", default=".", help="folder of the files (default: the current one)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Apply the patch and print the changes."""
    from promptools.harness.toolsets.patch import apply_patch

    summary = apply_patch(Path(arguments.root), read_text(arguments.file))
    if arguments.json:
        print_json({"summary": summary.split("\n")})
    else:
        print(summary)
    return 0
