"""What commands see of this process: a fixed environment, as its own may hold keys; and how they are limited."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.sandbox.command_limits import CommandLimits
    from promptools.sandbox.protocol import Command

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "LESS": "-R",
    "TERM": "dumb",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Settings without which programs wait for a key, or fill the output with progress bars."""


def base_environment(given: Mapping[str, str] | None, *, path: str, home: str) -> dict[str, str]:
    """Return the environment of a command: `given` on top of what all commands get."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", **inherited, **QUIET, **(given or {})}


def to_arguments(command: Command, shell: str = "bash") -> list[str]:
    """Return a command as a program with arguments; a string is a line for the shell."""
    return [shell, "-c", command] if isinstance(command, str) else list(command) or [""]


def with_limits(arguments: list[str], limits: CommandLimits) -> list[str]:
    """Return a shell that limits itself and then runs a command, to be the first process of a namespace.

    A process can lower its limits for good, and what it starts inherits them. The number of processes has to be set
    inside: outside it would count all processes of the user. POSIX has no letter for it; bash's is -u, others' is -p.
    The shell is not replaced by the command, which would be the first process then: signals would not end that, and
    nobody would wait for orphans.
    """
    return ["sh", "-c", f'{_ulimits(limits)}; "$@"; exit $?', "sh", *arguments]


def _ulimits(limits: CommandLimits) -> str:
    blocks, kilobytes = max(limits.file_size // 512, 1), max(limits.memory // 1024, 1)
    processes = f"ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes}"
    return f"ulimit -c 0; ulimit -f {blocks}; ulimit -d {kilobytes}; ulimit -n {limits.open_files}; {{ {processes}; }}"
