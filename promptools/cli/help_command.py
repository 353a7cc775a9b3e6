"""The command `promptools help`."""

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("of", nargs="*", metavar="COMMAND", help="the command (default: promptools itself)")


def run(arguments: argparse.Namespace) -> int:
    """Do nothing: `help COMMAND` is parsed as `COMMAND --help`."""
    del arguments
    return 0
