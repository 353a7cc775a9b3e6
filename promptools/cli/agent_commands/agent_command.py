"""The command `promptools agent`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from promptools.cli.agent_commands.agent_view import AgentView, printable
from promptools.cli.agent_commands.folder_diff import FolderSnapshot
from promptools.cli.agent_commands.sandbox_arguments import add_sandbox, open_sandbox
from promptools.cli.server_commands.chat_command import connect, default_model, print_destination
from promptools.cli.shared_arguments import add_endpoint, add_json, at_least, seconds
from promptools.cli.terminal_output import print_json, print_progress, print_styled
from promptools.errors import UsageError
from promptools.harness.agent import Agent, RunLimits, Transcript, trajectory
from promptools.harness.agent.harness_errors import TerminatingError
from promptools.harness.toolsets import AgentTool, Toolset
from promptools.harness.toolsets.in_distribution import gpt_oss_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptools.harness.sandbox import Sandbox

COMMAND_TOOLS = frozenset({"container.exec", "python"})
"""Tools before whose calls the user is asked."""


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
    how = parser.add_argument_group("how the run goes")
    how.add_argument("--policy", choices=("default", "paper"), default="default", help="see docs/tasks/run-an-agent.md")
    how.add_argument("--steps", type=at_least(1, "steps"), metavar="N", help="end after N replies (default: 50)")
    how.add_argument("--tokens", type=at_least(1, "tokens"), metavar="N", help="end after N tokens")
    how.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    how.add_argument("--tape", metavar="FILE", help="record the run in FILE")
    how.add_argument("--resume", metavar="FILE", help="continue the last run of this tape, and keep recording")
    add_json(parser)
    how.add_argument(
        "--trajectory", metavar="FILE", help="write the run as mini-swe-agent JSON, with the diff as its result"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the agent, and print what it changed."""
    if not arguments.task and not arguments.resume:
        raise UsageError("there is no task: say what to do, or --resume a tape")
    root = Path(arguments.repo).resolve()
    if root == Path.home():
        raise UsageError(
            f"--repo is your home folder {str(root)!r}, which the model could read; name a project's folder"
        )
    sandbox = open_sandbox(arguments, root)
    try:
        client = connect(arguments)
        print_destination(arguments, client)
        with client, _view(arguments) as view:
            model = arguments.model or default_model(client)
            tools = _tools(arguments, root, sandbox, view.ask)
            agent = Agent(client, tools, model=model, discovered=arguments.discovered, **_policy(arguments))
            _print_not_offered(agent.toolbox.not_offered)
            snapshot = FolderSnapshot(root)
            try:
                done, failure = _follow(agent, arguments, view)
            except KeyboardInterrupt:
                if not arguments.json:
                    _print_difference(snapshot.difference())
                if tape := arguments.tape or arguments.resume:
                    print_progress(f"interrupted; go on with --resume {tape}")
                raise
    finally:
        sandbox.close()
    _report(done, failure, snapshot.difference(), arguments)
    return 0 if failure is None else 1


def _view(arguments: argparse.Namespace) -> AgentView:
    """Return the view: with --json it shows nothing, with --quiet only what the model says."""
    return AgentView(shown="nothing" if arguments.json else "text" if arguments.quiet else "all")


def _print_not_offered(names: Sequence[str]) -> None:
    if names:
        print_progress(
            f"discovered, but not offered, as nothing here runs them: {', '.join(names)}; if a tool of the agent does,"
            " add its name to their `names` in tools.json"
        )


def _follow(agent: Agent, arguments: argparse.Namespace, view: AgentView) -> tuple[Transcript, TerminatingError | None]:
    """Run the agent and show its events; return the transcript, and the error that ended the run."""
    task: Any = agent.resumed(arguments.resume, arguments.task) if arguments.resume else arguments.task
    last: Any = None
    try:
        for last in agent.stream(task, tape=arguments.tape or arguments.resume):
            view.show(last)
    except TerminatingError as error:
        if error.transcript is None:
            raise
        return error.transcript, error
    return cast("Transcript", last), None


def _report(done: Transcript, error: TerminatingError | None, difference: str, arguments: argparse.Namespace) -> None:
    if arguments.json:
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


def _tools(
    arguments: argparse.Namespace, root: Path, sandbox: Sandbox, ask: Callable[[str], bool]
) -> Sequence[Toolset]:
    toolset = gpt_oss_tools(root, sandbox, python=arguments.python)
    if arguments.yes:
        return [toolset]
    asking = (_asking(tool, ask) if tool.tool.name in COMMAND_TOOLS else tool for tool in toolset.tools)
    return [replace(toolset, tools=tuple(asking))]


def _asking(tool: AgentTool, ask: Callable[[str], bool]) -> AgentTool:
    """Return a tool that asks the user before each call."""

    def run(**given: Any) -> Any:
        if not ask(f"run {tool.tool.name} {printable(json.dumps(given, ensure_ascii=False))}?"):
            raise PermissionError("the user does not allow this command; find another way, or answer without it")
        return tool.run(**given)

    return AgentTool(tool.tool, run)


def _policy(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {"steps": arguments.steps, "tokens": arguments.tokens, "seconds": arguments.seconds}
    limits = RunLimits(**{name: value for name, value in given.items() if value is not None})
    return {"policy": arguments.policy, "limits": limits}
