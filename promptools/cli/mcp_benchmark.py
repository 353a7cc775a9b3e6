"""Tasks with MCP servers, and checks of the answer, the calls, and the state afterwards."""

from __future__ import annotations

import argparse
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
from promptools.cli.shared_arguments import seconds

if TYPE_CHECKING:
    from promptools.harness.agent import Agent
    from promptools.harness.toolsets import Toolset


NAME = "mcp"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument("file", nargs="+", help="tasks with 'prompt', 'servers' and 'checks', JSON Lines or TOML")
    parser.add_argument("--servers", metavar="FILE", help="file with 'mcpServers', for tasks that name no servers")
    parser.add_argument(
        "--tool-timeout", type=seconds, default=60.0, metavar="S", help="seconds that a server may take (60)"
    )
    add_repeated_run(parser, repeats=1)
    add_overflow_retries(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the attempts that are not in the log yet; return 1 if some of them failed."""
    from promptools.harness.evaluation.intervals import require_numpy
    from promptools.harness.evaluation.mcp import McpSolver, read_mcp_tasks

    require_numpy()
    servers = Path(arguments.servers) if arguments.servers else None
    tasks = read_mcp_tasks(*map(Path, arguments.file), servers=servers)
    with connect(arguments) as client:
        model = choose_model(arguments, client)
        solver = McpSolver(
            partial(_make_agent, arguments, client, model),
            partial(open_workspace, arguments),
            arguments.tool_timeout,
            arguments.overflow_retries,
        )
        # an error of the servers or the sandbox is reported now, instead of as the error of each attempt
        solver.check_tools(tasks)
        if any(task.has_command for task in tasks):
            with TemporaryDirectory(prefix="promptools-eval-") as folder:
                open_workspace(arguments, Path(folder)).close()
        # the digest includes the servers' settings without their secrets
        parts = [(task.id, task.prompt, repr(task.servers), [check.label for check in task.checks]) for task in tasks]
        settings = {
            "benchmark": NAME,
            "model": model,
            "tasks": digest(parts),
            "overflow_retries": arguments.overflow_retries,
        }
        return run_and_report(arguments, client, tasks, solver, f"MCP: {model}", settings)


def _make_agent(arguments: argparse.Namespace, client: Any, model: str, toolset: Toolset) -> Agent:
    return make_agent(arguments, client, model, [toolset])
