"""Checks of what an agent's run led to: its answer, its calls, the state of the servers, the files of its workspace.

A check is an object of the task's file, and its kind is the key that only this kind has: `called`, `not_called`,
`result_of` or `command`; one with none of them is of the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from promptools.errors import UsageError, clip
from promptools.harness.sandbox import Command, CommandResult
from promptools.harness.toolsets.mcp import McpToolError
from promptools.json_values import is_array, is_object
from promptools.types import Call, Result

WORKSPACE = "${workspace}"
"""In texts of a task: the folder of the attempt."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a run left."""

    answer: str
    calls: Sequence[tuple[Call, Result]]
    call_tool: Callable[[str, dict[str, Any]], str]
    """Calls a tool of the servers that the model worked with; raises `McpToolError` if it fails."""
    run_command: Callable[[Command], CommandResult]
    workspace: Path


class Check(Protocol):
    """One check."""

    @property
    def label(self) -> str:
        """The check as it is in the file."""
        ...

    @property
    def tool(self) -> str | None:
        """The tool that it names."""
        ...

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it does not."""
        ...


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What a text must contain, and match anywhere; nothing if both are None."""

    contains: str | None = None
    matches: re.Pattern[str] | None = None

    def failure(self, text: str) -> str:
        """Return why a text does not fit; empty if it does."""
        fits = (self.contains is None or self.contains in text) and (self.matches is None or self.matches.search(text))
        return "" if fits else f"it is {clip(repr(text))}"


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """The last text of the model fits a pattern."""

    label: str
    pattern: TextPattern
    tool: None = None

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it does not."""
        return self.pattern.failure(outcome.answer)


@dataclass(frozen=True, slots=True)
class CallCheck:
    """A tool was called with success, or was not called at all, with arguments that hold those of the check."""

    label: str
    tool: str
    arguments: dict[str, Any]
    wanted: bool

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it does not."""
        arguments = fill_in(self.arguments, outcome.workspace)
        calls = [(call, result) for call, result in outcome.calls if call.name == self.tool]
        fitting = [(call, result) for call, result in calls if is_subset(arguments, call.arguments)]
        if self.wanted and not any(not result.is_error for _, result in fitting):
            shown = ", ".join(json.dumps(call.arguments) + " (failed)" * result.is_error for call, result in calls)
            return f"it was called with {clip(shown)}" if calls else "it was not called"
        return f"it was called with {clip(json.dumps(fitting[0][0].arguments))}" if fitting and not self.wanted else ""


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """A tool that is called after the run does not fail, and its result fits a pattern."""

    label: str
    tool: str
    arguments: dict[str, Any]
    pattern: TextPattern

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it does not."""
        try:
            result = outcome.call_tool(self.tool, fill_in(self.arguments, outcome.workspace))
        except McpToolError as error:
            return f"it fails: {clip(str(error))}"
        return self.pattern.failure(result)


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A command in the workspace ends with 0, and its output fits a pattern."""

    label: str
    command: Command
    pattern: TextPattern
    tool: None = None

    def failure(self, outcome: RunOutcome) -> str:
        """Return why the check fails; empty if it does not."""
        result = outcome.run_command(self.command)
        if result.exit_code:
            return f"it ended with {result.exit_code}: {clip(result.output.strip())}"
        return self.pattern.failure(result.output)


@dataclass(slots=True)
class _Entry:
    """An object of the file whose keys are taken one after the other."""

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
    """Return a check of a task's file; raise `UsageError` if it is none."""
    if not is_object(data):
        raise UsageError(f"{where}: no object")
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


def is_text_list(value: object) -> bool:
    """Whether a value is a list of texts."""
    return is_array(value) and all(isinstance(item, str) for item in value)


def is_subset(part: Any, whole: Any) -> bool:
    """Whether a JSON value holds another: objects may have more keys, everything else is equal."""
    if is_object(part):
        return is_object(whole) and all(key in whole and is_subset(part[key], whole[key]) for key in part)
    if is_array(part):
        return is_array(whole) and len(part) == len(whole) and all(map(is_subset, part, whole))
    return bool(part == whole) and isinstance(part, bool) == isinstance(whole, bool)


def fill_in(value: Any, workspace: Path) -> Any:
    """Return a JSON value in whose texts `${workspace}` is the folder."""
    if isinstance(value, str):
        return value.replace(WORKSPACE, str(workspace))
    if is_object(value):
        return {key: fill_in(item, workspace) for key, item in value.items()}
    return [fill_in(item, workspace) for item in value] if is_array(value) else value
