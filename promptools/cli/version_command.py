"""The command `promptools version`."""

from __future__ import annotations

import argparse

import promptools
from promptools.cli.shared_arguments import add_json
from promptools.cli.terminal_output import print_json


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the version."""
    if arguments.json:
        print_json({"version": promptools.__version__})
    else:
        print(f"promptools {promptools.__version__}")
    return 0
