"""A solver that lets an agent work with MCP servers of its own, and makes the checks of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from promptools.errors import UsageError
from promptools.evaluation.mcp.checks import RunOutcome, fill_in
from promptools.evaluation.mcp.mcp_task_file import McpTask
from promptools.evaluation.tasks.agent_solver import FinishedRun, OverflowRetries, run_to_end
from promptools.evaluation.tasks.task_runner import Solution, Unanswered
from promptools.harness.agent import Agent
from promptools.harness.sandbox import Command, CommandResult, Sandbox
from promptools.harness.toolsets import Toolset
from promptools.harness.toolsets.mcp import HttpServer, McpServer, McpServers

PREFIX = "promptools-eval-"


@dataclass(frozen=True, slots=True)
class McpRun(FinishedRun):
    """A run, and the checks that failed after it, with the reason."""

    failed_checks: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class McpSolver:
    """Starts the servers of a task anew for each attempt, with an empty folder.

    So no attempt sees the state of another one; but servers that are reached over HTTP are the same for all attempts.
    """

    make_agent: Callable[[Toolset], Agent]
    open_sandbox: Callable[[Path], Sandbox]
    """Returns the sandbox in which commands of checks run."""
    timeout: float = 60.0
    """Seconds that a call of a server may take."""
    overflow_retries: int = 0
    """Times that a run whose context overflows is begun again, with new servers and an empty folder."""

    def __call__(self, task: McpTask, repeat: int) -> Solution:  # noqa: ARG002
        """Return the answer, the tokens of all runs, and the checks that failed in the last one."""
        finished, _, usage = OverflowRetries(self.overflow_retries).run(partial(self._run, task))
        if finished.reason:
            raise Unanswered(finished.reason, usage)
        return Solution(finished.transcript.content, usage, finished.failed_checks)

    def _run(self, task: McpTask) -> McpRun:
        """Let an agent work with servers and a folder of their own, and check what came of it."""
        with TemporaryDirectory(prefix=PREFIX) as folder:
            workspace = Path(folder).resolve()
            with self._servers(task, workspace) as toolset:
                transcript, reason = run_to_end(self.make_agent(toolset), fill_in(task.prompt, workspace))
                if reason:
                    return McpRun(transcript, reason)
                tools = {entry.tool.name: entry.run for entry in toolset.tools}

                def call_tool(name: str, arguments: dict[str, Any]) -> str:
                    return str(tools[name](**arguments))

                def run_command(command: Command) -> CommandResult:
                    with closing(self.open_sandbox(workspace)) as sandbox:
                        return sandbox.run(command)

                calls = list(zip(transcript.calls, transcript.results, strict=False))
                outcome = RunOutcome(transcript.content, calls, call_tool, run_command, workspace)
                failures = {check.label: check.failure(outcome) for check in task.checks}
        return McpRun(transcript, failed_checks={label: why for label, why in failures.items() if why})

    def check_tools(self, tasks: Iterable[McpTask]) -> None:
        """Start all servers once; raise `UsageError` if a check names a tool that they do not have.

        A check with a misspelt `not_called` would never fail.
        """
        known: list[tuple[Mapping[str, McpServer], set[str]]] = []
        for task in tasks:
            names = next((names for servers, names in known if servers == task.servers), None)
            if names is None:
                with TemporaryDirectory(prefix=PREFIX) as folder, self._servers(task, Path(folder)) as toolset:
                    names = {entry.tool.name for entry in toolset.tools}
                known.append((task.servers, names))
            for check in task.checks:
                if check.tool is not None and check.tool not in names:
                    have = ", ".join(sorted(names)) or "none"
                    raise UsageError(f"task {task.id!r}: there is no tool {check.tool!r}. The tools are: {have}")

    def _servers(self, task: McpTask, workspace: Path) -> McpServers:
        servers = {name: _in_workspace(server, workspace) for name, server in task.servers.items()}
        return McpServers(servers, timeout=self.timeout)


def _in_workspace(server: McpServer, workspace: Path) -> McpServer:
    if isinstance(server, HttpServer):
        return server
    return replace(
        server,
        args=fill_in(list(server.args), workspace),
        env=fill_in(dict(server.env), workspace),
        cwd=fill_in(server.cwd, workspace),
    )
