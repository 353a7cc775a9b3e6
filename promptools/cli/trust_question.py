"""The question whether a config that was only found may be used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from promptools.profiles.config_reach import shown_text
from promptools.transport.found_config import keep_trust

if TYPE_CHECKING:
    from promptools.profiles import ConfigReach, UntrustedConfig


def ask_trust(error: UntrustedConfig) -> bool:
    """Show what the config reaches, and ask on the terminal whether to trust it; without a terminal it is not trusted.

    The answer is kept for what was shown: if the file has changed since, it is not trusted.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        return False
    _print_shown(f"{shown_text(error.config.file)} was found in the current folder. It reaches:")
    print_reach(error.reach)
    print("Trust it? This is asked again only if the list changes. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        return False
    keep_trust(Path(error.config.file), error.reach)
    return True


def print_reach(reach: ConfigReach) -> None:
    """Print a line to stderr for each thing that a config reaches; what the question is about comes first."""
    for entry in sorted(reach.entries, key=lambda entry: not (entry.is_remote or entry.is_outside)):
        where = "beyond this machine: " if entry.is_remote else "outside of its folder: " if entry.is_outside else ""
        is_set = ""
        if entry.is_variable:
            is_set = " (set)" if os.environ.get(entry.value) else " (not set)"
        _print_shown(f"  {where}{entry}{is_set}")


def _print_shown(text: str) -> None:
    """Print a line to stderr, with `--quiet` too: nothing is trusted unseen."""
    print(text, file=sys.stderr, flush=True)


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())
