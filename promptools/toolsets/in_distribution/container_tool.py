"""`container.exec`: one command, run to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, cast

from promptools.harness.sandbox import Sandbox
from promptools.harness.sandbox.protocol import Command
from promptools.toolsets.in_distribution.observations import Observation, observe

_LEAST_MILLISECONDS = 1000
"""A smaller time-out is in seconds: models mean milliseconds, but no command is given less than a second."""
_LONGEST_PROGRAM = 4096


def container_exec(sandbox: Sandbox, observation: Observation, timeout: float) -> Callable[..., str]:
    """Return the function of `container.exec`; `timeout` is that of commands for which the model names none."""

    def run(
        command: object,
        workdir: str | None = None,
        timeout: float | None = None,
        env: Any = None,
        **_: Any,
    ) -> str:
        seconds = default if timeout is None else min(_to_seconds(timeout), default)
        folder = _inside(sandbox.workspace, workdir)
        result = sandbox.run(read_command(command), cwd=folder, env=_strings(env), timeout=seconds)
        return observe(result, seconds, observation)

    default = timeout
    return run


def read_command(given: object) -> Command:
    """Return what a model means by `command`: a list is a program and its arguments, a string is a line for the shell.

    A list written as a string is read. A list of one string that has spaces is a line too: there is no program of that
    name, and it is what a string becomes where a schema wants a list.
    """
    if isinstance(given, str):
        inner = _read_list(given)
        return given if inner is None else read_command(inner)
    if not isinstance(given, list):
        raise TypeError(f"the command is {type(given).__name__}; it has to be a list of strings")
    words = [word if isinstance(word, str) else json.dumps(word) for word in cast("list[object]", given)]
    if not words:
        raise ValueError("the command is empty")
    if len(words) == 1 and (any(map(str.isspace, words[0])) or len(words[0]) > _LONGEST_PROGRAM):
        return words[0]
    return words


def _read_list(text: str) -> list[object] | None:
    if not text.lstrip().startswith('["'):
        return None  # `[ -f x ] && y` is a shell line
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return cast("list[object]", value) if isinstance(value, list) else None


def _to_seconds(timeout: float) -> float:
    value = float(timeout)
    return value / 1000 if value >= _LEAST_MILLISECONDS else max(value, 1.0)


def _strings(env: object) -> dict[str, str] | None:
    if not isinstance(env, dict):
        return None
    return {str(name): str(value) for name, value in cast("dict[object, object]", env).items()}


def _inside(workspace: str, workdir: str | None) -> str | None:
    """Return the folder to start in; it is looked up inside, so the sandbox decides whether it may be seen."""
    return None if not workdir else str(PurePosixPath(workspace) / workdir)
