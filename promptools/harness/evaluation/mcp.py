"""Tasks for an agent that uses the tools of MCP servers, and checks of the outcome.

A task consists of a prompt, the servers, and the checks. A check is about the answer, the calls, the state of the
servers, or the files that remain. `McpSolver` lets an agent work on a task, with new servers for each attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from promptools.errors import UsageError, clip
from promptools.harness.agent import Agent
from promptools.harness.evaluation.agent_solver import FinishedRun, OverflowRetries, run_to_end
from promptools.harness.evaluation.tasks import Solution, TaskAttempt, Unanswered, read_task_files, task_id
from promptools.harness.sandbox import Command, CommandResult, Sandbox
from promptools.harness.toolsets import Toolset
from promptools.harness.toolsets.mcp import HttpServer, McpServer, McpServers, McpToolError, read_file, read_server
from promptools.json_values import is_array, is_object, is_text_list
from promptools.types import Call, Result

# Checks of the outcome of an agent's run: of its answer, its calls, the state of the servers, and its workspace.
#
# A check is an object in the file of the task. The key `called`, `not_called`, `result_of` or `command` says of which
# kind the check is. A check with none of these keys is a check of the answer.


WORKSPACE = "${workspace}"
"""A placeholder for the folder of the attempt. It may be used in a task's prompt, in the arguments of its checks, and
in the settings of servers that are started as processes."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run, for checks to examine: the answer, the calls, the servers and the workspace."""

    answer: str
    calls: Sequence[tuple[Call, Result]]
    call_tool: Callable[[str, dict[str, Any]], str]
    """Calls a tool of the servers with which the model worked; raises `McpToolError` if the call fails."""
    run_command: Callable[[Command], CommandResult]
    workspace: Path


class Check(Protocol):
    """A check of the outcome of a run."""

    @property
    def label(self) -> str:
        """The check as it is written in the file of the task."""
        ...

    @property
    def tool(self) -> str | None:
        """The tool that the check names; None if it names none."""
        ...

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it passes."""
        ...


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A condition for a text: it must contain `contains`, and `matches` must match somewhere in it.

    Each of the two is ignored if it is None.
    """

    contains: str | None = None
    matches: re.Pattern[str] | None = None

    def failure(self, text: str) -> str:
        """Return why a text does not match the pattern; empty if it matches."""
        fits = (self.contains is None or self.contains in text) and (self.matches is None or self.matches.search(text))
        return "" if fits else f"it is {clip(repr(text))}"


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Checks that the model's last text matches a pattern."""

    label: str
    pattern: TextPattern
    tool: None = None

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it passes."""
        return self.pattern.failure(outcome.answer)


@dataclass(frozen=True, slots=True)
class CallCheck:
    """Checks that the model called a tool with `arguments`, or that it never did so if `wanted` is false.

    A call matches if it has these arguments; it may also have others. If `wanted` is true, at least one matching call
    must have succeeded. If `wanted` is false, there must be no matching call, not even one that failed.
    """

    label: str
    tool: str
    arguments: dict[str, Any]
    wanted: bool

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it passes."""
        arguments = fill_in(self.arguments, outcome.workspace)
        calls = [(call, result) for call, result in outcome.calls if call.name == self.tool]
        fitting = [(call, result) for call, result in calls if is_subset(arguments, call.arguments)]
        if self.wanted and not any(not result.is_error for _, result in fitting):
            shown = ", ".join(json.dumps(call.arguments) + " (failed)" * result.is_error for call, result in calls)
            return f"it was called with {clip(shown)}" if calls else "it was not called"
        return f"it was called with {clip(json.dumps(fitting[0][0].arguments))}" if fitting and not self.wanted else ""


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Calls a tool after the run, without the model; checks that the call succeeds and its result matches a pattern."""

    label: str
    tool: str
    arguments: dict[str, Any]
    pattern: TextPattern

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it passes."""
        try:
            result = outcome.call_tool(self.tool, fill_in(self.arguments, outcome.workspace))
        except McpToolError as error:
            return f"it fails: {clip(str(error))}"
        return self.pattern.failure(result)


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """Runs a command in the workspace after the run; checks that it exits with 0 and its output matches a pattern."""

    label: str
    command: Command
    pattern: TextPattern
    tool: None = None

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it passes."""
        result = outcome.run_command(self.command)
        if result.exit_code:
            return f"it ended with {result.exit_code}: {clip(result.output.strip())}"
        return self.pattern.failure(result.output)


@dataclass(slots=True)
class _Entry:
    """Reads a check in a file of tasks. It records which keys were read, so that unknown keys can be reported."""

    data: dict[str, Any]
    where: str
    taken: set[str] = field(default_factory=set[str])

    def take(self, key: str, kind: type) -> Any:
        self.taken.add(key)
        value = self.data.get(key)
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{self.where}: {key!r} has the wrong type")
        return value

    def pattern(self) -> TextPattern:
        contains, matches = self.take("contains", str), self.take("matches", str)
        try:
            return TextPattern(contains, None if matches is None else re.compile(matches))
        except re.error as error:
            raise UsageError(f"{self.where}: 'matches' is not a valid regular expression: {error}") from error


def read_check(data: Any, where: str) -> Check:
    """Read a check from the file of a task; raise `UsageError` if the check is not valid."""
    if not is_object(data):
        raise UsageError(f"{where}: not an object")
    entry = _Entry(data, where)
    check = _read(entry, json.dumps(data, ensure_ascii=False, default=str))
    if unknown := sorted(data.keys() - entry.taken):
        raise UsageError(f"{where}: {unknown[0]!r} is not a key of this check")
    return check


def _read(entry: _Entry, label: str) -> Check:
    for key in ("called", "not_called"):
        if key in entry.data:
            return CallCheck(label, entry.take(key, str), entry.take("arguments", dict) or {}, key == "called")
    if "result_of" in entry.data:
        return ResultCheck(label, entry.take("result_of", str), entry.take("arguments", dict) or {}, entry.pattern())
    if "command" in entry.data:
        command = entry.take("command", object)
        if not command or not (isinstance(command, str) or is_text_list(command)):
            raise UsageError(f"{entry.where}: 'command' is neither a text nor a list of texts")
        return CommandCheck(label, command, entry.pattern())
    pattern = entry.pattern()
    if pattern == TextPattern():
        raise UsageError(
            f"{entry.where}: a check has 'contains', 'matches', 'called', 'not_called', 'result_of' or 'command'"
        )
    return AnswerCheck(label, pattern)


def is_subset(part: Any, whole: Any) -> bool:
    """Return whether two JSON values are equal, except that objects in `whole` may have more keys than in `part`."""
    if is_object(part):
        return is_object(whole) and all(key in whole and is_subset(part[key], whole[key]) for key in part)
    if is_array(part):
        return is_array(whole) and len(part) == len(whole) and all(map(is_subset, part, whole))
    return bool(part == whole) and isinstance(part, bool) == isinstance(whole, bool)


def fill_in(value: Any, workspace: Path) -> Any:
    """Return a JSON value with `${workspace}` replaced by the folder `workspace` in all strings, except keys."""
    if isinstance(value, str):
        return value.replace(WORKSPACE, str(workspace))
    if is_object(value):
        return {key: fill_in(item, workspace) for key, item in value.items()}
    return [fill_in(item, workspace) for item in value] if is_array(value) else value


# Files of tasks with MCP servers. An entry has a prompt, the servers, and the checks.


KEYS = {"id", "prompt", "servers", "checks"}


@dataclass(frozen=True, slots=True)
class McpTask:
    """A task for an agent with the tools of `servers`. The `id` is given in the file, or derived from the prompt."""

    id: str
    prompt: str
    servers: Mapping[str, McpServer] = field(repr=False)
    checks: tuple[Check, ...]

    def graded(self, attempt: TaskAttempt) -> TaskAttempt:
        """Return the attempt with its grade. An attempt is correct if it ended with an answer and no check failed."""
        return replace(attempt, correct=not (attempt.error or attempt.ended or attempt.failed_checks))

    @property
    def has_command(self) -> bool:
        """Whether any check of the task runs a command."""
        return any(isinstance(check, CommandCheck) for check in self.checks)


def read_mcp_tasks(*paths: Path, servers: Path | None = None) -> list[McpTask]:
    """Read files of tasks. `servers` is a file with servers for the tasks that do not name any servers.

    Raises `UsageError` for an entry that is not a valid task, and for two tasks with the same id.
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


# A solver that lets an agent work on a task with new MCP servers, and then runs the checks of the task.


PREFIX = "promptools-eval-"


@dataclass(frozen=True, slots=True)
class McpRun(FinishedRun):
    """A finished run of an agent. `failed_checks` maps each failed check's label to the reason why it failed."""

    failed_checks: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class McpSolver:
    """A solver that lets an agent work on tasks, with new servers and an empty folder for each attempt.

    One attempt therefore cannot see what another has changed. Only servers over HTTP are shared by all attempts.
    """

    make_agent: Callable[[Toolset], Agent]
    open_sandbox: Callable[[Path], Sandbox]
    """Returns a sandbox for a workspace. The commands of checks run in this sandbox."""
    timeout: float = 60.0
    """Maximum number of seconds for a call of a server's tool, and for connecting to a server."""
    overflow_retries: int = 0
    """Maximum number of times that a run is restarted because its context overflowed.

    Each time, the run gets new servers and an empty folder.
    """

    def __call__(self, task: McpTask, repeat: int) -> Solution:  # noqa: ARG002
        """Return the answer, the total token usage of all runs, and the checks that failed after the last run.

        Raises `Unanswered` if the last run ended without an answer.
        """
        finished, _, usage = OverflowRetries(self.overflow_retries).run(partial(self._run, task))
        if finished.reason:
            raise Unanswered(finished.reason, usage)
        return Solution(finished.transcript.content, usage, finished.failed_checks)

    def _run(self, task: McpTask) -> McpRun:
        """Run an agent with new servers and an empty folder, and check the outcome."""
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
        """Start the servers of all tasks once; raise `UsageError` if a check names a tool that its task does not have.

        Without this test, a check `not_called` with a misspelled name would never fail.
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
