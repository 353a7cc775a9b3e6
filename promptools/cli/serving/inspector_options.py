"""The inspector of `promptools serve`: its flag, and its extension."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from promptools.cli.terminal_output import print_progress
from promptools.errors import UsageError

if TYPE_CHECKING:
    from promptools.proxy import Extension, Proxy


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="keep the last exchanges in memory, prompts and replies included, and show them at /inspect",
    )


def extensions(arguments: argparse.Namespace) -> list[Extension]:
    """Return the inspector, if it is asked for."""
    if not arguments.inspect:
        return []
    if arguments.workers > 1:
        raise UsageError("--inspect needs --workers 1: each worker would show only its own exchanges")
    from promptools.proxy.inspector import Inspector

    return [Inspector()]


def warn_of_readers(arguments: argparse.Namespace, proxy: Proxy) -> None:
    """Warn if everybody may see the inspector."""
    if arguments.inspect and arguments.no_api_key and not proxy.access.requires_key:
        print_progress("warning: everybody who reaches this proxy can read all prompts and replies in the inspector")
