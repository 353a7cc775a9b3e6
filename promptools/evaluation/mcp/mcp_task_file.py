"""Files of tasks over MCP servers: a prompt, the servers, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from promptools.errors import UsageError
from promptools.evaluation.mcp.checks import Check, CommandCheck, read_check
from promptools.evaluation.tasks.run_log import TaskAttempt
from promptools.evaluation.tasks.task_file import read_task_files, task_id
from promptools.harness.toolsets.mcp import McpServer, read_file, read_server
from promptools.json_values import is_array, is_object

KEYS = {"id", "prompt", "servers", "checks"}


@dataclass(frozen=True, slots=True)
class McpTask:
    """A task for an agent with the tools of `servers`. `id` is the file's own, or made of the prompt."""

    id: str
    prompt: str
    servers: Mapping[str, McpServer] = field(repr=False)
    checks: tuple[Check, ...]

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return an attempt, which is correct if it has an answer and no check failed."""
        return replace(attempt, correct=not (attempt.error or attempt.ended or attempt.failed_checks))

    @property
    def has_command(self) -> bool:
        """Whether a check runs a command."""
        return any(isinstance(check, CommandCheck) for check in self.checks)


def read_mcp_tasks(*paths: Path, servers: Path | None = None) -> list[McpTask]:
    """Read files of tasks; `servers` is the file of the servers for tasks that name none.

    Raises `UsageError` for an entry that is no task, and for two tasks with one id.
    """
    default = None if servers is None else read_file(servers)
    return read_task_files(paths, lambda data, where, path: _read_task(data, where, path, default))


def _read_task(data: dict[str, Any], where: str, path: Path, default: Mapping[str, McpServer] | None) -> McpTask:
    if unknown := sorted(data.keys() - KEYS):
        raise UsageError(f"{where}: {unknown[0]!r} is not a key of a task")
    prompt, checks = data.get("prompt"), data.get("checks")
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f"{where}: 'prompt' must be a text")
    if not is_array(checks) or not checks:
        raise UsageError(f"{where}: 'checks' must be a list of at least one check")
    return McpTask(
        task_id(data, prompt),
        prompt,
        _read_servers(data.get("servers"), where, path, default),
        tuple(read_check(check, f"{where}, check {number}") for number, check in enumerate(checks, 1)),
    )


def _read_servers(
    given: object, where: str, path: Path, default: Mapping[str, McpServer] | None
) -> Mapping[str, McpServer]:
    if isinstance(given, str):
        return read_file(path.parent / given)
    if is_object(given) and all(map(is_object, given.values())):
        return {name: read_server(name, settings) for name, settings in given.items()}
    if given is None and default is not None:
        return default
    raise UsageError(f"{where}: 'servers' must be the name of a file with 'mcpServers', or servers by name")
