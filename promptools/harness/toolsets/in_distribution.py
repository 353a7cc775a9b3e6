"""The tools that gpt-oss was trained on: `container.exec`, `repo_browser.*` and `python`.

First come the declarations of the tools, and the texts that report a command's result to the model. Then come
`container.exec` and `python`, and last `gpt_oss_tools`, which binds all tools to a workspace and a sandbox. The
functions of `repo_browser` are in the module of that name.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from secrets import token_hex
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

from promptools.errors import UsageError
from promptools.harness.sandbox import CommandResult, Sandbox, SandboxProcess
from promptools.harness.sandbox.processes import INTERRUPTED, INTERVAL, OutputBuffer, is_interrupted
from promptools.harness.sandbox.protocol import TIMED_OUT, Command
from promptools.harness.toolsets.agent_tool import AgentTool, Toolset, ToolTimeoutError
from promptools.harness.toolsets.patch import EMPTY_PATCH, patch_tool
from promptools.harness.toolsets.repo_browser import FileReader, FileSearch, FolderLister, WorkspaceFiles
from promptools.json_values import try_json
from promptools.types import Schema, Tool

# The declarations of the tools: names, parameters and their order, as gpt-oss knows them.
#
# Models also use parameters that are not declared (`timeout` of `container.exec`, `line_numbers` of `open_file`). They
# are accepted, so no schema forbids other parameters. A parameter with a default in the function is not required: in
# the paper's harness, a missing path means the workspace, and the default depth of a tree is 3.


CONTAINER = "container"
REPO_BROWSER = "repo_browser"
PYTHON = "python"

NAMESPACES = {
    CONTAINER: "Shell commands in the container that holds the code.",
    REPO_BROWSER: "Reading, searching and changing the files of the repository.",
}

_STRING: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_BOOLEAN: Schema = {"type": "boolean"}
_PATH_ALIASES = {"file_path": "path", "filename": "path", "file": "path"}
_FOLDER_ALIASES = {"directory": "path", "dir": "path", "folder": "path"}
_QUERY_ALIASES = {"pattern": "query", "regex": "query"}
_LINE_ALIASES = {"start_line": "line_start", "end_line": "line_end", "start": "line_start", "end": "line_end"}


def container_exec_definition() -> Tool:
    """Return the definition of `container.exec`."""
    return _tool(
        "container.exec",
        "Runs a command in the container and returns its output.\n"
        '- `command` is a program and its arguments. For a shell line pass ["bash", "-lc", "..."].\n'
        "- It starts in the root of the repository; `workdir` is another folder to start in.",
        {"command": {"type": "array", "items": _STRING, "description": "The command to run."}},
        required=("command",),
        aliases={"cmd": "command", "commands": "command"},
        dangerous=True,
    )


def print_tree_definition(names: Sequence[str] = ()) -> Tool:
    """Return the definition of `repo_browser.print_tree`.

    `names` are further names under which the model may call the tool. No other tool may have one of these names.
    """
    return _tool(
        "repo_browser.print_tree",
        "Prints the tree of files below a folder.",
        {"path": _STRING, "depth": _NUMBER},
        aliases=_FOLDER_ALIASES,
        names=names,
    )


def search_definition() -> Tool:
    """Return the definition of `repo_browser.search`."""
    return _tool(
        "repo_browser.search",
        "Searches the files below a path for a regular expression.",
        {"path": _STRING, "query": _STRING, "max_results": _NUMBER},
        required=("query",),
        aliases={**_QUERY_ALIASES, **_FOLDER_ALIASES, **_PATH_ALIASES},
        names=("repo_browser.find", "repo_browser.grep"),
    )


def open_file_definition(*, line_numbers: bool) -> Tool:
    """Return the definition of `repo_browser.open_file`, with or without the parameter `line_numbers`."""
    return _tool(
        "repo_browser.open_file",
        "Shows a file, or some lines of it.",
        {
            "path": _STRING,
            "line_start": _NUMBER,
            "line_end": _NUMBER,
            **({"line_numbers": _BOOLEAN} if line_numbers else {}),
        },
        required=("path",),
        aliases={**_PATH_ALIASES, **_LINE_ALIASES},
        names=("repo_browser.read_file",),
    )


def list_dir_definition() -> Tool:
    """Return the definition of `repo_browser.list_dir`."""
    return _tool(
        "repo_browser.list_dir",
        "Lists the files of a folder.",
        {"path": _STRING, "depth": _NUMBER},
        aliases=_FOLDER_ALIASES,
        names=("repo_browser.list_files", "repo_browser.list_directory"),
    )


def apply_patch_definition() -> Tool:
    """Return the definition of `repo_browser.apply_patch`."""
    return _tool(
        "repo_browser.apply_patch",
        "Changes files by a patch.",
        {"patch": {"type": "string", "default": EMPTY_PATCH}},
        names=("apply_patch",),
        aliases={"input": "patch", "diff": "patch"},
        free_text="patch",
        dangerous=True,
    )


def python_definition(description: str) -> Tool:
    """Return the definition of `python`."""
    return _tool(
        PYTHON,
        description,
        {"code": {"type": "string", "description": "The code to run."}},
        required=("code",),
        aliases={"script": "code", "source": "code"},
        free_text="code",
        dangerous=True,
    )


def _tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    *,
    required: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    free_text: str | None = None,
    dangerous: bool = False,
) -> Tool:
    schema: Schema = {"type": "object", "properties": dict(parameters)}
    if required:
        schema["required"] = list(required)
    return Tool(
        name,
        description,
        schema,
        dangerous=dangerous,
        aliases=dict(aliases or {}),
        names=tuple(names),
        free_text=free_text,
    )


# The text that the model reads for the result of a command.


Observation: TypeAlias = Callable[[CommandResult, float], str]
"""A function that returns the text for the model. It gets a command's result and the command's time-out in seconds."""


def observe(result: CommandResult, seconds: float, observation: Observation, note: str = "") -> str:
    """Return the text for the model about a command's result, followed by `note`.

    Raises `ToolTimeoutError` if the command timed out.
    """
    text = observation(result, seconds) + note
    if result.timed_out:
        raise ToolTimeoutError(
            f"the command took more than {seconds:g} seconds",
            seconds=seconds,
            output=result.output,
            observation=text,
        )
    return text


def plain_observation(result: CommandResult, seconds: float) -> str:
    """Return the output of a command. If the command failed or was ended, a note in brackets follows."""
    notes = [_ended(result, seconds)] if result.timed_out or result.stopped else []
    if result.exit_code and not notes:
        notes.append(f"[exit code {result.exit_code}]")
    if not result.output.strip() and not notes:
        return "[no output, exit code 0]"
    end = "" if not result.output or result.output.endswith("\n") else "\n"
    return result.output + (end + "\n".join(notes) if notes else "")


def tagged_observation(result: CommandResult, seconds: float) -> str:
    """Return the exit code and the output of a command, each in tags as in the paper's harness."""
    if result.timed_out or result.stopped:
        return f"{_ended(result, seconds)}\n<output>\n{result.output}\n</output>"
    return f"<returncode>{result.exit_code}</returncode>\n<output>\n{result.output}</output>"


def _ended(result: CommandResult, seconds: float) -> str:
    if result.stopped:
        return f"[the command was ended: {result.stopped}]"
    return f"[the command was ended after {seconds:g} seconds; it must not wait for input, and long work needs parts]"


# `container.exec`: one command, run to its end.


_LEAST_MILLISECONDS = 1000
"""A time-out of at least this number is read as milliseconds, which is what models mean by it. A smaller number is read
as seconds, because in milliseconds it would be less than a second, the minimum for a command."""
_LONGEST_PROGRAM = 4096


def container_exec(sandbox: Sandbox, observation: Observation, timeout: float) -> Callable[..., str]:
    """Return the function that runs `container.exec`.

    A command's time-out is `timeout` seconds, or less if the model asks for less.
    """

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
    """Return the command that a model means: a list is a program and its arguments, a string is a line for the shell.

    A string such as `'["ls", "-l"]'` is read as a list. A list of one string with spaces, such as `["ls -l"]`, is a
    line for the shell, because no program has such a name. If a model passes a string, it becomes a list of one string
    when the arguments are adapted to the schema, which requires a list.
    """
    if isinstance(given, str):
        inner = _read_list(given)
        return given if inner is None else read_command(inner)
    if not isinstance(given, list):
        raise TypeError(f"the command is {type(given).__name__}; it must be a list of strings")
    words = [word if isinstance(word, str) else json.dumps(word) for word in cast("list[object]", given)]
    if not words:
        raise ValueError("the command is empty")
    if len(words) == 1 and (any(map(str.isspace, words[0])) or len(words[0]) > _LONGEST_PROGRAM):
        return words[0]
    return words


def _read_list(text: str) -> list[object] | None:
    if not text.lstrip().startswith('["'):
        return None  # `[ -f x ] && y` is a shell line
    value = try_json(text)
    return cast("list[object]", value) if isinstance(value, list) else None


def _to_seconds(timeout: float) -> float:
    value = float(timeout)
    return value / 1000 if value >= _LEAST_MILLISECONDS else max(value, 1.0)


def _strings(env: object) -> dict[str, str] | None:
    if not isinstance(env, dict):
        return None
    return {str(name): str(value) for name, value in cast("dict[object, object]", env).items()}


def _inside(workspace: str, workdir: str | None) -> str | None:
    """Return the folder in which a command starts; None for the workspace.

    The folder is not checked here: the sandbox decides which folders commands may see.
    """
    return None if not workdir else str(PurePosixPath(workspace) / workdir)


# `python`: code in an interpreter of the sandbox. Either each call gets a new interpreter, or one is kept.


PROGRAM = "python3"
DEFAULT_OUTPUT = 10_000
LOST = "\n[the interpreter has ended, and all variables, functions and imports are lost; the next call gets a new one]"
_PIECE = 1 << 16
_FAILED = b"1"


def python_description(kind: str, timeout: float) -> str:
    """Return the description of the tool `python` for the model."""
    state = (
        "Variables, functions and imports are kept from call to call."
        if kind == "stateful"
        else "Each call is a program of its own: nothing is kept from earlier calls."
    )
    return (
        f"Runs Python code and returns what it prints, and the value of its last line. {state}"
        f" It has {timeout:g} seconds, no input, and starts in the root of the repository."
    )


KILLED = 128 + 9


class PythonSession:
    """Runs Python code in the sandbox, in a new interpreter for each call.

    If `stateful` is true, one interpreter is kept for all calls. It is replaced after a time-out, or if it has ended.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        stateful: bool,
        timeout: float,
        observation: Observation = plain_observation,
        max_output: int = DEFAULT_OUTPUT,
    ) -> None:
        self._sandbox = sandbox
        self._stateful = stateful
        self._timeout = timeout
        self._observation = observation
        self._max_output = max_output
        self._process: SandboxProcess | None = None
        self._lock = Lock()

    def run(self, code: str, **_: Any) -> str:
        """Run code and return the text for the model; raise `ToolTimeoutError` if the code takes too long."""
        with self._lock:
            result, gone = self._run(code)
            if gone or not self._stateful:
                self.close()
        return observe(result, self._timeout, self._observation, LOST if gone and self._stateful else "")

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _run(self, code: str) -> tuple[CommandResult, bool]:
        """Run code; return the result, and whether the interpreter must be replaced."""
        if self._process is None:
            self._process = self._sandbox.start([PROGRAM, "-c", worker_source()])
        mark = f"\x1e{token_hex(16)} "  # the code cannot know the mark, so it cannot print a false end
        request = json.dumps({"code": code, "mark": mark}) + "\n"
        reply = _Reply(self._process, mark.encode(), self._max_output)
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except OSError:
            pass  # the interpreter has ended; its output has the reason
        result = reply.read(time.monotonic() + self._timeout)
        return result, result.timed_out or reply.ended


class _Reply:
    """Reads the output of a piece of code until the end marker comes, the interpreter exits, or the deadline passes."""

    def __init__(self, process: SandboxProcess, mark: bytes, max_output: int) -> None:
        self.ended = False
        """Whether the interpreter has ended."""
        self._process = process
        self._descriptor = process.stdout.fileno()
        self._mark = mark
        self._buffer = OutputBuffer(max_output)
        self._held = b""

    def read(self, deadline: float) -> CommandResult:
        """Read until the code has ended, or until the deadline."""
        os.set_blocking(self._descriptor, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                if is_interrupted():
                    self.ended = True
                    self._buffer.feed(self._held)
                    return CommandResult(self._buffer.text(), KILLED, False, self._buffer.truncated, INTERRUPTED)
                if not selector.select(min(left, INTERVAL)):
                    continue
                data = os.read(self._descriptor, _PIECE)
                if not data:
                    self.ended = True
                    self._buffer.feed(self._held)
                    return self._result(1)
                code = self._take(data)
                if code is not None:
                    return self._result(code)
        self._buffer.feed(self._held)
        return self._result(TIMED_OUT, timed_out=True)

    def _take(self, data: bytes) -> int | None:
        """Add output. Return the exit code if the end marker and the exit code have arrived, else None."""
        data = self._held + data
        before, mark, after = data.partition(self._mark)
        if mark:
            if b"\n" not in after:
                self._held = data
                return None
            self._buffer.feed(before)
            return int(after.startswith(_FAILED))
        held = len(self._mark) - 1  # the data may end with the beginning of the mark
        self._buffer.feed(data[:-held])
        self._held = data[-held:]
        return None

    def _result(self, code: int, *, timed_out: bool = False) -> CommandResult:
        stopped = self._process.stopped if self.ended else ""
        return CommandResult(self._buffer.text(), code, timed_out, self._buffer.truncated, stopped)


@cache
def worker_source() -> str:
    """Return the source code of `python_worker`, the program with which an interpreter runs the model's code."""
    return (resources.files("promptools.harness.toolsets") / "python_worker.py").read_text(encoding="utf-8")


# The tools together.


Variant: TypeAlias = Literal["paper", "code"]
"""Which tools are declared. `paper`: the tools in the paper, where `list_dir` is another name of `print_tree`. `code`:
the tools in the paper's code, where `list_dir` is a separate tool and `open_file` has the parameter `line_numbers`."""
PythonKind: TypeAlias = Literal["stateless", "stateful"]

DEFAULT_TIMEOUT = 300.0

_LIST_DIR_NAMES = ("repo_browser.list_dir", "repo_browser.list_files", "repo_browser.list_directory")


def gpt_oss_tools(
    root: Path | str,
    sandbox: Sandbox,
    *,
    variant: Variant = "paper",
    python: PythonKind | None = None,
    observation: Observation = plain_observation,
    timeout: float = DEFAULT_TIMEOUT,
    max_output: int = DEFAULT_OUTPUT,
) -> Toolset:
    """Return the tools that gpt-oss was trained on, for the workspace `root`; commands run in `sandbox`.

    `root` must be the root of the sandbox. `python` adds the tool `python`: "stateless" starts a new interpreter for
    each call, "stateful" keeps one. `timeout`, in seconds, limits each command. `max_output`, in bytes, limits what the
    file tools return.
    """
    if variant not in ("paper", "code"):
        raise UsageError(f"the variant is {variant!r}; there are 'paper' and 'code'")
    if Path(root).resolve() != sandbox.root:
        raise UsageError(f"the tools' root {str(root)!r} is not the sandbox's, {str(sandbox.root)!r}")
    files = WorkspaceFiles(sandbox.root, sandbox.workspace)
    lister = FolderLister(files, max_output)
    paper = variant == "paper"
    tools = [
        AgentTool(container_exec_definition(), container_exec(sandbox, observation, timeout)),
        AgentTool(print_tree_definition(_LIST_DIR_NAMES if paper else ()), lister.print_tree, parallel=True),
        AgentTool(search_definition(), FileSearch(files, sandbox, max_output).search, parallel=True),
        AgentTool(open_file_definition(line_numbers=not paper), FileReader(files, max_output).open_file, parallel=True),
    ]
    if not paper:
        tools.append(AgentTool(list_dir_definition(), lister.list_dir, parallel=True))
    tools.append(AgentTool(apply_patch_definition(), patch_tool(sandbox.root).run))
    if python is not None:
        session = PythonSession(sandbox, stateful=python == "stateful", timeout=timeout, observation=observation)
        tools.append(AgentTool(python_definition(python_description(python, timeout)), session.run))
    return Toolset(tuple(tools), dict(NAMESPACES))
