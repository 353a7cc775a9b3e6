"""SWE-bench: the model resolves issues of repositories, read from JSON Lines or JSON; swebench grades the patches."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from promptools.cli.benchmark_run import (
    Show,
    add_overflow_retries,
    add_run,
    command_limits,
    digest,
    make_agent,
    make_attempts,
    open_workspace,
    print_report,
    run_settings,
    server_of,
)
from promptools.cli.command_client import choose_model, connect
from promptools.cli.shared_arguments import add_sandbox, read_text
from promptools.errors import UsageError

if TYPE_CHECKING:
    from promptools.harness.agent import Agent
    from promptools.harness.evaluation.swe import GradedRun, SweInstance
    from promptools.harness.evaluation.tasks import TaskAttempt
    from promptools.harness.sandbox import Sandbox


NAME = "swe"
LOG = "run.jsonl"
TRAJECTORIES = "trajs"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument("file", help="instances with the fields of the data set, .jsonl or .json")
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="folder of the run's files; an interrupted run is resumed"
    )
    parser.add_argument(
        "--repos", metavar="DIR", help="work in local clones, DIR/OWNER/NAME, and not in the instances' Docker images"
    )
    parser.add_argument("--prompt", metavar="FILE", help="the task, with {problem_statement} and {workspace}")
    add_overflow_retries(parser)
    grading = parser.add_mutually_exclusive_group()
    grading.add_argument("--grade", action="store_true", help="let swebench grade the patches, in Docker")
    grading.add_argument("--graded", metavar="FILE", help="read swebench's report on these patches, made elsewhere")
    add_run(parser, steps=250)
    add_sandbox(parser)
    parser.set_defaults(sandbox=None)


def run(arguments: argparse.Namespace) -> int:
    """Make the attempts that are not in the log yet, and report on all patches; return 1 if some attempts failed."""
    from promptools.harness.evaluation.intervals import require_numpy
    from promptools.harness.evaluation.swe import PROMPT, SweSolver, read_instances

    require_numpy()
    instances = read_instances(Path(arguments.file))
    output = Path(arguments.output)
    prompt = read_text(arguments.prompt) if arguments.prompt else PROMPT
    open_repository = _choose_workspaces(arguments, instances)
    with connect(arguments) as client:
        model = choose_model(arguments, client)
        solver = SweSolver(
            partial(_make_agent, arguments, client, model),
            open_repository,
            output / TRAJECTORIES,
            prompt,
            arguments.overflow_retries,
        )
        if arguments.grade:
            _check_grading(arguments, model)
        settings = {
            "benchmark": NAME,
            "model": model,
            "tasks": digest([(task.id, task.repo, task.base_commit, task.problem_statement) for task in instances]),
            "repositories": "clones" if arguments.repos else "images",
            "prompt": digest(prompt),
            "overflow_retries": arguments.overflow_retries,
        }
        attempts = make_attempts(arguments, output / LOG, instances, solver, settings, _describe, repeats=1)
        return _report(arguments, model, attempts, {**run_settings(arguments, settings), "server": server_of(client)})


def _report(
    arguments: argparse.Namespace, model: str, attempts: Sequence[TaskAttempt], settings: dict[str, Any]
) -> int:
    """Write the predictions, grade them if `--grade` is given, and print the report; return the exit status."""
    from promptools.harness.evaluation.swe import predictions, render_swe_report, summarize_swe, write_predictions

    predicted = predictions(attempts, model)
    write_predictions(Path(arguments.output), predicted)
    summary = summarize_swe(attempts, _graded(arguments, model, predicted))
    page = render_swe_report(f"SWE-bench: {model}", summary, settings, _how_to_grade(arguments, model))
    print_report(arguments, page, summary.to_dict())
    return 1 if summary.run.failed else 0


def _graded(arguments: argparse.Namespace, model: str, predicted: dict[str, dict[str, str]]) -> GradedRun | None:
    from promptools.harness.evaluation.swe import grade, read_report

    if arguments.grade:
        path = grade(Path(arguments.output), Path(arguments.file), predicted, model, arguments.workers)
        return read_report(path, predicted)
    return read_report(Path(arguments.graded), predicted) if arguments.graded else None


def _check_grading(arguments: argparse.Namespace, model: str) -> None:
    """Raise `UsageError` before the run if patches cannot be graded on this machine."""
    from promptools.harness.evaluation.swe import require_swebench
    from promptools.harness.evaluation.swe_workspaces import docker_problem

    if problem := docker_problem():
        raise UsageError(
            f"--grade needs Docker, which cannot be used here: {problem}. Leave --grade out."
            f" {_how_to_grade(arguments, model)}"
        )
    require_swebench()


def _how_to_grade(arguments: argparse.Namespace, model: str) -> str:
    from promptools.harness.evaluation.swe import grading_arguments, report_name

    command = shlex.join(["python", *grading_arguments(Path(arguments.file), arguments.workers)])
    report = shlex.quote(str(Path(arguments.output) / report_name(model)))
    return (
        "The patches are graded on a machine with Docker and swebench by"
        f" `cd {shlex.quote(arguments.output)} && {command}`; then the same command with `--graded {report}` reports"
        " the result."
    )


def _choose_workspaces(
    arguments: argparse.Namespace, instances: Sequence[SweInstance]
) -> Callable[[SweInstance, Path], Sandbox]:
    """Return a function that opens the workspace of an instance; raise `UsageError` if workspaces cannot be opened."""
    from promptools.harness.evaluation.swe_workspaces import check_commit, docker_problem, find_clone

    if not arguments.repos:
        if arguments.sandbox not in {None, "docker"} or arguments.image:
            raise UsageError("--sandbox and --image are for local clones: name their folder with --repos DIR")
        if problem := docker_problem():
            raise UsageError(
                f"the instances' images need Docker, which cannot be used here: {problem}."
                " Install or start it, or work in local clones with --repos DIR"
            )
        arguments.sandbox = "docker"
        return partial(_open_image, arguments)
    arguments.sandbox = arguments.sandbox or "bubblewrap"
    for instance in instances:
        check_commit(find_clone(Path(arguments.repos), instance.repo), instance.base_commit)
    with TemporaryDirectory(prefix="promptools-swe-") as folder:
        open_workspace(arguments, Path(folder)).close()
    return partial(_open_clone, arguments)


def _open_image(arguments: argparse.Namespace, instance: SweInstance, root: Path) -> Sandbox:
    from promptools.harness.evaluation.swe_workspaces import open_image

    return open_image(instance.image, root, network=arguments.network, limits=command_limits(arguments))


def _open_clone(arguments: argparse.Namespace, instance: SweInstance, root: Path) -> Sandbox:
    from promptools.harness.evaluation.swe_workspaces import check_out, find_clone

    check_out(find_clone(Path(arguments.repos), instance.repo), instance.base_commit, root)
    return open_workspace(arguments, root, writable_git=True)


def _make_agent(arguments: argparse.Namespace, client: Any, model: str, sandbox: Sandbox) -> Agent:
    from promptools.harness.toolsets.in_distribution import gpt_oss_tools, plain_observation, tagged_observation

    observation = tagged_observation if arguments.policy == "paper" else plain_observation
    tools = gpt_oss_tools(sandbox.root, sandbox, observation=observation, timeout=arguments.command_timeout)
    return make_agent(arguments, client, model, [tools])


def _describe(show: Show) -> Callable[[TaskAttempt, int, int], None]:
    """Return a function that shows the outcome of each new attempt."""

    def describe(attempt: TaskAttempt, done: int, total: int) -> None:
        made = f"patch of {attempt.text.count(chr(10))} lines" if attempt.text else "no change"
        show(f"{attempt.task}: {attempt.error or attempt.ended or made}", done, total)

    return describe
