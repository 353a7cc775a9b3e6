"""Mathematics questions with integer answers, such as AIME, from JSON Lines with `question` and `answer`."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from promptools.cli.benchmark_run import (
    add_overflow_retries,
    add_repeated_run,
    digest,
    make_agent,
    open_workspace,
    run_and_report,
)
from promptools.cli.command_client import choose_model, connect

if TYPE_CHECKING:
    from promptools.harness.agent import Agent
    from promptools.harness.toolsets import Toolset


NAME = "aime"
TOOLS = {"none": "", "container": "container.exec", "python": "python"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument("file", nargs="+", help='tasks: {"question": ..., "answer": ...} in each line')
    add_repeated_run(parser, repeats=8)
    parser.add_argument(
        "--tools",
        choices=tuple(TOOLS),
        default="container",
        help="what the model may use: container.exec (container), python, or nothing (none)",
    )
    add_overflow_retries(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the attempts that are not in the log yet; return 1 if some of them failed."""
    from promptools.harness.evaluation.agent_solver import AgentSolver
    from promptools.harness.evaluation.intervals import require_numpy
    from promptools.harness.evaluation.tasks import read_tasks

    require_numpy()
    tasks = read_tasks(*map(Path, arguments.file))
    with connect(arguments) as client:
        model = choose_model(arguments, client)
        open_agent = partial(_open_agent, arguments, client, model)
        with open_agent():
            pass  # an error of the sandbox is reported now, instead of as the error of each attempt
        settings = {
            "benchmark": NAME,
            "model": model,
            "tasks": digest([(task.id, task.question, task.answer) for task in tasks]),
            "tools": arguments.tools,
            "overflow_retries": arguments.overflow_retries,
        }
        solver = AgentSolver(open_agent, overflow_retries=arguments.overflow_retries)
        return run_and_report(arguments, client, tasks, solver, f"AIME: {model}", settings)


@contextmanager
def _open_agent(arguments: argparse.Namespace, client: Any, model: str) -> Generator[Agent, None, None]:
    """Yield an agent with a separate empty workspace."""
    from promptools.harness.toolsets.in_distribution import gpt_oss_tools

    with ExitStack() as stack:
        toolsets: list[Toolset] = []
        if name := TOOLS[arguments.tools]:
            root = Path(stack.enter_context(TemporaryDirectory(prefix="promptools-eval-")))
            sandbox = stack.enter_context(closing(open_workspace(arguments, root)))
            every = gpt_oss_tools(root, sandbox, python="stateless", timeout=arguments.command_timeout)
            toolsets.append(_only(name, every))
        yield make_agent(arguments, client, model, toolsets)


def _only(name: str, toolset: Toolset) -> Toolset:
    """Return a toolset that has only the tool `name` of the given toolset."""
    namespace = name.partition(".")[0]
    return replace(
        toolset,
        tools=tuple(tool for tool in toolset.tools if tool.tool.name == name),
        namespaces={key: text for key, text in toolset.namespaces.items() if key == namespace},
    )
