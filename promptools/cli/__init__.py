"""The command line: `promptools COMMAND`.

Each command is a module with two functions: `add` adds the command's arguments, and `run` runs the command. A command's
module is imported only when the command is used, because some modules import a lot that other commands do not need.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

import promptools
from promptools.cli.command_log import log_level, show_log
from promptools.cli.command_parser import USAGE_ERROR, Command, CommandParser
from promptools.cli.terminal_output import hide_progress
from promptools.errors import PromptoolsError, UsageError

HELP = "help"
COMMANDS = (
    Command(
        "demo", "Run a weather conversation in several ways, and show what the server sent and what the app received."
    ),
    Command("serve", "Run the proxy. It serves Chat Completions, Responses, Messages and Ollama's API."),
    Command("launch", "Start a coding agent, or another program, that uses the proxy."),
    Command("parse", "Read a model's reply from a file or stdin and show the calls in it."),
    Command(
        "render",
        "Show what a request becomes in a mode, or how a dialect writes tools, calls and results.",
    ),
    Command("dialects", "List the dialects, show how one writes calls, or learn one from a chat template."),
    Command("harmony", "Install the vocabulary of gpt-oss, for token ids and exact counts."),
    Command("providers", "List the config's providers and the known kinds of server, or explain one."),
    Command(
        "config",
        "Show which config file and variables decide where requests go, or trust a config file.",
    ),
    Command("doctor", "Check what is installed, what is configured, and whether the server answers."),
    Command("detect", "Ask a server what it is, and show what it reports."),
    Command("probe", "Test what a server and its model do with tools, and recommend modes."),
    Command(
        "verify", "Ask a server the same things directly and through promptools, and compare how often each is right."
    ),
    Command("chat", "Chat with a model through promptools, and see its calls."),
    Command("agent", "Let a model work on a task in a folder, with sandboxed commands, and show what changed."),
    Command(
        "batch",
        "Send a file of requests in OpenAI's batch format, and write the results to another file.",
    ),
    Command("reparse", "Re-parse a file of logged replies."),
    Command("replay", "Re-parse recorded replies, and show what has changed."),
    Command("apply-patch", "Apply a patch in the V4A format (`*** Begin Patch`) to files, all or nothing."),
    Command(
        "discover",
        "Find out which tools a model was trained on.",
    ),
    Command("eval", "Run a benchmark on a model, and write a report."),
    Command("completion", "Print the lines with which bash, zsh or fish completes commands, options and their values."),
    Command(HELP, "Show help for promptools or for a command."),
    Command("version", "Show the version of promptools."),
)

FIRST_STEPS = """\
first steps:
  promptools demo                  see a broken call, and what promptools does
  promptools doctor URL            check your server at URL
  promptools serve URL --inspect   run the proxy in front of it
  promptools help serve            show the options of a command
"""
"""Text at the end of the program's help."""
COMPLETING = "_ARGCOMPLETE"
"""The environment variable that is set when a shell asks for completions."""
FAILURE = 1
INTERRUPTED = 130


def build_parser(loaded: Collection[str] = ()) -> CommandParser:
    """Return the parser of all commands.

    The arguments of the commands in `loaded` are added now; those of other commands are added on demand.
    """
    parser = CommandParser(
        prog="promptools",
        description="Working tool calls from any open-model server.",
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"promptools {promptools.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)
    for command in COMMANDS:
        added = commands.add_parser(command.name, help=command.about, description=command.about, command=command)
        if command.name in loaded:
            added.load()
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 for success, 1 for failure, 2 for wrong usage, 130 if interrupted."""
    if COMPLETING in os.environ:
        return _complete()
    words = sys.argv[1:] if argv is None else [*argv]
    parser = build_parser()
    if not words:  # print the help, but do not report success, as git and click do
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    if words[0] == HELP:
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
            print(file=sys.stderr)  # so that the shell's next prompt does not follow ^C on the same line
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of stdout has closed it; otherwise Python would print an error when it flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        from promptools.cli.server_errors import describe_failure

        failure = describe_failure(error)
        if failure is None:
            raise
        return _fail(arguments.command, failure)


def _complete() -> int:
    """Answer a shell's request for completions: argcomplete inspects the parser before the command line is parsed."""
    from promptools.cli.completion_command import complete

    try:
        complete(build_parser(loaded=os.environ.get("COMP_LINE", "").split()))
    except UsageError as error:
        return _fail("completion", error)


def _fail(command: str, error: PromptoolsError) -> int:
    """Print an error on one line; return the exit status."""
    print(f"promptools {command}: {error}", file=sys.stderr)
    return USAGE_ERROR if isinstance(error, UsageError) else FAILURE


def _run(arguments: argparse.Namespace) -> int:
    """Run the command. If a config is untrusted, ask the user about it, and run the command again if it is now trusted.

    This repeats no request: the error about an untrusted config is raised before anything is sent.
    """
    with _own_dialects(getattr(arguments, "dialect_files", ())):
        try:
            return int(arguments.run(arguments))
        except UsageError as error:
            if not _is_trusted_now(error):
                raise
        return int(arguments.run(arguments))


def _own_dialects(files: Sequence[str]) -> AbstractContextManager[None]:
    if not files:
        return nullcontext()
    from promptools import dialects

    return dialects.using(*files)


def _is_trusted_now(error: UsageError) -> bool:
    """If the error is about an untrusted config, ask the user about it; return whether the user now trusts it."""
    from promptools.cli.config_command import ask_trust
    from promptools.profiles import UntrustedConfig

    return isinstance(error, UntrustedConfig) and ask_trust(error)
