"""The command line: `promptools COMMAND`. Each command is a module with `NAME`, `add` (its arguments) and `run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import promptools
from promptools.cli import chat, demo, detect, dialects, harmony, parse, providers, render, serve
from promptools.errors import PromptoolsError, UsageError

COMMANDS = (demo, serve, parse, render, dialects, harmony, providers, detect, chat)

NOT_FINE = 1
WRONG_USE = 2
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints an error in one line, like all other errors of the command line."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USE, f"{self.prog}: {message} (try {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    parser = _Parser(
        prog="promptools", description="Working tool calls from any open-model server.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"promptools {promptools.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        about = (command.__doc__ or "").splitlines()[0]
        subparser = commands.add_parser(command.NAME, help=about, description=about, allow_abbrev=False)
        command.add(subparser)
        subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except PromptoolsError as error:
        print(f"promptools {arguments.command}: {error}", file=sys.stderr)
        return WRONG_USE if isinstance(error, UsageError) else NOT_FINE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of stdout is gone; without this, Python would print an error when it flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_FINE
