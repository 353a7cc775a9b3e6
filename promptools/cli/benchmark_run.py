"""Functions that the benchmarks share: the arguments of a run, and the run with its log, progress and report."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.cli.shared_arguments import add_endpoint, add_json, add_sandbox, at_least, open_sandbox, seconds
from promptools.cli.terminal_output import print_json, show_progress
from promptools.errors import UsageError, without_credentials
from promptools.json_values import is_object, try_json

if TYPE_CHECKING:
    from promptools.harness.agent import Agent
    from promptools.harness.evaluation.tasks import Solver, TaskAttempt, TaskT
    from promptools.harness.sandbox import CommandLimits, Sandbox
    from promptools.harness.toolsets import Toolset


SETTINGS = ("request", "system", "sandbox", "image", "policy", "steps")
"""The arguments whose values must be the same when a run is resumed."""
RESERVED = {"messages", "model", "stream", "tools"}
Show: TypeAlias = Callable[[str, int, int], None]
"""A function that shows progress. Its arguments are a text, the number of finished attempts, and the total number."""


def add_repeated_run(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    """Add the arguments of a run with repeated attempts, logged in one file.

    `repeats` is the default number of attempts at a task.
    """
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="log of the run, JSON Lines; an interrupted run is resumed"
    )
    parser.add_argument(
        "--repeats",
        type=at_least(1, "repeats"),
        default=repeats,
        metavar="N",
        help=f"attempts at each task ({repeats})",
    )
    add_run(parser)
    add_sandbox(parser, image="python:3.11")


def add_run(parser: argparse.ArgumentParser, *, steps: int = 50) -> None:
    """Add the arguments that all runs with agents share; `steps` is the default for the maximum number of replies."""
    add_endpoint(parser)
    parser.add_argument("--report", metavar="FILE", help="write a report of the run, in Markdown")
    parser.add_argument(
        "--workers", type=at_least(1, "workers"), default=6, metavar="N", help="attempts at the same time (6)"
    )
    parser.add_argument(
        "--request",
        type=json_object,
        default={},
        metavar="JSON",
        help="additional keys for each request, such as {'temperature': 1}",
    )
    parser.add_argument("--system", metavar="TEXT", default="", help="system message")
    parser.add_argument("--policy", choices=("default", "paper"), default="default", help="checks of replies (default)")
    parser.add_argument(
        "--steps",
        type=at_least(1, "steps"),
        default=steps,
        metavar="N",
        help=f"maximum number of replies per attempt ({steps})",
    )
    parser.add_argument(
        "--command-timeout", type=seconds, default=120.0, metavar="S", help="seconds that a command may take (120)"
    )
    add_json(parser)


def add_overflow_retries(parser: argparse.ArgumentParser) -> None:
    """Add `--overflow-retries`."""
    parser.add_argument(
        "--overflow-retries",
        type=at_least(0, "retries"),
        default=0,
        metavar="N",
        help="how many times to restart an attempt when the context overflows (0)",
    )


def make_agent(arguments: argparse.Namespace, client: Any, model: str, toolsets: Sequence[Toolset]) -> Agent:
    """Return the agent that the arguments describe. With `--policy paper`, only the number of steps is limited."""
    from promptools.harness.agent import Agent, RunLimits
    from promptools.harness.agent.run_limits import NO_LIMITS

    limits = replace(NO_LIMITS if arguments.policy == "paper" else RunLimits(), steps=arguments.steps)
    return Agent(
        client,
        toolsets,
        model=model,
        policy=arguments.policy,
        limits=limits,
        instructions=arguments.system,
        **arguments.request,
    )


def open_workspace(arguments: argparse.Namespace, root: Path, *, writable_git: bool = False) -> Sandbox:
    """Open the sandbox of an attempt, with `root` as its workspace."""
    return open_sandbox(arguments, root, command_limits(arguments), writable_git=writable_git)


def command_limits(arguments: argparse.Namespace) -> CommandLimits:
    """Return the limits for commands in the sandbox, as the arguments set them."""
    from promptools.harness.sandbox import CommandLimits

    return CommandLimits(timeout=arguments.command_timeout)


def run_and_report(
    arguments: argparse.Namespace,
    client: Any,
    tasks: Sequence[TaskT],
    solve: Solver[TaskT],
    title: str,
    settings: Mapping[str, Any],
) -> int:
    """Make the attempts that are not in the log yet, and print a report on all attempts; return 1 if some failed."""
    from promptools.harness.evaluation.tasks import render_report, summarize

    log = Path(arguments.output)
    summary = summarize(make_attempts(arguments, log, tasks, solve, settings, _describe))
    shown = {**run_settings(arguments, settings), "repeats": arguments.repeats, "server": server_of(client)}
    print_report(arguments, render_report(title, summary, shown), summary.to_dict())
    return 1 if summary.failed else 0


def make_attempts(
    arguments: argparse.Namespace,
    log: Path,
    tasks: Sequence[TaskT],
    solve: Solver[TaskT],
    settings: Mapping[str, Any],
    describe: Callable[[Show], Callable[[TaskAttempt, int, int], None]],
    *,
    repeats: int | None = None,
) -> list[TaskAttempt]:
    """Make the attempts that are not in the log yet, and return all attempts.

    `describe` takes a function that shows a text and the progress. It returns a function that is called with each new
    attempt and shows the attempt.
    """
    from promptools.harness.evaluation.tasks import RunLog, run_tasks

    title = str(settings["model"])
    with RunLog(log, run_settings(arguments, settings)) as opened, show_progress(title) as show:
        return run_tasks(
            tasks,
            solve,
            opened,
            repeats=repeats or arguments.repeats,
            workers=arguments.workers,
            progress=describe(show),
        )


def run_settings(arguments: argparse.Namespace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` and the arguments that must also be the same when a run is resumed."""
    return {**settings, **{name: getattr(arguments, name) for name in SETTINGS}}


def server_of(client: Any) -> str:
    """Return the URL of the server, without credentials."""
    return without_credentials(str(client.base_url))


def print_report(arguments: argparse.Namespace, page: str, figures: Mapping[str, Any]) -> None:
    """Write the report to the file that `--report` names, if any; print the report, or with `--json` the figures."""
    if arguments.report:
        _write(Path(arguments.report), page)
    if arguments.json:
        print_json(figures)
    else:
        print(page)


def _describe(show: Show) -> Callable[[TaskAttempt, int, int], None]:
    """Return a function that shows each new attempt, with the number of correct attempts so far."""
    correct = made = 0

    def describe(attempt: TaskAttempt, done: int, total: int) -> None:
        nonlocal correct, made
        correct, made = correct + attempt.correct, made + 1
        answer = "" if attempt.expected is None else f"{attempt.answer}, "
        outcome = attempt.error or f"{answer}{'correct' if attempt.correct else 'wrong'}"
        show(f"{attempt.task} #{attempt.repeat}: {outcome} ({correct} of {made} correct)", done, total)

    return describe


def digest(value: Any) -> str:
    """Return a short digest of a JSON value. Two runs have the same tasks if the digests of the tasks are equal."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def json_object(text: str) -> dict[str, Any]:
    """Parse the value of `--request`, a JSON object."""
    value = try_json(text)
    if not is_object(value):
        raise argparse.ArgumentTypeError(f'{text!r} is not a JSON object; write {{"temperature": 1}}')
    if reserved := sorted(RESERVED & value.keys()):
        raise argparse.ArgumentTypeError(f"{reserved[0]!r} cannot be set here")
    return value
