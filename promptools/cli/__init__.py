"""The command line: `promptools COMMAND`. Each command is a module with `NAME`, `add` (its arguments) and `run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import promptools
from promptools import dialects
from promptools.cli import help_command, version_command
from promptools.cli.agent_commands import agent_command, discover_command, eval_command
from promptools.cli.batch_commands import batch_command, reparse_command
from promptools.cli.command_log import log_level, show_log
from promptools.cli.command_parser import USAGE_ERROR, CommandParser
from promptools.cli.server_commands import (
    chat_command,
    config_command,
    demo_command,
    detect_command,
    probe_command,
    providers_command,
    serve_command,
)
from promptools.cli.server_errors import describe_failure
from promptools.cli.terminal_output import hide_progress
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

COMMANDS: tuple[Any, ...] = (
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
    help_command,
    version_command,
)

FAILURE = 1
INTERRUPTED = 130


def build_parser() -> CommandParser:
    """Return the parser of all commands."""
    parser = CommandParser(prog="promptools", description="Working tool calls from any open-model server.")
    parser.add_argument("--version", action="version", version=f"promptools {promptools.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)
    for command in COMMANDS:
        about = (command.__doc__ or "").splitlines()[0]
        subparser = commands.add_parser(command.NAME, help=about, description=about)
        command.add(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    words = sys.argv[1:] if argv is None else [*argv]
    parser = build_parser()
    if not words:  # as git and click do: help, and no success
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    if words[0] == help_command.NAME:
        words = [*words[1:], "--help"]
    arguments = parser.parse_args(words)
    arguments.quiet, arguments.verbose = (getattr(arguments, name, False) for name in ("quiet", "verbose"))
    try:
        with show_log(log_level(arguments)), hide_progress(hidden=arguments.quiet):
            return _run(arguments)
    except PromptoolsError as error:
        return _fail(arguments.command, error)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the next prompt is not behind ^C
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of stdout is gone; without this, Python would print an error when it flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        failure = describe_failure(error)
        if failure is None:
            raise
        return _fail(arguments.command, failure)


def _fail(command: str, error: PromptoolsError) -> int:
    """Print an error in one line; return the exit status."""
    print(f"promptools {command}: {error}", file=sys.stderr)
    return USAGE_ERROR if isinstance(error, UsageError) else FAILURE


def _run(arguments: argparse.Namespace) -> int:
    """Run the command; where a config is in the way that is not trusted, ask about it, and begin again.

    Such a config is an error before anything is sent.
    """
    with dialects.using(*getattr(arguments, "dialect_files", ())):
        try:
            return int(arguments.run(arguments))
        except UntrustedConfig as error:
            if not ask_trust(error):
                raise
        return int(arguments.run(arguments))
