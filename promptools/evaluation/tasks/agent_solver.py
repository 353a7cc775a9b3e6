"""Solvers that let an agent work on a task."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from promptools.agent import Agent, Transcript
from promptools.agent.harness_errors import TerminatingError
from promptools.evaluation.tasks.task_file import Task
from promptools.evaluation.tasks.task_runner import Solution, Unanswered

OpenAgent: TypeAlias = Callable[[], AbstractContextManager[Agent]]
"""Returns an agent for one attempt, with a workspace of its own if its tools need one."""

ANSWER_FORMAT = "Put the final answer in \\boxed{}."


def run_to_end(agent: Agent, prompt: str, overflow_retries: int = 0) -> tuple[Transcript, str]:
    """Let an agent work on a task; return the transcript, and why it has no answer, empty if it has one."""
    try:
        return agent.run(prompt, overflow_retries=overflow_retries), ""
    except TerminatingError as error:
        return error.transcript or Transcript([], ended=type(error).__name__), f"{type(error).__name__}: {error}"


def run_agent(agent: Agent, prompt: str, overflow_retries: int = 0) -> Transcript:
    """Let an agent work on a task; return the transcript.

    A run that ends at a limit, or because the context overflows, has no answer, and that is its result: it raises
    `Unanswered` with the tokens of the whole run.
    """
    transcript, reason = run_to_end(agent, prompt, overflow_retries)
    if reason:
        raise Unanswered(reason, transcript.usage)
    return transcript


@dataclass(frozen=True, slots=True)
class AgentSolver:
    """Asks an agent a question, followed by `answer_format`."""

    open_agent: OpenAgent
    answer_format: str = ANSWER_FORMAT
    overflow_retries: int = 0
    """Times that a run whose context overflows is begun again."""

    def __call__(self, task: Task, repeat: int) -> Solution:  # noqa: ARG002
        """Return the answer to a question, and the tokens of the whole run."""
        with self.open_agent() as agent:
            transcript = run_agent(agent, f"{task.question}\n\n{self.answer_format}", self.overflow_retries)
        return Solution(transcript.content, transcript.usage)
