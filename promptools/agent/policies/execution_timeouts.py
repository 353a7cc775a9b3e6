"""Time-outs of tools under the paper's policy: `ExecutionTimeoutError`, which the harness turns into an observation."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from promptools.agent.harness_errors import ExecutionTimeoutError
from promptools.harness.toolsets.agent_tool import ToolTimeoutError

SHOWN = 100
"""Characters of the output that the model reads."""


def with_execution_timeouts(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that does the same, and raises `ExecutionTimeoutError` where a tool took too long."""

    def run() -> Any:
        try:
            value = work()
        except ToolTimeoutError as error:
            raise _execution_timeout(error) from error
        return _awaited(value) if inspect.isawaitable(value) else value

    return run


async def _awaited(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except ToolTimeoutError as error:
        raise _execution_timeout(error) from error


def _execution_timeout(error: ToolTimeoutError) -> ExecutionTimeoutError:
    cut = "..." if len(error.output) > SHOWN else ""
    observation = (
        f"The last command timed out after {error.seconds:g} seconds and has been killed. The output of the command"
        f" was:\n<output>\n{error.output[:SHOWN]}{cut}\n</output>\nPlease try another command and make sure to avoid"
        " those requiring interactive input."
    )
    return ExecutionTimeoutError(str(error), observation=observation)
