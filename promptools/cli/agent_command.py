"""The command `promptools agent`: the run, its live view, and the changes that it made in the folder."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import json
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from promptools.cli.agent_setup import agent_toolsets, build_agent, instructions, is_asked, workspace
from promptools.cli.benchmark_run import json_object
from promptools.cli.command_client import connect, default_model, print_destination
from promptools.cli.shared_arguments import (
    add_endpoint,
    add_json,
    add_sandbox,
    at_least,
    open_sandbox,
    seconds,
)
from promptools.cli.terminal_output import print_json, print_progress, print_styled, printable
from promptools.errors import UsageError
from promptools.harness.agent import (
    Agent,
    CallEvent,
    CompactionEvent,
    ReasoningEvent,
    ResultEvent,
    RetryEvent,
    StepEvent,
    TextEvent,
    Transcript,
    trajectory,
)
from promptools.harness.agent.harness_errors import TerminatingError
from promptools.harness.sandbox.folder_walk import walk
from promptools.harness.toolsets import AgentTool, Toolset
from promptools.wire.chat_encoder import add_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from promptools.harness.agent import RunEvent


# The live view of a run: text as it arrives, calls and results, and in a terminal also a status line.


SHOWN_LINES = 12
"""Maximum number of lines of a call's result that are shown."""
SHOWN_ARGUMENTS = 400


class AgentView:
    """Shows the events of a run. Control characters in the text of models and tools never reach the terminal."""

    def __init__(self, *, shown: Literal["all", "text", "nothing"] = "all") -> None:
        self._shown = shown
        self._stack = ExitStack()
        self._console: Any = None
        self._status: Any = None
        self._began = time.monotonic()
        self._usage: dict[str, Any] | None = None
        self._steps = 0
        self._in_text, self._style = "", ""

    def __enter__(self) -> Self:
        if self._shown == "all" and sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console

            self._console = Console(highlight=False)
            self._status = self._stack.enter_context(self._console.status("working"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_text()
        self._stack.close()
        self._status = None

    def show(self, event: RunEvent) -> None:
        """Show an event."""
        if self._shown == "nothing" or (self._shown == "text" and not isinstance(event, TextEvent | StepEvent)):
            return
        match event:
            case TextEvent(text):
                self._write(text, "")
            case ReasoningEvent(text):
                self._write(text, "dim")
            case CallEvent(call):
                self._line(
                    ("call ", "bold green"), (f"{call.name} {printable(call.arguments_json)[:SHOWN_ARGUMENTS]}", "")
                )
            case ResultEvent(result):
                style = "red" if result.is_error else "dim"
                self._line((_first_lines(printable(result.content)), style))
            case RetryEvent(attempt, error, message):
                self._line((f"attempt {attempt} cannot be used: {error}: {printable(message)[:300]}", "yellow"))
            case CompactionEvent(stage, before, after):
                self._line((f"the conversation was made shorter ({stage}): {before} to {after} characters", "yellow"))
            case StepEvent(number):
                self._end_text()
                self._steps = number
                self._usage = add_usage(self._usage, event.usage)
            case _:
                pass
        self._show_status()

    def ask(self, question: str) -> bool:
        """Ask the user a question, and return whether the answer is yes. Any other answer means no."""
        self._end_text()
        if self._status is not None:
            self._status.stop()
        try:
            answer = self._input(f"{question} [y/N] ")
        except EOFError:
            answer = ""
        if self._status is not None:
            self._status.start()
        return answer.strip().lower() in {"y", "yes"}

    def read_message(self) -> str:
        """Return the user's next message; empty at the end of the input."""
        self._end_text()
        if self._status is not None:
            self._status.stop()
        try:
            message = self._input("\n> ").strip()
        except EOFError:
            message = ""
        if self._status is not None:
            self._status.start()
        return message

    def _input(self, prompt: str) -> str:
        if self._shown != "nothing":
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)  # stdout is for JSON alone
        return input()

    def _show_status(self) -> None:
        if self._status is not None:
            tokens = (self._usage or {}).get("total_tokens", 0)
            self._status.update(f"step {self._steps + 1}, {tokens} tokens, {time.monotonic() - self._began:.0f} s")

    def _write(self, text: str, style: str) -> None:
        """Write the complete lines of a text; keep the rest until its line is complete, or the text ends."""
        if style != self._style:
            self._end_text()
        self._style = style
        self._in_text += printable(text)
        while "\n" in self._in_text:
            line, _, self._in_text = self._in_text.partition("\n")
            print_styled([(line, style)], self._console)

    def _end_text(self) -> None:
        if self._in_text:
            print_styled([(self._in_text, self._style)], self._console)
            self._in_text = ""

    def _line(self, *pieces: tuple[str, str]) -> None:
        self._end_text()
        print_styled(pieces, self._console)


def _first_lines(text: str) -> str:
    lines = text.splitlines()
    more = [f"... {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else []
    return "\n".join([*lines[:SHOWN_LINES], *more])


# What changed in a folder between two moments, as a unified diff.
#
# git is not used: the model's commands may have changed git's settings, which can make git run programs. The files of a
# nested repository are shown like all others. Of the repository's `.git`, only the fact that it changed is shown.


MAX_FILE = 1 << 20
"""Maximum size in bytes of a file whose changes are shown. For a larger file, the diff only says that it changed."""
MAX_HELD = 256 * 2**20
"""Maximum number of bytes of files held in memory. For any further file, the diff only says that it changed."""
_REPOSITORIES = frozenset({".git", ".hg", ".svn"})
_SKIPPED = frozenset({*_REPOSITORIES, "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})

State: TypeAlias = "tuple[int, int, bytes | None]"
"""The state of a file: the time of its last change, its size, and its content (None if not kept in memory)."""


class FolderSnapshot:
    """The files of a folder at one moment."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files, self._repositories = _read(root), _read_repositories(root)

    def difference(self) -> str:
        """Return the changes since this snapshot as a unified diff; empty if there are none."""
        now = _read(self._root)
        parts: list[str] = []
        for name in sorted(self._files.keys() | now.keys()):
            before, after = self._files.get(name), now.get(name)
            if before != after and (before is None or after is None or before[1:] != after[1:] or before[2] is None):
                parts.append(_file_difference(name, before, after))
        return "".join([*parts, *self._changed_repositories()])

    def _changed_repositories(self) -> Iterator[str]:
        now = _read_repositories(self._root)
        for name in sorted(self._repositories.keys() | now.keys()):
            before, after = self._repositories.get(name), now.get(name)
            if before != after:
                look = "" if after is None else "; look at its hooks and settings before you run git there"
                yield f"{name}: {_what_happened(before, after)}, which is not shown{look}\n"


def _walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder, without entering the folders in `_SKIPPED`. The names of these folders are still listed."""
    for folder, names, entries in walk(root):
        yield folder, [*names], entries
        names[:] = [name for name in names if name not in _SKIPPED]


def _read(root: Path) -> dict[str, State]:
    files: dict[str, State] = {}
    held = 0
    for folder, names, entries in _walk(root):
        links = (name for name in names if Path(folder, name).is_symlink())
        for entry in (*entries, *links):
            path = Path(folder, entry)
            try:
                state = path.lstat()
                small = not path.is_symlink() and path.is_file() and state.st_size <= MAX_FILE
                content = path.read_bytes() if small and held + state.st_size <= MAX_HELD else None
            except OSError:
                continue  # the file is gone, or must not be read
            held += len(content or b"")
            files[path.relative_to(root).as_posix()] = (state.st_mtime_ns, state.st_size, content)
    return files


def _read_repositories(root: Path) -> dict[str, int]:
    """Return a fingerprint of the `.git` (or `.hg`, `.svn`) of each nested repository.

    The root's own repository is left out, because sandboxes protect its `.git`.
    """
    return {
        Path(folder, name).relative_to(root).as_posix(): _fingerprint(Path(folder, name))
        for folder, names, _ in _walk(root)
        for name in names
        if name in _REPOSITORIES and Path(folder) != root
    }


def _fingerprint(folder: Path) -> int:
    """Return a hash of the names, sizes and times of a folder's files. The hash is only valid within this process."""
    states: list[tuple[str, int, int]] = []
    for place, _, entries in walk(folder):
        for entry in entries:
            path = Path(place, entry)
            with contextlib.suppress(OSError):  # the file is gone
                state = path.lstat()
                states.append((str(path), state.st_mtime_ns, state.st_size))
    return hash(frozenset(states))


def _file_difference(name: str, before: State | None, after: State | None) -> str:
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"{name}: {_what_happened(before, after)}\n"
    origin = "/dev/null" if before is None else f"a/{name}"
    target = "/dev/null" if after is None else f"b/{name}"
    lines = difflib.unified_diff(old, new, origin, target)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _what_happened(before: object, after: object) -> str:
    return "added" if before is None else "removed" if after is None else "changed"


def _lines(state: State | None) -> list[str] | None:
    """Return the lines of a file; an empty list if the file does not exist, and None if its lines cannot be shown."""
    if state is None:
        return []
    content = state[2]
    if content is None or b"\0" in content:
        return None
    return content.decode("utf-8", "replace").splitlines(keepends=True)


# The command.


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("task", nargs="?", help="the task (with --resume: an additional message)")
    parser.add_argument("--repo", metavar="DIR", default=".", help="folder to work in (default: the current one)")
    add_endpoint(parser)
    add_sandbox(parser)
    parser.add_argument("--python", choices=("stateless", "stateful"), help="also offer the tool `python`")
    parser.add_argument(
        "--discovered",
        metavar="DIR",
        help="what `promptools discover` wrote: declare the tools under the names that the model knows",
    )
    parser.add_argument("--yes", action="store_true", help="run commands without asking")
    _add_asking(parser)
    _add_run(parser)


def _add_asking(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_argument_group("what the model is told, and how it is asked")
    asked.add_argument("--mcp", metavar="FILE", help="offer the tools of these MCP servers, too: JSON with mcpServers")
    asked.add_argument(
        "--search",
        metavar="URL|TOOL",
        help="offer gpt-oss' browser over this search: a URL with {query} that answers in JSON, or a tool of --mcp",
    )
    asked.add_argument("--system", metavar="FILE", help="instructions, before those of AGENTS.md in the folder")
    asked.add_argument("--no-agents-file", action="store_true", help="do not read AGENTS.md")
    asked.add_argument("--request", type=json_object, default={}, metavar="JSON", help="keys to add to each request")
    asked.add_argument("--effort", metavar="LEVEL", help="reasoning effort: low, medium or high")
    asked.add_argument("--temperature", type=float, metavar="T", help="temperature of each request")
    asked.add_argument("--max-tokens", type=at_least(1, "tokens"), metavar="N", help="tokens of a reply, at most")
    asked.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="ask for further messages after each answer, until an empty one",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how the run goes")
    how.add_argument("--policy", choices=("default", "paper"), default="default", help="see docs/tasks/run-an-agent.md")
    how.add_argument(
        "--any-family", action="store_true", help="use --policy paper with a model that is known not to be gpt-oss, too"
    )
    how.add_argument("--steps", type=at_least(1, "steps"), metavar="N", help="end after N replies (default: 50)")
    how.add_argument("--tokens", type=at_least(1, "tokens"), metavar="N", help="end after N tokens")
    how.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    how.add_argument("--tape", metavar="FILE", help="record the run in FILE")
    how.add_argument("--resume", metavar="FILE", help="continue the last run of this tape, and keep recording")
    add_json(parser)
    how.add_argument(
        "--acp",
        action="store_true",
        help="be the agent of an editor, which speaks the Agent Client Protocol on stdin and stdout; --tape is then a"
        " folder, in which sessions are kept",
    )
    how.add_argument(
        "--events", action="store_true", help="print each event as a line of JSON, and at last what --json prints"
    )
    how.add_argument(
        "--trajectory", metavar="FILE", help="write the run as mini-swe-agent JSON, with the diff as its result"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the agent, and print what the agent changed."""
    if arguments.acp:
        from promptools.cli.agent_acp import serve

        return serve(arguments)
    if not arguments.task and not arguments.resume:
        raise UsageError("there is no task: say what to do, or --resume a tape")
    root = workspace(arguments.repo)
    told = instructions(arguments, root)
    sandbox = open_sandbox(arguments, root)
    try:
        client = connect(arguments)
        print_destination(arguments, client)
        with client, _view(arguments) as view, _mcp_tools(arguments) as others:
            model = arguments.model or default_model(client)
            tools = _tools(arguments, agent_toolsets(arguments, root, sandbox, others), view.ask)
            agent = build_agent(arguments, client, tools, model=model, instructions=told)
            _print_not_offered(agent.toolbox.not_offered)
            snapshot = FolderSnapshot(root)
            try:
                done, failure = _follow(agent, arguments, view)
            except KeyboardInterrupt:
                _report_interrupt(arguments, snapshot)
                raise
    finally:
        sandbox.close()
    _report(done, failure, snapshot.difference(), arguments)
    return 0 if failure is None else 1


def _report_interrupt(arguments: argparse.Namespace, snapshot: FolderSnapshot) -> None:
    """Print what was changed before the interrupt, and how to continue."""
    if not _is_for_scripts(arguments):
        _print_difference(snapshot.difference())
    if tape := arguments.tape or arguments.resume:
        print_progress(f"interrupted; go on with --resume {tape}")


def _is_for_scripts(arguments: argparse.Namespace) -> bool:
    """Return whether stdout must contain only JSON."""
    return bool(arguments.json or arguments.events)


def _view(arguments: argparse.Namespace) -> AgentView:
    """Return the view of the run. With --json or --events it shows nothing; with --quiet, only the model's text."""
    return AgentView(shown="nothing" if _is_for_scripts(arguments) else "text" if arguments.quiet else "all")


@contextlib.contextmanager
def _mcp_tools(arguments: argparse.Namespace) -> Generator[list[Toolset]]:
    """Yield the tools of the MCP servers that --mcp names. The servers stay connected until the block ends."""
    if not arguments.mcp:
        yield []
        return
    from promptools.harness.toolsets.mcp import McpServers

    with McpServers.from_file(arguments.mcp) as toolset:
        yield [toolset]


def _print_not_offered(names: Sequence[str]) -> None:
    if names:
        print_progress(
            f"discovered, but not offered, as nothing here runs them: {', '.join(names)}; if a tool of the agent does,"
            " add its name to their `names` in tools.json"
        )


def _follow(agent: Agent, arguments: argparse.Namespace, view: AgentView) -> tuple[Transcript, TerminatingError | None]:
    """Run the agent and show its events; return the transcript, and the error that ended the run, if any.

    In an interactive session, each further message of the user starts another run that continues the conversation. The
    transcript and the error are those of the last run.
    """
    task: Any = agent.resumed(arguments.resume, arguments.task) if arguments.resume else arguments.task
    while True:
        done, failure = _follow_run(agent, task, arguments, view)
        message = view.read_message() if arguments.interactive else ""
        if not message:
            return done, failure
        task = [*done.messages, {"role": "user", "content": message}]


def _follow_run(
    agent: Agent, task: Any, arguments: argparse.Namespace, view: AgentView
) -> tuple[Transcript, TerminatingError | None]:
    last: Any = None
    try:
        for last in agent.stream(task, tape=arguments.tape or arguments.resume):
            view.show(last)
            if arguments.events and not isinstance(last, Transcript):
                print(json.dumps(_event(last), ensure_ascii=False), flush=True)
    except TerminatingError as error:
        if error.transcript is None:
            raise
        return error.transcript, error
    return cast("Transcript", last), None


def _event(event: RunEvent) -> dict[str, Any]:
    """Return an event as JSON: its kind, such as `text` for `TextEvent`, and its fields."""
    match event:
        case CallEvent(call):
            return {"event": "call", "id": call.id, "name": call.name, "arguments": call.arguments}
        case ResultEvent(result):
            own = {"id": result.call_id, "name": result.name, "content": result.content, "is_error": result.is_error}
            return {"event": "result", **own}
        case _:
            return {"event": type(event).__name__.removesuffix("Event").lower(), **asdict(event)}


def _report(done: Transcript, error: TerminatingError | None, difference: str, arguments: argparse.Namespace) -> None:
    if arguments.events:
        print(json.dumps({"event": "end", **_as_json(done, error, difference)}, ensure_ascii=False))
    elif arguments.json:
        print_json(_as_json(done, error, difference))
    else:
        _print_difference(difference)
        tokens = (done.usage or {}).get("total_tokens", "unknown")
        ended = f"{done.ended}: {printable(str(error))}" if error else done.ended
        if not arguments.quiet:
            print_styled([(f"[{done.iterations} steps, {done.retries} retries, {tokens} tokens; {ended}]", "dim")])
    if arguments.trajectory:
        made = trajectory(done, submission=difference, config={"policy": arguments.policy, "repo": arguments.repo})
        Path(arguments.trajectory).write_text(json.dumps(made, ensure_ascii=False, indent=2), encoding="utf-8")


def _as_json(done: Transcript, error: TerminatingError | None, difference: str) -> dict[str, Any]:
    return {
        "ended": done.ended,
        "error": str(error) if error else None,
        "answer": done.content,
        "steps": done.iterations,
        "retries": done.retries,
        "usage": done.usage,
        "diff": difference,
        "messages": done.messages,
    }


def _print_difference(difference: str) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in printable(difference).splitlines():
        print_styled([(line, styles.get(line[:1], ""))])


def _tools(arguments: argparse.Namespace, toolsets: Sequence[Toolset], ask: Callable[[str], bool]) -> Sequence[Toolset]:
    """Return the toolsets. Without --yes, some of the tools ask the user before each call.

    These are the tools that run commands or code, the browser tools, and those tools of MCP servers that may change
    something.
    """
    if arguments.yes:
        return toolsets
    return [
        replace(
            each,
            tools=tuple(_asking(tool, ask) if is_asked(tool.tool.name, tool.tool) else tool for tool in each.tools),
        )
        for each in toolsets
    ]


def _asking(tool: AgentTool, ask: Callable[[str], bool]) -> AgentTool:
    """Return a tool that does the same as `tool`, but asks the user before each call."""

    def run(**given: Any) -> Any:
        if not ask(f"run {tool.tool.name} {printable(json.dumps(given, ensure_ascii=False))}?"):
            raise PermissionError("the user does not allow this command; find another way, or answer without it")
        return tool.run(**given)

    return AgentTool(tool.tool, run)
