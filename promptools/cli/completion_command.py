"""The command `promptools completion`, and the completion of command lines by argcomplete."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from promptools.errors import UsageError, install_command

if TYPE_CHECKING:
    from promptools.cli.command_parser import CommandParser

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "promptools"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the lines")


def run(arguments: argparse.Namespace) -> int:
    """Print the lines for the shell's configuration."""
    print(_load_library().shellcode([PROGRAM], shell=arguments.shell))
    return 0


def complete(parser: CommandParser) -> NoReturn:
    """Write the completions of the command line in COMP_LINE for the shell that asks for them; then end the process."""
    _load_library().autocomplete(parser)
    sys.exit(1)  # argcomplete has ended the process, unless a variable that the shell sets is missing


def _load_library() -> ModuleType:
    try:
        return import_module("argcomplete")
    except ImportError as error:
        raise UsageError(f"completion needs argcomplete: {install_command('completion')}") from error
