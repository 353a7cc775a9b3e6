"""Solvers that let an agent work on a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from promptools.harness.agent import Agent, Transcript
from promptools.harness.agent.harness_errors import MaxContextWindowOverflow, TerminatingError
from promptools.harness.evaluation.tasks import Solution, Task, Unanswered

OpenAgent: TypeAlias = Callable[[], AbstractContextManager[Agent]]
"""A function that returns a context manager. The context manager yields the agent for one run.

If the agent's tools need a workspace, each run gets a new one.
"""

ANSWER_FORMAT = "Put the final answer in \\boxed{}."


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run of an agent that has ended, with or without an answer."""

    transcript: Transcript
    reason: str = ""
    """Why there is no answer; empty if there is one."""

    @property
    def overflowed(self) -> bool:
        """Whether the run ended because the context overflowed."""
        return self.reason.startswith(f"{MaxContextWindowOverflow.__name__}:")


RunT = TypeVar("RunT", bound=FinishedRun)


@dataclass(frozen=True, slots=True)
class OverflowRetries:
    """Runs an agent again if the context overflows, at most `most` times.

    Runs must not share a workspace or other state.
    """

    most: int = 0

    def run(self, begin: Callable[[], RunT]) -> tuple[RunT, int, Counter[str]]:
        """Run the agent until a run ends without overflowing the context, or no retries are left.

        Return the last run, the number of retries, and the total token usage of all runs.
        """
        usage: Counter[str] = Counter()
        retries = 0
        while True:
            finished = begin()
            usage.update({name: n for name, n in (finished.transcript.usage or {}).items() if isinstance(n, int)})
            if not finished.overflowed or retries == self.most:
                return finished, retries, usage
            retries += 1


def run_to_end(agent: Agent, prompt: str) -> tuple[Transcript, str]:
    """Run an agent on a task; return the transcript, and why the run has no answer (empty if it has one)."""
    try:
        return agent.run(prompt), ""
    except TerminatingError as error:
        return error.transcript or Transcript([], ended=type(error).__name__), f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class AgentSolver:
    """A solver that asks an agent the question of a task, followed by `answer_format`."""

    open_agent: OpenAgent
    answer_format: str = ANSWER_FORMAT
    overflow_retries: int = 0
    """Maximum number of times that a run is restarted because its context overflowed."""

    def __call__(self, task: Task, repeat: int) -> Solution:  # noqa: ARG002
        """Return the answer to a question, and the total token usage of all runs.

        If the context overflows in a run, the run is restarted, up to `overflow_retries` times. Raises `Unanswered` if
        the last run ends without an answer, for example because it reached a limit. The attempt at the question then
        counts as wrong, and is not repeated.
        """

        def begin() -> FinishedRun:
            with self.open_agent() as agent:
                return FinishedRun(*run_to_end(agent, f"{task.question}\n\n{self.answer_format}"))

        finished, _, usage = OverflowRetries(self.overflow_retries).run(begin)
        if finished.reason:
            raise Unanswered(finished.reason, usage)
        return Solution(finished.transcript.content, usage)
