"""The command line: `promptools COMMAND`. Each command is a module with `NAME`, `add` (its arguments) and `run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import promptools
from promptools.cli.agent_commands import agent_command, discover_command, eval_command
from promptools.cli.batch_commands import batch_command, reparse_command
from promptools.cli.server_commands import (
    chat_command,
    config_command,
    demo_command,
    detect_command,
    probe_command,
    providers_command,
    serve_command,
)
from promptools.cli.text_commands import (
    apply_patch_command,
    dialects_command,
    harmony_command,
    parse_command,
    render_command,
    replay_command,
)
from promptools.cli.trust_question import ask_trust
from promptools.errors import PromptoolsError, UsageError
from promptools.profiles import UntrustedConfig

COMMANDS = (
    demo_command,
    serve_command,
    parse_command,
    render_command,
    dialects_command,
    harmony_command,
    providers_command,
    config_command,
    detect_command,
    probe_command,
    chat_command,
    agent_command,
    batch_command,
    reparse_command,
    replay_command,
    apply_patch_command,
    discover_command,
    eval_command,
)

FAILURE = 1
USAGE_ERROR = 2
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Prints an error in one line, like all other errors of the command line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (try {self.prog} --help)\n")


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
        return _run(arguments)
    except PromptoolsError as error:
        print(f"promptools {arguments.command}: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, UsageError) else FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of stdout is gone; without this, Python would print an error when it flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE


def _run(arguments: argparse.Namespace) -> int:
    """Run the command; where a config is in the way that is not trusted, ask about it, and begin again.

    Such a config is an error before anything is sent.
    """
    try:
        return int(arguments.run(arguments))
    except UntrustedConfig as error:
        if not ask_trust(error):
            raise
    return int(arguments.run(arguments))
